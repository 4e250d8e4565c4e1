// Driver calls that are recorded: those in which a host thread may wait, those whose work the GPU tells the times of,
// allocations, and edges between streams. Stored in the flight file by number: append only.
#pragma once

#include <array>
#include <cstdint>

namespace gpuflight::event {

enum class ApiCall : std::uint32_t {
  kNone = 0,
  kCtxSynchronize,
  kStreamSynchronize,
  kEventSynchronize,
  kMemcpy,
  kMemcpyHtoD,
  kMemcpyDtoH,
  kMemcpyDtoD,
  kMemcpyPeer,
  kMemcpy2D,
  kMemcpy3D,
  kMemFree,
  kMemcpyAsync,
  kMemcpyHtoDAsync,
  kMemcpyDtoHAsync,
  kMemcpyDtoDAsync,
  kMemcpyPeerAsync,
  kMemcpy2DAsync,
  kMemcpy3DAsync,
  kMemcpy2DUnaligned,
  kMemcpyAtoD,
  kMemcpyDtoA,
  kMemcpyAtoH,
  kMemcpyHtoA,
  kMemcpyAtoA,
  kMemcpyHtoAAsync,
  kMemcpyAtoHAsync,
  kMemcpy3DPeer,
  kMemcpy3DPeerAsync,
  kMemsetD8,
  kMemsetD16,
  kMemsetD32,
  kMemsetD2D8,
  kMemsetD2D16,
  kMemsetD2D32,
  kMemsetD8Async,
  kMemsetD16Async,
  kMemsetD32Async,
  kMemsetD2D8Async,
  kMemsetD2D16Async,
  kMemsetD2D32Async,
  kMemAlloc,
  kMemAllocPitch,
  kMemAllocManaged,
  kMemAllocAsync,
  kMemAllocFromPoolAsync,
  kMemFreeAsync,
  kMemAllocHost,
  kMemHostAlloc,
  kMemFreeHost,
  kMemHostRegister,
  kMemHostUnregister,
  kMemCreate,
  kMemRelease,
  kMemMap,
  kMemUnmap,
  kEventRecord,
  kEventRecordWithFlags,
  kStreamWaitEvent,
  kMemPrefetchAsync,
};
inline constexpr int kApiCallCount = 60;

// What becomes of the record: sync_event; api_event, or memcpy_event and memset_event once the GPU has told its times;
// memory_event; stream_edge.
enum class ApiKind : std::uint8_t { kSync, kCopy, kFree, kFill, kAlloc, kEdge, kOther };

struct ApiCallFacts {
  const char* name;
  ApiKind kind;
};

inline constexpr std::array<ApiCallFacts, kApiCallCount> kApiCalls = {{
    {"", ApiKind::kSync},
    {"cuCtxSynchronize", ApiKind::kSync},
    {"cuStreamSynchronize", ApiKind::kSync},
    {"cuEventSynchronize", ApiKind::kSync},
    {"cuMemcpy", ApiKind::kCopy},
    {"cuMemcpyHtoD", ApiKind::kCopy},
    {"cuMemcpyDtoH", ApiKind::kCopy},
    {"cuMemcpyDtoD", ApiKind::kCopy},
    {"cuMemcpyPeer", ApiKind::kCopy},
    {"cuMemcpy2D", ApiKind::kCopy},
    {"cuMemcpy3D", ApiKind::kCopy},
    {"cuMemFree", ApiKind::kFree},
    {"cuMemcpyAsync", ApiKind::kCopy},
    {"cuMemcpyHtoDAsync", ApiKind::kCopy},
    {"cuMemcpyDtoHAsync", ApiKind::kCopy},
    {"cuMemcpyDtoDAsync", ApiKind::kCopy},
    {"cuMemcpyPeerAsync", ApiKind::kCopy},
    {"cuMemcpy2DAsync", ApiKind::kCopy},
    {"cuMemcpy3DAsync", ApiKind::kCopy},
    {"cuMemcpy2DUnaligned", ApiKind::kCopy},
    {"cuMemcpyAtoD", ApiKind::kCopy},
    {"cuMemcpyDtoA", ApiKind::kCopy},
    {"cuMemcpyAtoH", ApiKind::kCopy},
    {"cuMemcpyHtoA", ApiKind::kCopy},
    {"cuMemcpyAtoA", ApiKind::kCopy},
    {"cuMemcpyHtoAAsync", ApiKind::kCopy},
    {"cuMemcpyAtoHAsync", ApiKind::kCopy},
    {"cuMemcpy3DPeer", ApiKind::kCopy},
    {"cuMemcpy3DPeerAsync", ApiKind::kCopy},
    {"cuMemsetD8", ApiKind::kFill},
    {"cuMemsetD16", ApiKind::kFill},
    {"cuMemsetD32", ApiKind::kFill},
    {"cuMemsetD2D8", ApiKind::kFill},
    {"cuMemsetD2D16", ApiKind::kFill},
    {"cuMemsetD2D32", ApiKind::kFill},
    {"cuMemsetD8Async", ApiKind::kFill},
    {"cuMemsetD16Async", ApiKind::kFill},
    {"cuMemsetD32Async", ApiKind::kFill},
    {"cuMemsetD2D8Async", ApiKind::kFill},
    {"cuMemsetD2D16Async", ApiKind::kFill},
    {"cuMemsetD2D32Async", ApiKind::kFill},
    {"cuMemAlloc", ApiKind::kAlloc},
    {"cuMemAllocPitch", ApiKind::kAlloc},
    {"cuMemAllocManaged", ApiKind::kAlloc},
    {"cuMemAllocAsync", ApiKind::kAlloc},
    {"cuMemAllocFromPoolAsync", ApiKind::kAlloc},
    {"cuMemFreeAsync", ApiKind::kFree},
    {"cuMemAllocHost", ApiKind::kAlloc},
    {"cuMemHostAlloc", ApiKind::kAlloc},
    {"cuMemFreeHost", ApiKind::kFree},
    {"cuMemHostRegister", ApiKind::kAlloc},
    {"cuMemHostUnregister", ApiKind::kFree},
    {"cuMemCreate", ApiKind::kAlloc},
    {"cuMemRelease", ApiKind::kFree},
    {"cuMemMap", ApiKind::kAlloc},
    {"cuMemUnmap", ApiKind::kFree},
    {"cuEventRecord", ApiKind::kEdge},
    {"cuEventRecordWithFlags", ApiKind::kEdge},
    {"cuStreamWaitEvent", ApiKind::kEdge},
    {"cuMemPrefetchAsync", ApiKind::kOther},
}};

constexpr const ApiCallFacts& facts(ApiCall call) {
  const auto i = static_cast<std::uint32_t>(call);
  return kApiCalls[i < kApiCallCount ? i : 0];
}

}  // namespace gpuflight::event
