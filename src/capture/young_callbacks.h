// CUPTI's numbers of driver calls that are younger than the oldest headers that this is built with, and the parameters of
// those that are read. The numbers never change; an older CUPTI refuses them.
#pragma once

#include <cstddef>
#include <cuda.h>
#include <cupti.h>

namespace gpuflight::capture {

inline constexpr CUpti_CallbackId kGraphExecNodeSetParams = 714;
inline constexpr CUpti_CallbackId kMemPrefetchAsyncV2 = 716, kMemPrefetchAsyncV2PerThread = 717;
inline constexpr CUpti_CallbackId kBeginCaptureToGraph = 720, kBeginCaptureToGraphPerThread = 721;
inline constexpr CUpti_CallbackId kCtxSynchronizeV2 = 800;

struct MemLocation {
  int type, id;
};
struct MemPrefetchAsyncV2Params {
  CUdeviceptr devPtr;
  std::size_t count;
  MemLocation location;
  unsigned flags;
  CUstream hStream;
};
struct CtxSynchronizeV2Params {
  CUcontext ctx;
};

}  // namespace gpuflight::capture
