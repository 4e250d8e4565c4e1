// Forms of GPU work that need a real device: streams of every kind, graphs with child graphs and conditional nodes,
// launches by the device, copies of every shape, pools, green contexts; a second device where there is one. Says what it
// did, as one JSON line, for the check `timeline_forms`.
//
//   timeline_forms [--two-devices]
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

std::map<std::string, long> ran;                    // kernels by name
std::map<std::string, std::pair<long, long>> copied;  // count and bytes by kind as the log has it
std::map<std::string, std::string> skipped;          // what this machine refused, and why
long filled = 0, filled_bytes = 0, graph_launches = 0;

#define MUST(call)                                                                                    \
  do {                                                                                                \
    const auto result_ = (call);                                                                      \
    if (static_cast<int>(result_) != 0) {                                                             \
      std::fprintf(stderr, "timeline_forms: line %d: %s gave %d\n", __LINE__, #call, static_cast<int>(result_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

void count_copy(const char* kind, std::size_t bytes) {
  ++copied[kind].first;
  copied[kind].second += static_cast<long>(bytes);
}
void count_fill(std::size_t bytes) {
  ++filled;
  filled_bytes += static_cast<long>(bytes);
}

}  // namespace

extern "C" {
__global__ void tf_default(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_per_thread(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_non_blocking(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_priority(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_outer(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_inner(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_updated(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_never_launched_before(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_condition(cudaGraphConditionalHandle handle, int* left, int start) {
  if (start >= 0) *left = start;
  cudaGraphSetConditional(handle, (*left)-- > 0 ? 1 : 0);
}
__global__ void tf_body(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_child(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_parent(int* p) {
  tf_child<<<1, 32>>>(p);
  tf_child<<<1, 32>>>(p);
}
__global__ void tf_cluster(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_green(int* p) { if (p != nullptr) *p = 1; }
__global__ void tf_second_device(int* p) { if (p != nullptr) *p = 1; }
}

namespace {

int* device_int;
char *device_bytes, *device_more, *pinned;
std::vector<char> pageable(1 << 20);
constexpr std::size_t kBytes = 1 << 20;

template <class Kernel>
void run(Kernel kernel, const char* name, cudaStream_t stream, int times = 1) {
  for (int i = 0; i < times; ++i) {
    kernel<<<4, 64, 0, stream>>>(device_int);
    MUST(cudaGetLastError());
    ++ran[name];
  }
}

void streams() {
  run(tf_default, "tf_default", nullptr, 3);
  run(tf_per_thread, "tf_per_thread", cudaStreamPerThread, 3);
  cudaStream_t a, b;
  MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  run(tf_non_blocking, "tf_non_blocking", a, 3);
  int least = 0, greatest = 0;
  MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  MUST(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, greatest));
  run(tf_priority, "tf_priority", b, 3);
  MUST(cudaDeviceSynchronize());
}

cudaKernelNodeParams node_of(void* kernel, unsigned grid, void** arguments) {
  cudaKernelNodeParams p{};
  p.func = kernel;
  p.gridDim = dim3(grid);
  p.blockDim = dim3(64);
  p.kernelParams = arguments;
  return p;
}

void child_graphs(cudaStream_t stream) {
  void* arguments[] = {&device_int};
  cudaGraph_t inner, outer;
  MUST(cudaGraphCreate(&inner, 0));
  cudaGraphNode_t k, fill, copy, child, first, last;
  auto params = node_of(reinterpret_cast<void*>(tf_inner), 2, arguments);
  MUST(cudaGraphAddKernelNode(&k, inner, nullptr, 0, &params));
  cudaMemsetParams set{};
  set.dst = device_bytes;
  set.elementSize = 1;
  set.width = kBytes;
  set.height = 1;
  MUST(cudaGraphAddMemsetNode(&fill, inner, &k, 1, &set));
  MUST(cudaGraphAddMemcpyNode1D(&copy, inner, &fill, 1, device_more, device_bytes, kBytes, cudaMemcpyDeviceToDevice));
  MUST(cudaGraphCreate(&outer, 0));
  params = node_of(reinterpret_cast<void*>(tf_outer), 3, arguments);
  MUST(cudaGraphAddKernelNode(&first, outer, nullptr, 0, &params));
  MUST(cudaGraphAddChildGraphNode(&child, outer, &first, 1, inner));
  params = node_of(reinterpret_cast<void*>(tf_updated), 5, arguments);
  MUST(cudaGraphAddKernelNode(&last, outer, &child, 1, &params));
  for (int round = 0; round < 2; ++round) {  // instantiated anew
    cudaGraphExec_t exec;
    MUST(cudaGraphInstantiate(&exec, outer, 0));
    for (int i = 0; i < 6; ++i) {
      if (i == 3) {
        params = node_of(reinterpret_cast<void*>(tf_updated), 7, arguments);
        MUST(cudaGraphExecKernelNodeSetParams(exec, last, &params));
      }
      MUST(cudaGraphLaunch(exec, stream));
      ++graph_launches;
      ++ran["tf_outer"];
      ++ran["tf_inner"];
      ++ran["tf_updated"];
      count_fill(kBytes);
      count_copy("dtod", kBytes);
    }
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy(exec));
  }
}

// while (left-- > 0) body
void conditional_graph(cudaStream_t stream) {
  constexpr int kLoops = 3, kLaunches = 4;
  int* left = device_int + 1;
  cudaGraph_t graph;
  MUST(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  if (const auto result = cudaGraphConditionalHandleCreate(&handle, graph, 0, 0); result != cudaSuccess) {
    skipped["conditional"] = cudaGetErrorString(result);
    return;
  }
  int start = kLoops, again = -1;
  void* first_arguments[] = {&handle, &left, &start};
  cudaGraphNode_t first, loop, body, next;
  auto params = node_of(reinterpret_cast<void*>(tf_condition), 1, first_arguments);
  params.blockDim = dim3(1);
  MUST(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &params));
  cudaGraphNodeParams node{};
  node.type = cudaGraphNodeTypeConditional;
  node.conditional.handle = handle;
  node.conditional.type = cudaGraphCondTypeWhile;
  node.conditional.size = 1;
#if CUDART_VERSION >= 13000
  MUST(cudaGraphAddNode(&loop, graph, &first, nullptr, 1, &node));
#else
  MUST(cudaGraphAddNode(&loop, graph, &first, 1, &node));
#endif
  cudaGraph_t inside = node.conditional.phGraph_out[0];
  void* arguments[] = {&device_int};
  params = node_of(reinterpret_cast<void*>(tf_body), 1, arguments);
  MUST(cudaGraphAddKernelNode(&body, inside, nullptr, 0, &params));
  void* next_arguments[] = {&handle, &left, &again};
  params = node_of(reinterpret_cast<void*>(tf_condition), 1, next_arguments);
  params.blockDim = dim3(1);
  MUST(cudaGraphAddKernelNode(&next, inside, &body, 1, &params));
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < kLaunches; ++i) MUST(cudaGraphLaunch(exec, stream));
  graph_launches += kLaunches;
  ran["tf_body"] += kLaunches * kLoops;
  ran["tf_condition"] += kLaunches * (1 + kLoops);
  MUST(cudaStreamSynchronize(stream));
}

void captured_graph(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  tf_never_launched_before<<<2, 32, 0, stream>>>(device_int);
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 5; ++i) MUST(cudaGraphLaunch(exec, stream));
  graph_launches += 5;
  ran["tf_never_launched_before"] += 5;
  // Memory that a graph allocates and frees.
  cudaGraph_t alloc_graph;
  MUST(cudaGraphCreate(&alloc_graph, 0));
  cudaMemAllocNodeParams alloc{};
  alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  alloc.poolProps.location = {cudaMemLocationTypeDevice, 0};
  alloc.bytesize = kBytes;
  cudaGraphNode_t a, f;
  MUST(cudaGraphAddMemAllocNode(&a, alloc_graph, nullptr, 0, &alloc));
  MUST(cudaGraphAddMemFreeNode(&f, alloc_graph, &a, 1, alloc.dptr));
  cudaGraphExec_t alloc_exec;
  MUST(cudaGraphInstantiate(&alloc_exec, alloc_graph, 0));
  MUST(cudaGraphLaunch(alloc_exec, stream));
  ++graph_launches;
  MUST(cudaStreamSynchronize(stream));
}

void copies(cudaStream_t stream) {
  MUST(cudaMemcpy(device_bytes, pageable.data(), kBytes, cudaMemcpyHostToDevice));
  count_copy("htod", kBytes);
  MUST(cudaMemcpyAsync(device_bytes, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  count_copy("htod", kBytes);
  MUST(cudaMemcpyAsync(pinned, device_bytes, kBytes, cudaMemcpyDeviceToHost, stream));
  count_copy("dtoh", kBytes);
  MUST(cudaMemcpy2DAsync(device_bytes, 1024, pinned, 1024, 512, 256, cudaMemcpyHostToDevice, stream));
  count_copy("htod", 512 * 256);
  MUST(cudaMemcpyAsync(device_more, device_bytes, kBytes, cudaMemcpyDeviceToDevice, stream));
  count_copy("dtod", kBytes);
  MUST(cudaMemsetAsync(device_bytes, 7, kBytes, stream));
  count_fill(kBytes);
  MUST(cudaMemset2DAsync(device_bytes, 1024, 7, 512, 256, stream));
  count_fill(512 * 256);
  cudaArray_t array;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  MUST(cudaMallocArray(&array, &format, 256, 64));
  MUST(cudaMemcpy2DToArrayAsync(array, 0, 0, pinned, 1024, 1024, 64, cudaMemcpyHostToDevice, stream));
  count_copy("htoa", 1024 * 64);
  MUST(cudaMemcpy2DFromArrayAsync(device_bytes, 1024, array, 0, 0, 1024, 64, cudaMemcpyDeviceToDevice, stream));
  count_copy("atod", 1024 * 64);
#if CUDART_VERSION >= 13000
  void* to[] = {device_bytes, device_more};
  const void* from[] = {pinned, pinned + kBytes / 2};
  std::size_t sizes[] = {4096, 8192}, first[] = {0};
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  const auto result = cudaMemcpyBatchAsync(to, from, sizes, 2, &attributes, first, 1, stream);
  if (result == cudaSuccess) {
    count_copy("htod", 4096 + 8192);  // CUPTI 13.0 has one record of a batch
  } else {
    skipped["batch"] = cudaGetErrorString(result);
    cudaGetLastError();
  }
#endif
  MUST(cudaStreamSynchronize(stream));
}

void memory(cudaStream_t stream) {
  void *a, *b;
  MUST(cudaMallocAsync(&a, kBytes, stream));
  MUST(cudaFreeAsync(a, stream));
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  MUST(cudaMemPoolCreate(&pool, &props));
  MUST(cudaMallocFromPoolAsync(&b, 2 * kBytes, pool, stream));
  MUST(cudaFreeAsync(b, stream));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaMemPoolDestroy(pool));
  MUST(cudaHostRegister(pageable.data(), pageable.size(), 0));
  MUST(cudaHostUnregister(pageable.data()));
  MUST(cudaMallocManaged(&a, 3 * kBytes));
  MUST(cudaFree(a));
}

void clusters(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(8);
  config.blockDim = dim3(64);
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {2, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  for (int i = 0; i < 3; ++i) MUST(cudaLaunchKernelEx(&config, tf_cluster, device_int));
  ran["tf_cluster"] += 3;
  MUST(cudaStreamSynchronize(stream));
}

void green_context() {
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUdevResource all{}, part{}, rest{};
  unsigned groups = 1;
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUstream stream;
  CUresult result = cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) result = cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, 16);
  if (result == CUDA_SUCCESS) result = cuDevResourceGenerateDesc(&description, &part, 1);
  if (result == CUDA_SUCCESS) result = cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
  if (result == CUDA_SUCCESS) result = cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0);
  if (result != CUDA_SUCCESS) {
    const char* text = nullptr;
    cuGetErrorString(result, &text);
    skipped["green"] = text != nullptr ? text : "?";
    return;
  }
  run(tf_green, "tf_green", stream, 4);
  MUST(cudaStreamSynchronize(stream));
}

void second_device() {
  cudaStream_t stream;
  char* there;
  MUST(cudaSetDevice(1));
  MUST(cudaStreamCreate(&stream));
  MUST(cudaMalloc(&there, kBytes));
  int* there_int = reinterpret_cast<int*>(there);
  for (int i = 0; i < 5; ++i) tf_second_device<<<4, 64, 0, stream>>>(there_int);
  ran["tf_second_device"] += 5;
  MUST(cudaMemcpyPeerAsync(there, 1, device_bytes, 0, kBytes, stream));
  MUST(cudaMemcpyAsync(device_bytes, there, kBytes, cudaMemcpyDefault, stream));
  count_copy("ptop", kBytes);
  count_copy("ptop", kBytes);
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaSetDevice(0));
  run(tf_default, "tf_default", nullptr, 2);
  MUST(cudaDeviceSynchronize());
}

template <class Map, class Value>
void print_map(const char* key, const Map& map, Value value) {
  std::printf("\"%s\":{", key);
  bool first = true;
  for (const auto& [name, what] : map) {
    std::printf("%s\"%s\":%s", first ? "" : ",", name.c_str(), value(what).c_str());
    first = false;
  }
  std::printf("},");
}

}  // namespace

int main(int argc, char** argv) {
  const bool two = argc > 1 && std::strcmp(argv[1], "--two-devices") == 0;
  MUST(cudaMalloc(&device_int, 64));
  MUST(cudaMalloc(&device_bytes, kBytes));
  MUST(cudaMalloc(&device_more, kBytes));
  MUST(cudaMallocHost(&pinned, kBytes));
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  streams();
  child_graphs(stream);
  captured_graph(stream);
  copies(stream);
  memory(stream);
  clusters(stream);
  green_context();
  conditional_graph(stream);
  tf_parent<<<1, 1, 0, stream>>>(device_int);
  MUST(cudaStreamSynchronize(stream));
  ++ran["tf_parent"];
  ran["tf_child"] += 2;
  if (two) second_device();
  std::printf("{");
  print_map("ran", ran, [](long n) { return std::to_string(n); });
  print_map("copied", copied, [](const auto& c) {
    return "[" + std::to_string(c.first) + "," + std::to_string(c.second) + "]";
  });
  print_map("skipped", skipped, [](const std::string& why) { return "\"" + why + "\""; });
  std::printf("\"filled\":[%ld,%ld],\"graph_launches\":%ld}\n", filled, filled_bytes, graph_launches);
  return 0;
}
