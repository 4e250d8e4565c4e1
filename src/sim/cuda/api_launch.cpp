// Every way to launch a kernel. All end in run_launch.
#include "sim/cuda/trace.h"

using namespace gpuflight::sim;

namespace {

// Everything a launch form can say, in driver terms.
struct LaunchCall {
  CUfunction f = nullptr;
  unsigned grid[3], block[3];
  unsigned shared = 0;
  CUstream stream = nullptr;
  bool per_thread = false;  // what a null stream means
  bool cooperative = false;
  const CUlaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

void read_attributes(const LaunchCall& call, KernelLaunch& launch) {
  for (unsigned i = 0; i < call.attribute_count; ++i) {
    const CUlaunchAttribute& a = call.attributes[i];
    switch (a.id) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        launch.cluster[0] = a.value.clusterDim.x;
        launch.cluster[1] = a.value.clusterDim.y;
        launch.cluster[2] = a.value.clusterDim.z;
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: launch.cooperative = a.value.cooperative != 0; break;
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        launch.carveout = static_cast<int>(a.value.sharedMemCarveout);
        break;
      default: break;  // changes nothing that is modelled here
    }
  }
}

CUresult launch(const LaunchCall& call, std::uint32_t correlation) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  KernelLaunch launch;
  launch.state = kernel_state(call.f);
  if (launch.state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, call.stream, call.per_thread, &stream)) return error;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = call.grid[i];
    launch.block[i] = call.block[i];
    launch.cluster[i] = static_cast<unsigned>(launch.state->image.required_cluster[i]);
  }
  launch.dynamic_shared_bytes = call.shared;
  launch.cooperative = call.cooperative;
  if (call.attribute_count != 0) read_attributes(call, launch);
  return run_launch(*stream->context, *stream, launch, correlation, call.f);
}

CUresult launch_config(const CUlaunchConfig* config, CUfunction f, bool per_thread, std::uint32_t correlation) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchCall call{f,
                  {config->gridDimX, config->gridDimY, config->gridDimZ},
                  {config->blockDimX, config->blockDimY, config->blockDimZ},
                  config->sharedMemBytes,
                  config->hStream,
                  per_thread,
                  false,
                  config->attrs,
                  config->numAttrs};
  return launch(call, correlation);
}

CUresult launch_on_devices(const CUDA_LAUNCH_PARAMS* list, unsigned count, std::uint32_t correlation) {
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    // The default streams are refused: every launch must be on a stream of its own device.
    if (driver().streams.find(p.hStream) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const LaunchCall call{p.function,
                          {p.gridDimX, p.gridDimY, p.gridDimZ},
                          {p.blockDimX, p.blockDimY, p.blockDimZ},
                          p.sharedMemBytes,
                          p.hStream,
                          false,
                          true,
                          nullptr,
                          0};
    if (const CUresult error = launch(call, correlation)) return error;
  }
  return CUDA_SUCCESS;
}

// Block and shared memory come from what cuFuncSetBlockShape and cuFuncSetSharedSize left in the function.
CUresult launch_legacy(CUfunction f, int width, int height, CUstream stream, std::uint32_t correlation) {
  const Function* function = driver().functions.find(f);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  LaunchCall call{};
  call.f = f;
  call.grid[0] = static_cast<unsigned>(width);
  call.grid[1] = static_cast<unsigned>(height);
  call.grid[2] = 1;
  for (int i = 0; i < 3; ++i) call.block[i] = static_cast<unsigned>(function->block_shape[i]);
  call.shared = function->shared_size;
  call.stream = stream;
  return launch(call, correlation);
}

Function* function_of(CUfunction f) { return driver().functions.find(f); }

}  // namespace

// The plain and the per-thread-default-stream form of one API.
#define SIM_LAUNCH_KERNEL(NAME, PER_THREAD)                                                                           \
  CUresult CUDAAPI NAME(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX,    \
                        unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream,            \
                        void** kernelParams, void** extra) {                                                          \
    SIM_TRACED_LAUNCH(NAME, f,                                                                                        \
                      (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,     \
                       kernelParams, extra),                                                                          \
                      {                                                                                               \
                        return launch({f, {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ},          \
                                       sharedMemBytes, hStream, PER_THREAD, false, nullptr, 0},                       \
                                      call.correlation);                                                              \
                      });                                                                                             \
  }
#define SIM_LAUNCH_EX(NAME, PER_THREAD)                                                                               \
  CUresult CUDAAPI NAME(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {              \
    SIM_TRACED_LAUNCH(NAME, f, (config, f, kernelParams, extra),                                                      \
                      { return launch_config(config, f, PER_THREAD, call.correlation); });                            \
  }
#define SIM_LAUNCH_COOPERATIVE(NAME, PER_THREAD)                                                                      \
  CUresult CUDAAPI NAME(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX,    \
                        unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream,            \
                        void** kernelParams) {                                                                        \
    SIM_TRACED_LAUNCH(NAME, f,                                                                                        \
                      (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,     \
                       kernelParams),                                                                                 \
                      {                                                                                               \
                        return launch({f, {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ},          \
                                       sharedMemBytes, hStream, PER_THREAD, true, nullptr, 0},                        \
                                      call.correlation);                                                              \
                      });                                                                                             \
  }

extern "C" {

SIM_LAUNCH_KERNEL(cuLaunchKernel, false)
SIM_LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)
SIM_LAUNCH_EX(cuLaunchKernelEx, false)
SIM_LAUNCH_EX(cuLaunchKernelEx_ptsz, true)
SIM_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
SIM_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList, unsigned int numDevices,
                                                      unsigned int flags) {
  const CUfunction first = launchParamsList != nullptr && numDevices > 0 ? launchParamsList[0].function : nullptr;
  SIM_TRACED_LAUNCH(cuLaunchCooperativeKernelMultiDevice, first, (launchParamsList, numDevices, flags),
                    { return launch_on_devices(launchParamsList, numDevices, call.correlation); });
}

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  SIM_TRACED(cuFuncSetBlockShape, (hfunc, x, y, z), {
    Function* function = function_of(hfunc);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    function->block_shape = {x, y, z};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  SIM_TRACED(cuFuncSetSharedSize, (hfunc, bytes), {
    Function* function = function_of(hfunc);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    function->shared_size = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  SIM_TRACED(cuParamSetSize, (hfunc, numbytes),
             { return function_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult CUDAAPI cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  SIM_TRACED(cuParamSeti, (hfunc, offset, value),
             { return function_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult CUDAAPI cuParamSetf(CUfunction hfunc, int offset, float value) {
  SIM_TRACED(cuParamSetf, (hfunc, offset, value),
             { return function_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult CUDAAPI cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  SIM_TRACED(cuParamSetv, (hfunc, offset, ptr, numbytes),
             { return function_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult CUDAAPI cuLaunch(CUfunction f) {
  SIM_TRACED_LAUNCH(cuLaunch, f, (f), { return launch_legacy(f, 1, 1, nullptr, call.correlation); });
}

CUresult CUDAAPI cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  SIM_TRACED_LAUNCH(cuLaunchGrid, f, (f, grid_width, grid_height),
                    { return launch_legacy(f, grid_width, grid_height, nullptr, call.correlation); });
}

CUresult CUDAAPI cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  SIM_TRACED_LAUNCH(cuLaunchGridAsync, f, (f, grid_width, grid_height, hStream),
                    { return launch_legacy(f, grid_width, grid_height, hStream, call.correlation); });
}

}  // extern "C"
