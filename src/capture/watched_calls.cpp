#include "capture/watched_calls.h"

#include <array>
#include <cstddef>
#include <type_traits>

#include "capture/young_callbacks.h"

namespace gpuflight::capture {
namespace {

using event::ApiCall;

// Gone from the newest headers, and sent by older drivers.
constexpr CUpti_CallbackId kMemcpyV2 = 248, kMemHostAllocV2 = 271;

constexpr std::size_t kSynchronized = offsetof(cuStreamSynchronize_params, hStream);

struct Row {
  CUpti_CallbackId id;
  ApiCall call;
  bool per_thread_default;
  bool may_wait;
  std::size_t stream_at;
};

// Pasted at once: what is passed on as an argument of its own would be replaced first, since cuda.h has macros of the
// same names (cuMemHostRegister stands for cuMemHostRegister_v2).
#define WAITS(name, call) {CUPTI_DRIVER_TRACE_CBID_##name, ApiCall::call, false, true, WatchedCall::kNoStream}
#define WAIT_BOTH(name, call)                                                                        \
  {CUPTI_DRIVER_TRACE_CBID_##name, ApiCall::call, false, true, WatchedCall::kNoStream}, {            \
    CUPTI_DRIVER_TRACE_CBID_##name##_ptds, ApiCall::call, true, true, WatchedCall::kNoStream         \
  }
#define ON_STREAM_BOTH(name, call)                                                                   \
  {CUPTI_DRIVER_TRACE_CBID_##name, ApiCall::call, false, false, offsetof(name##_params, hStream)}, { \
    CUPTI_DRIVER_TRACE_CBID_##name##_ptsz, ApiCall::call, true, false, offsetof(name##_params, hStream) \
  }

// Forms of before CUDA 3.2 are not here: their addresses have 32 bits.
constexpr Row kRows[] = {
    WAITS(cuCtxSynchronize, kCtxSynchronize),
    {kCtxSynchronizeV2, ApiCall::kCtxSynchronize, false, true, WatchedCall::kContext},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, ApiCall::kStreamSynchronize, false, true, kSynchronized},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz, ApiCall::kStreamSynchronize, true, true, kSynchronized},
    WAITS(cuEventSynchronize, kEventSynchronize),

    WAIT_BOTH(cuMemcpy, kMemcpy),
    {kMemcpyV2, ApiCall::kMemcpy, false, true, WatchedCall::kNoStream},
    WAIT_BOTH(cuMemcpyHtoD_v2, kMemcpyHtoD),
    WAIT_BOTH(cuMemcpyDtoH_v2, kMemcpyDtoH),
    WAIT_BOTH(cuMemcpyDtoD_v2, kMemcpyDtoD),
    WAIT_BOTH(cuMemcpyPeer, kMemcpyPeer),
    WAIT_BOTH(cuMemcpy2D_v2, kMemcpy2D),
    WAIT_BOTH(cuMemcpy2DUnaligned_v2, kMemcpy2DUnaligned),
    WAIT_BOTH(cuMemcpy3D_v2, kMemcpy3D),
    WAIT_BOTH(cuMemcpy3DPeer, kMemcpy3DPeer),
    WAIT_BOTH(cuMemcpyAtoD_v2, kMemcpyAtoD),
    WAIT_BOTH(cuMemcpyDtoA_v2, kMemcpyDtoA),
    WAIT_BOTH(cuMemcpyAtoH_v2, kMemcpyAtoH),
    WAIT_BOTH(cuMemcpyHtoA_v2, kMemcpyHtoA),
    WAIT_BOTH(cuMemcpyAtoA_v2, kMemcpyAtoA),
    ON_STREAM_BOTH(cuMemcpyAsync, kMemcpyAsync),
    ON_STREAM_BOTH(cuMemcpyHtoDAsync_v2, kMemcpyHtoDAsync),
    ON_STREAM_BOTH(cuMemcpyDtoHAsync_v2, kMemcpyDtoHAsync),
    ON_STREAM_BOTH(cuMemcpyDtoDAsync_v2, kMemcpyDtoDAsync),
    ON_STREAM_BOTH(cuMemcpyPeerAsync, kMemcpyPeerAsync),
    ON_STREAM_BOTH(cuMemcpy2DAsync_v2, kMemcpy2DAsync),
    ON_STREAM_BOTH(cuMemcpy3DAsync_v2, kMemcpy3DAsync),
    ON_STREAM_BOTH(cuMemcpy3DPeerAsync, kMemcpy3DPeerAsync),
    ON_STREAM_BOTH(cuMemcpyHtoAAsync_v2, kMemcpyHtoAAsync),
    ON_STREAM_BOTH(cuMemcpyAtoHAsync_v2, kMemcpyAtoHAsync),

