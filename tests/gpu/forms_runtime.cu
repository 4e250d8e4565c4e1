// Launches through the CUDA runtime, for the three ways it is built: static, shared, per-thread default stream. What
// was launched how often, by mangled name, is the last line: LAUNCHES {json}. How it reached the driver is for the
// independent counter to say.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__global__ void triple_chevron(int* out) {
  if (out != nullptr) *out = static_cast<int>(blockIdx.x);
}
__global__ void by_config(int* out) {
  if (out != nullptr) *out = 2;
}
__global__ void cooperative(int* out) {
  cooperative_groups::this_grid().sync();
  if (out != nullptr) *out = 3;
}
__global__ void captured(int* out) {
  if (out != nullptr) *out = 4;
}
__global__ void threaded(int* out) {
  if (out != nullptr) *out = 5;
}

std::map<std::string, int> launches;

void count(const void* function, int number) {
  const char* name = nullptr;
  must(cudaFuncGetName(&name, function), "cudaFuncGetName");
  launches[name] += number;
}
template <class F>
const void* address(F* function) {
  return reinterpret_cast<const void*>(function);
}

void graph() {
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  for (int i = 0; i < 5; ++i) captured<<<1, 64, 0, stream>>>(nullptr);
  cudaGraph_t made;
  must(cudaStreamEndCapture(stream, &made), "end capture");
  cudaGraphExec_t exec;
  must(cudaGraphInstantiate(&exec, made, 0), "instantiate");
  for (int i = 0; i < 4; ++i) must(cudaGraphLaunch(exec, stream), "graph launch");
  must(cudaStreamSynchronize(stream), "graph");
  must(cudaGraphExecDestroy(exec), "destroy");
  must(cudaGraphDestroy(made), "destroy");
  must(cudaStreamDestroy(stream), "stream");
  count(address(&captured), 5);
}

void with_config(bool clusters) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(8);
  config.blockDim = dim3(64);
  cudaLaunchAttribute attribute{};
  if (clusters) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 4;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  int* out = nullptr;
  for (int i = 0; i < 3; ++i) must(cudaLaunchKernelEx(&config, by_config, out), "cudaLaunchKernelEx");
  count(address(&by_config), 3);
}

}  // namespace

int main() {
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "device");
  for (int i = 0; i < 10; ++i) triple_chevron<<<i + 1, 128>>>(nullptr);
  must(cudaGetLastError(), "triple_chevron");
  count(address(&triple_chevron), 10);
  with_config(properties.major >= 9);
  int* out = nullptr;
  void* arguments[] = {&out};
  for (int i = 0; i < 2; ++i) {
    must(cudaLaunchCooperativeKernel(address(&cooperative), dim3(4), dim3(64), arguments, 0, nullptr), "cooperative");
  }
  count(address(&cooperative), 2);
  graph();
  std::vector<std::thread> workers;
  for (int t = 0; t < 4; ++t) {
    workers.emplace_back([] {
      for (int i = 0; i < 50; ++i) threaded<<<1, 32>>>(nullptr);
      must(cudaStreamSynchronize(nullptr), "threaded");
    });
  }
  for (std::thread& worker : workers) worker.join();
  count(address(&threaded), 200);
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::printf("LAUNCHES {");
  bool first = true;
  for (const auto& [name, number] : launches) {
    std::printf("%s\"%s\":%d", first ? "" : ",", name.c_str(), number);
    first = false;
  }
  std::printf("}\n");
  return 0;
}