    WAIT_BOTH(cuMemsetD8_v2, kMemsetD8),
    WAIT_BOTH(cuMemsetD16_v2, kMemsetD16),
    WAIT_BOTH(cuMemsetD32_v2, kMemsetD32),
    WAIT_BOTH(cuMemsetD2D8_v2, kMemsetD2D8),
    WAIT_BOTH(cuMemsetD2D16_v2, kMemsetD2D16),
    WAIT_BOTH(cuMemsetD2D32_v2, kMemsetD2D32),
    ON_STREAM_BOTH(cuMemsetD8Async, kMemsetD8Async),
    ON_STREAM_BOTH(cuMemsetD16Async, kMemsetD16Async),
    ON_STREAM_BOTH(cuMemsetD32Async, kMemsetD32Async),
    ON_STREAM_BOTH(cuMemsetD2D8Async, kMemsetD2D8Async),
    ON_STREAM_BOTH(cuMemsetD2D16Async, kMemsetD2D16Async),
    ON_STREAM_BOTH(cuMemsetD2D32Async, kMemsetD2D32Async),

    WAITS(cuMemAlloc_v2, kMemAlloc),
    WAITS(cuMemAllocPitch_v2, kMemAllocPitch),
    WAITS(cuMemAllocManaged, kMemAllocManaged),
    WAITS(cuMemFree_v2, kMemFree),
    ON_STREAM_BOTH(cuMemAllocAsync, kMemAllocAsync),
    ON_STREAM_BOTH(cuMemAllocFromPoolAsync, kMemAllocFromPoolAsync),
    ON_STREAM_BOTH(cuMemFreeAsync, kMemFreeAsync),
    WAITS(cuMemAllocHost_v2, kMemAllocHost),
    WAITS(cuMemHostAlloc, kMemHostAlloc),
    {kMemHostAllocV2, ApiCall::kMemHostAlloc, false, true, WatchedCall::kNoStream},
    WAITS(cuMemFreeHost, kMemFreeHost),
    WAITS(cuMemHostRegister, kMemHostRegister),
    WAITS(cuMemHostRegister_v2, kMemHostRegister),
    WAITS(cuMemHostUnregister, kMemHostUnregister),
    WAITS(cuMemCreate, kMemCreate),
    WAITS(cuMemRelease, kMemRelease),
    WAITS(cuMemMap, kMemMap),
    WAITS(cuMemUnmap, kMemUnmap),
    ON_STREAM_BOTH(cuMemPrefetchAsync, kMemPrefetchAsync),
    {kMemPrefetchAsyncV2, ApiCall::kMemPrefetchAsync, false, false, offsetof(MemPrefetchAsyncV2Params, hStream)},
    {kMemPrefetchAsyncV2PerThread, ApiCall::kMemPrefetchAsync, true, false,
     offsetof(MemPrefetchAsyncV2Params, hStream)},

    ON_STREAM_BOTH(cuEventRecord, kEventRecord),
    ON_STREAM_BOTH(cuEventRecordWithFlags, kEventRecordWithFlags),
    ON_STREAM_BOTH(cuStreamWaitEvent, kStreamWaitEvent),
};
#undef ON_STREAM_BOTH
#undef WAIT_BOTH
#undef WAITS

constexpr bool is_edge(const Row& row) { return event::facts(row.call).kind == event::ApiKind::kEdge; }

constexpr std::size_t highest_id() {
  std::size_t highest = 0;
  for (const Row& row : kRows) highest = row.id > highest ? row.id : highest;
  return highest;
}

constexpr auto kById = [] {
  std::array<WatchedCall, highest_id() + 1> table{};
  for (const Row& row : kRows) {
    table[row.id] = {static_cast<std::uint8_t>(row.call), static_cast<std::uint8_t>(row.stream_at),
                     row.per_thread_default, row.may_wait};
  }
  return table;
}();

constexpr std::size_t kEdges = [] {
  std::size_t n = 0;
  for (const Row& row : kRows) n += is_edge(row);
  return n;
}();

template <std::size_t N>
constexpr auto ids(bool edges) {
  std::array<CUpti_CallbackId, N> list{};
  std::size_t n = 0;
  for (const Row& row : kRows) {
    if (is_edge(row) == edges) list[n++] = row.id;
  }
  return list;
}
constexpr auto kEdgeIds = ids<kEdges>(true);
constexpr auto kOtherIds = ids<std::size(kRows) - kEdges>(false);

template <class Params>
const Params& as(const void* params) noexcept {
  return *static_cast<const Params*>(params);
}

std::uint64_t number(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

template <class T>
std::uint64_t written(const T* place) noexcept {
  if (place == nullptr) return 0;
  if constexpr (std::is_pointer_v<T>) {
    return number(*place);
  } else {
    return *place;
  }
}

}  // namespace

const WatchedCall* watched_call(CUpti_CallbackId id) noexcept {
  return id < kById.size() && kById[id].call != 0 ? &kById[id] : nullptr;
}

std::span<const CUpti_CallbackId> watched_ids() noexcept { return kOtherIds; }
std::span<const CUpti_CallbackId> edge_ids() noexcept { return kEdgeIds; }

MemoryArguments memory_arguments(ApiCall call, const void* params) noexcept {
  switch (call) {
    case ApiCall::kMemAlloc: return {0, as<cuMemAlloc_v2_params>(params).bytesize};
    case ApiCall::kMemAllocPitch: return {};  // the driver chooses the pitch
    case ApiCall::kMemAllocManaged: return {0, as<cuMemAllocManaged_params>(params).bytesize};
    case ApiCall::kMemAllocAsync: return {0, as<cuMemAllocAsync_params>(params).bytesize};
    case ApiCall::kMemAllocFromPoolAsync: {
      const auto& p = as<cuMemAllocFromPoolAsync_params>(params);
      return {0, p.bytesize, number(p.pool)};
    }
    case ApiCall::kMemAllocHost: return {0, as<cuMemAllocHost_v2_params>(params).bytesize};
    case ApiCall::kMemHostAlloc: return {0, as<cuMemHostAlloc_params>(params).bytesize};
    case ApiCall::kMemHostRegister: {
      const auto& p = as<cuMemHostRegister_v2_params>(params);
      return {number(p.p), p.bytesize};
    }
    case ApiCall::kMemCreate: return {0, as<cuMemCreate_params>(params).size};
    case ApiCall::kMemMap: {
      const auto& p = as<cuMemMap_params>(params);
      return {p.ptr, p.size, p.handle};
    }
    case ApiCall::kMemUnmap: {
      const auto& p = as<cuMemUnmap_params>(params);
      return {p.ptr, p.size};
    }
    case ApiCall::kMemFree: return {as<cuMemFree_v2_params>(params).dptr};
    case ApiCall::kMemFreeAsync: return {as<cuMemFreeAsync_params>(params).dptr};
    case ApiCall::kMemFreeHost: return {number(as<cuMemFreeHost_params>(params).p)};
    case ApiCall::kMemHostUnregister: return {number(as<cuMemHostUnregister_params>(params).p)};
    case ApiCall::kMemRelease: return {as<cuMemRelease_params>(params).handle};
    default: return {};
  }
}

MemoryArguments memory_result(ApiCall call, const void* params) noexcept {
  MemoryArguments result = memory_arguments(call, params);
  switch (call) {
    case ApiCall::kMemAlloc: result.address = written(as<cuMemAlloc_v2_params>(params).dptr); break;
    case ApiCall::kMemAllocPitch: {
      const auto& p = as<cuMemAllocPitch_v2_params>(params);
      result.address = written(p.dptr);
      result.bytes = written(p.pPitch) * p.Height;
      break;
    }
    case ApiCall::kMemAllocManaged: result.address = written(as<cuMemAllocManaged_params>(params).dptr); break;
    case ApiCall::kMemAllocAsync: result.address = written(as<cuMemAllocAsync_params>(params).dptr); break;
    case ApiCall::kMemAllocFromPoolAsync:
      result.address = written(as<cuMemAllocFromPoolAsync_params>(params).dptr);
      break;
    case ApiCall::kMemAllocHost: result.address = written(as<cuMemAllocHost_v2_params>(params).pp); break;
    case ApiCall::kMemHostAlloc: result.address = written(as<cuMemHostAlloc_params>(params).pp); break;
    case ApiCall::kMemCreate: {
      const auto& p = as<cuMemCreate_params>(params);
      result.address = written(p.handle);
      // Only now: the driver has found the pointer good.
      if (p.prop != nullptr && p.prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        result.device = p.prop->location.id;
      }
      break;
    }
    default: break;
  }
  return result;
}

std::uint64_t event_of(ApiCall call, const void* params) noexcept {
  switch (call) {
    case ApiCall::kEventRecord: return number(as<cuEventRecord_params>(params).hEvent);
    case ApiCall::kEventRecordWithFlags: return number(as<cuEventRecordWithFlags_params>(params).hEvent);
    case ApiCall::kStreamWaitEvent: return number(as<cuStreamWaitEvent_params>(params).hEvent);
    default: return 0;
  }
}

}  // namespace gpuflight::capture
