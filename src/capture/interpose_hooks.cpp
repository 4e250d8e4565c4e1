#include "capture/interpose_hooks.h"

#include <array>
#include <optional>
#include <type_traits>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include "capture/interpose_source.h"
#include "capture/launch_hit.h"
#include "capture/miss_guard.h"
#include "capture/young_callbacks.h"

// Some of what is hooked is deprecated, and used all the same.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace gpuflight::capture {
namespace {

using hooks::HookRow;

// A call of which only the status is looked at.
struct NoParams {};
struct SetNodeParams {
  CUgraphExec exec;
  CUgraphNode node;
  const void* params;
};

// What goes before the driver's function: the driver's own where it is known, else what finds it.
template <class Function>
Function* real_of(const HookRow* row) noexcept {
  return reinterpret_cast<Function*>(__atomic_load_n(&row->real, __ATOMIC_ACQUIRE));
}

// The jump to a hook acquires what turn_hooks has released, so a hook sees all that was written before. ThreadSanitizer
// does not see the jump and is told of it.
#if defined(__SANITIZE_THREAD__)
constinit char g_turned = 0;
void before_turn() noexcept { __tsan_release(&g_turned); }
void after_jump() noexcept { __tsan_acquire(&g_turned); }
#else
constexpr void before_turn() noexcept {}
constexpr void after_jump() noexcept {}
#endif

// Not noexcept, none of these: a thread that is cancelled inside the driver unwinds through them.
template <CUpti_CallbackId Id, class Params, class Function>
struct Hook;

// Any call: its arguments as CUPTI would lay them out, told of at entry and return.
template <CUpti_CallbackId Id, class Params, class... Args>
struct Hook<Id, Params, CUresult(Args...)> {
  static constinit inline HookRow* row = nullptr;

  static CUresult CUDAAPI call(Args... args) {
    after_jump();
    InterposeSource& source = *InterposeSource::current();
    CUpti_CallbackData data;
    Params params = [&] {
      if constexpr (std::is_same_v<Params, NoParams>) {
        return NoParams{};
      } else {
        return Params{args...};
      }
    }();
    const bool seen = source.begin(Id, row->name, &params, data);
    const CUresult result = real_of<CUresult(Args...)>(row)(args...);
    if (seen) source.end(Id, result, data);
    return result;
  }
};

// What a hooked launch needs of the process, on one cache line.
enum LaunchRow : std::uint8_t { kKernel, kKernelPerThread, kKernelEx, kKernelExPerThread, kLaunchRows };
struct alignas(64) LaunchLine {
  InterposeSource* source;
  LaunchRecorder* recorder;
  const HotPage* page;
  HookRow* rows[kLaunchRows];
  std::uint32_t dense_ns;      // enter_hit's
  std::int32_t state_distance;  // of t_thread_state from the thread pointer: the linker's own word for it is a line more
};
static_assert(sizeof(LaunchLine) == 64);
constinit LaunchLine g_line{};

[[gnu::always_inline]] inline ThreadState* state_of_this_thread() noexcept {
#if defined(__x86_64__)
  return *reinterpret_cast<ThreadState**>(static_cast<char*>(__builtin_thread_pointer()) + g_line.state_distance);
#else
  return this_thread_state();
#endif
}

// Once: later on launches read it at any time.
void set_line(InterposeSource& source) noexcept {
  if (g_line.source == &source) return;
  g_line.source = &source;
  g_line.recorder = &source.recorder();
  g_line.page = &source.page();
  g_line.dense_ns = source.times_each_call() || source.events() != nullptr ? 0 : kDenseNs;
#if defined(__x86_64__)
  g_line.state_distance = static_cast<std::int32_t>(reinterpret_cast<char*>(&t_thread_state) -
                                                    static_cast<char*>(__builtin_thread_pointer()));
#endif
}

// A launch that is no hit.
template <class Params, class Real>
CUresult launch_at_length(LaunchRow row, CUpti_CallbackId id, const Params& params, Real&& real) {
  InterposeSource& source = *g_line.source;
  CUpti_CallbackData data;
  const bool seen = source.begin(id, g_line.rows[row]->name, &params, data);
  const CUresult result = real();
  if (seen) source.end(id, result, data);
  return result;
}

constexpr std::uint32_t kind_of(LaunchRow row) noexcept {
  return ThreadState::stream_kind(row == kKernelPerThread || row == kKernelExPerThread);
}

// The thread's entry of a stream, which may be another's; null: the context is to be looked up.
template <LaunchRow Row>
[[gnu::always_inline]] inline ThreadState::StreamEntry* entry_of(ThreadState& thread, CUstream stream,
                                                                 std::uint32_t& context) noexcept {
  const bool of_any_context = ThreadState::is_default(stream);
  if (of_any_context) {
    context = g_line.source->known_context(thread);
    if (context == 0) [[unlikely]] return nullptr;
  }
  auto& entry = thread.streams[ThreadState::stream_slot(stream, context, kind_of(Row))];
  if (!of_any_context) context = entry.context_uid;
  return &entry;
}

// A launch in a burst, if it is `plain`. `real` calls the driver's function, `alone` does what needs more than that.
template <LaunchRow Row, CUpti_CallbackId Id, class Geometry, class Real, class Alone>
[[gnu::always_inline]] inline CUresult launch(const Geometry& geometry, CUfunction function, CUstream stream, bool plain,
                                              Real&& real, Alone&& alone) {
  const LaunchLine& line = g_line;
  const HotPage& page = *line.page;
  ThreadState* const thread = state_of_this_thread();
  if (thread == nullptr || thread->owner != line.recorder || !in_burst(page, *thread) || !plain) [[unlikely]] {
    return alone();
  }
  std::uint32_t context = 0;
  ThreadState::StreamEntry* const entry = entry_of<Row>(*thread, stream, context);
  if (entry == nullptr || !enter_shared(page, *thread, geometry, function, *entry, context, kind_of(Row))) [[unlikely]] {
    return alone();
  }
  const CUresult result = real();
  if (!return_shared(*thread, *entry, static_cast<std::int32_t>(result))) [[unlikely]] {
    line.source->end_hit(Id, line.rows[Row]->name, result);
  }
  return result;
}

// Likewise one whose time is read; `at_length` does all else.
template <LaunchRow Row, CUpti_CallbackId Id, class Geometry, class Real, class AtLength>
[[gnu::always_inline]] inline CUresult launch_alone(const Geometry& geometry, CUfunction function, CUstream stream,
                                                    bool plain, Real&& real, AtLength&& at_length) {
  const LaunchLine& line = g_line;
  const HotPage& page = *line.page;
  ThreadState* const thread = state_of_this_thread();
  if (page.recording.load(std::memory_order_relaxed) == 0 || thread == nullptr || thread->owner != line.recorder ||
      thread->inside || !plain) [[unlikely]] {
    return at_length();
  }
  std::uint32_t context = 0;
  ThreadState::StreamEntry* const entry = entry_of<Row>(*thread, stream, context);
  if (entry == nullptr ||
      !enter_hit(page, *thread, geometry, function, *entry, context, kind_of(Row), 0, line.dense_ns)) [[unlikely]] {
    return at_length();
  }
  const CUresult result = real();
  if (!return_hit(page, *thread, static_cast<std::int32_t>(result),
                  [](ThreadState& t, ThreadState::StreamEntry& s) { g_line.recorder->mark_behind(t, s); })) [[unlikely]] {
    line.source->end_hit(Id, line.rows[Row]->name, result);
  }
  return result;
}

template <bool PerThread>
struct LaunchKernelHook {
  static constexpr CUpti_CallbackId kId =
      PerThread ? CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz : CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
  static constexpr LaunchRow kRow = PerThread ? kKernelPerThread : kKernel;
  static constexpr HookRow*& row = g_line.rows[kRow];

  static CUresult CUDAAPI call(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                               void** arguments, void** extra) {
    after_jump();
    const auto with_all = [&](auto* function) __attribute__((always_inline)) {
      return function(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments, extra);
    };
    const cuLaunchKernel_params p{f,       grid_x,       grid_y, grid_z,    block_x, block_y,
                                  block_z, shared_bytes, stream, arguments, extra};
    return launch<kRow, kId>(
        p, f, stream, true, [&] { return with_all(real_of<decltype(::cuLaunchKernel)>(row)); },
        [&] { return with_all(&alone); });
  }
  // Functions of their own, and of the same arguments, so that on the way of a burst none of them needs an address and
  // little code is run through.
  [[gnu::noinline]] static CUresult CUDAAPI alone(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                                  unsigned block_x, unsigned block_y, unsigned block_z,
                                                  unsigned shared_bytes, CUstream stream, void** arguments,
                                                  void** extra) {
    const auto with_all = [&](auto* function) __attribute__((always_inline)) {
      return function(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments, extra);
    };
    const cuLaunchKernel_params p{f,       grid_x,       grid_y, grid_z,    block_x, block_y,
                                  block_z, shared_bytes, stream, arguments, extra};
    return launch_alone<kRow, kId>(
        p, f, stream, true, [&] { return with_all(real_of<decltype(::cuLaunchKernel)>(row)); },
        [&] { return with_all(&at_length); });
  }
  [[gnu::noinline]] static CUresult CUDAAPI at_length(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                                      unsigned block_x, unsigned block_y, unsigned block_z,
                                                      unsigned shared_bytes, CUstream stream, void** arguments,
                                                      void** extra) {
    const cuLaunchKernel_params p{f,       grid_x,       grid_y, grid_z,    block_x, block_y,
                                  block_z, shared_bytes, stream, arguments, extra};
    return launch_at_length(kRow, kId, p, [&] {
      return real_of<decltype(::cuLaunchKernel)>(row)(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                                                      stream, arguments, extra);
    });
  }
};

template <bool PerThread>
struct LaunchKernelExHook {
  static constexpr CUpti_CallbackId kId =
      PerThread ? CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz : CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx;
  static constexpr LaunchRow kRow = PerThread ? kKernelExPerThread : kKernelEx;
  static constexpr HookRow*& row = g_line.rows[kRow];

  static CUresult CUDAAPI call(const CUlaunchConfig* config, CUfunction f, void** arguments, void** extra) {
    after_jump();
    if (config == nullptr) return at_length(config, f, arguments, extra);
    return launch<kRow, kId>(
        *config, f, config->hStream, config->numAttrs == 0,
        [&] { return real_of<decltype(::cuLaunchKernelEx)>(row)(config, f, arguments, extra); },
        [&] { return alone(config, f, arguments, extra); });
  }
  [[gnu::noinline]] static CUresult CUDAAPI alone(const CUlaunchConfig* config, CUfunction f, void** arguments,
                                                  void** extra) {
    return launch_alone<kRow, kId>(
        *config, f, config->hStream, config->numAttrs == 0,
        [&] { return real_of<decltype(::cuLaunchKernelEx)>(row)(config, f, arguments, extra); },
        [&] { return at_length(config, f, arguments, extra); });
  }
  [[gnu::noinline]] static CUresult CUDAAPI at_length(const CUlaunchConfig* config, CUfunction f, void** arguments,
                                                      void** extra) {
    const cuLaunchKernelEx_params p{config, f, arguments, extra};
    return launch_at_length(kRow, kId, p, [&] {
      return real_of<decltype(::cuLaunchKernelEx)>(row)(config, f, arguments, extra);
    });
  }
};

template <class Destroyed, void (InterposeSource::*Tell)(Destroyed) noexcept, int Version>
struct DestroyHook {
  static constinit inline HookRow* row = nullptr;

  static CUresult CUDAAPI call(Destroyed what) {
    after_jump();
    (InterposeSource::current()->*Tell)(what);
    return real_of<CUresult(Destroyed)>(row)(what);
  }
};

template <int Version>
struct PrimaryContextHook {
  static constinit inline HookRow* row = nullptr;

  static CUresult CUDAAPI call(CUdevice device) {
    after_jump();
    std::optional<EventTimer::HeldOff> held;  // the context may go with it
    if (EventTimer* const events = InterposeSource::current()->events()) {
      ThreadState* const thread = InterposeSource::current()->recorder().enter();
      if (thread != nullptr && !thread->inside) {
        MissGuard guard(*thread);
        held.emplace(events);
      }
    }
    const CUresult result = real_of<CUresult(CUdevice)>(row)(device);
    if (result == CUDA_SUCCESS) InterposeSource::current()->on_primary_context_gone(device);
    return result;
  }
};

// kState stays on while launches are not recorded: what it says must be known when they are again.
enum class Group : std::uint8_t { kLaunch, kWatched, kEdge, kState };

struct Entry {
  const char* name;
  void* function;
  HookRow** row;
  Group group;
};

template <class AHook>
Entry entry(const char* name, Group group) noexcept {
  return {name, reinterpret_cast<void*>(&AHook::call), &AHook::row, group};
}

// Pasted at once, as in watched_calls.cpp: cuda.h has macros of the same names.
#define TYPED(name, params, type, group) \
  entry<Hook<CUPTI_DRIVER_TRACE_CBID_##name, params, type>>(#name, Group::group)
#define CALL(name, group) \
  entry<Hook<CUPTI_DRIVER_TRACE_CBID_##name, name##_params, decltype(::name)>>(#name, Group::group)
#define CALL_DS(name, group)                                                                              \
  CALL(name, group), entry<Hook<CUPTI_DRIVER_TRACE_CBID_##name##_ptds, name##_params, decltype(::name)>>( \
                         #name "_ptds", Group::group)
#define CALL_SZ(name, group)                                                                              \
  CALL(name, group), entry<Hook<CUPTI_DRIVER_TRACE_CBID_##name##_ptsz, name##_params, decltype(::name)>>( \
                         #name "_ptsz", Group::group)

using CaptureToGraph = CUresult(CUstream, CUgraph, const CUgraphNode*, const void*, std::size_t, CUstreamCaptureMode);
using Instantiate = CUresult(CUgraphExec*, CUgraph, CUgraphNode*, char*, std::size_t);
using InstantiateWithFlags = CUresult(CUgraphExec*, CUgraph, unsigned long long);
using InstantiateWithParams = CUresult(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*);
using ExecUpdate = CUresult(CUgraphExec, CUgraph, CUgraphNode*, CUgraphExecUpdateResult*);
using ExecUpdateV2 = CUresult(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*);
using SetNode = CUresult(CUgraphExec, CUgraphNode, const void*);
using Prefetch = CUresult(CUdeviceptr, std::size_t, CUdevice, CUstream);
using PrefetchV2 = CUresult(CUdeviceptr, std::size_t, MemLocation, unsigned, CUstream);

// &, not value, of what a table would need relocations for: made once, when the hooks are first turned.
const auto& entries() noexcept {
  static const std::array all = {
    entry<LaunchKernelHook<false>>("cuLaunchKernel", Group::kLaunch),
    entry<LaunchKernelHook<true>>("cuLaunchKernel_ptsz", Group::kLaunch),
    entry<LaunchKernelExHook<false>>("cuLaunchKernelEx", Group::kLaunch),
    entry<LaunchKernelExHook<true>>("cuLaunchKernelEx_ptsz", Group::kLaunch),
    CALL_SZ(cuLaunchCooperativeKernel, kLaunch),
    CALL(cuLaunchCooperativeKernelMultiDevice, kLaunch),
    CALL(cuLaunch, kLaunch),
    CALL(cuLaunchGrid, kLaunch),
    CALL(cuLaunchGridAsync, kLaunch),
    CALL_SZ(cuGraphLaunch, kLaunch),

    TYPED(cuStreamBeginCapture, NoParams, CUresult(CUstream), kState),
    TYPED(cuStreamBeginCapture_ptsz, NoParams, CUresult(CUstream), kState),
    TYPED(cuStreamBeginCapture_v2, NoParams, CUresult(CUstream, CUstreamCaptureMode), kState),
    TYPED(cuStreamBeginCapture_v2_ptsz, NoParams, CUresult(CUstream, CUstreamCaptureMode), kState),
    entry<Hook<kBeginCaptureToGraph, NoParams, CaptureToGraph>>("cuStreamBeginCaptureToGraph", Group::kState),
    entry<Hook<kBeginCaptureToGraphPerThread, NoParams, CaptureToGraph>>("cuStreamBeginCaptureToGraph_ptsz",
                                                                         Group::kState),
    CALL_SZ(cuStreamEndCapture, kState),
    CALL(cuModuleUnload, kState),
    CALL(cuLibraryUnload, kState),
    CALL(cuFuncSetAttribute, kState),
    CALL(cuKernelSetAttribute, kState),
    CALL(cuFuncSetBlockShape, kState),
    CALL(cuFuncSetSharedSize, kState),
    CALL(cuStreamCreate, kState),
    CALL(cuStreamCreateWithPriority, kState),
    entry<DestroyHook<CUstream, &InterposeSource::on_stream_destroy, 1>>("cuStreamDestroy", Group::kState),
    entry<DestroyHook<CUstream, &InterposeSource::on_stream_destroy, 2>>("cuStreamDestroy_v2", Group::kState),
    entry<DestroyHook<CUgraphExec, &InterposeSource::on_graph_exec_destroy, 1>>("cuGraphExecDestroy", Group::kState),
    TYPED(cuGraphInstantiate, cuGraphInstantiate_params, Instantiate, kState),
    TYPED(cuGraphInstantiate_v2, cuGraphInstantiate_v2_params, Instantiate, kState),
    TYPED(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags_params, InstantiateWithFlags, kState),
    TYPED(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_params, InstantiateWithParams, kState),
    TYPED(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams_ptsz_params, InstantiateWithParams, kState),
    TYPED(cuGraphExecUpdate, cuGraphExecUpdate_params, ExecUpdate, kState),
    TYPED(cuGraphExecUpdate_v2, cuGraphExecUpdate_v2_params, ExecUpdateV2, kState),
    TYPED(cuGraphExecKernelNodeSetParams, SetNodeParams, SetNode, kState),
    TYPED(cuGraphExecKernelNodeSetParams_v2, SetNodeParams, SetNode, kState),
    TYPED(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams_params,
          CUresult(CUgraphExec, CUgraphNode, CUgraph), kState),
    entry<Hook<kGraphExecNodeSetParams, SetNodeParams, SetNode>>("cuGraphExecNodeSetParams", Group::kState),
    TYPED(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled_params, CUresult(CUgraphExec, CUgraphNode, unsigned), kState),
    entry<DestroyHook<CUcontext, &InterposeSource::on_context_destroy, 1>>("cuCtxDestroy", Group::kState),
    entry<DestroyHook<CUcontext, &InterposeSource::on_context_destroy, 2>>("cuCtxDestroy_v2", Group::kState),
    entry<PrimaryContextHook<1>>("cuDevicePrimaryCtxRelease", Group::kState),
    entry<PrimaryContextHook<2>>("cuDevicePrimaryCtxRelease_v2", Group::kState),
    entry<PrimaryContextHook<3>>("cuDevicePrimaryCtxReset", Group::kState),
    entry<PrimaryContextHook<4>>("cuDevicePrimaryCtxReset_v2", Group::kState),

    TYPED(cuCtxSynchronize, NoParams, CUresult(), kWatched),
    entry<Hook<kCtxSynchronizeV2, CtxSynchronizeV2Params, CUresult(CUcontext)>>("cuCtxSynchronize_v2", Group::kWatched),
    CALL_SZ(cuStreamSynchronize, kWatched),
    TYPED(cuMemPrefetchAsync, cuMemPrefetchAsync_params, Prefetch, kWatched),
    TYPED(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync_params, Prefetch, kWatched),
    entry<Hook<kMemPrefetchAsyncV2, MemPrefetchAsyncV2Params, PrefetchV2>>("cuMemPrefetchAsync_v2", Group::kWatched),
    entry<Hook<kMemPrefetchAsyncV2PerThread, MemPrefetchAsyncV2Params, PrefetchV2>>("cuMemPrefetchAsync_v2_ptsz",
                                                                                    Group::kWatched),
    CALL(cuEventSynchronize, kWatched),
    CALL_DS(cuMemcpy, kWatched),
    CALL_DS(cuMemcpyHtoD_v2, kWatched),
    CALL_DS(cuMemcpyDtoH_v2, kWatched),
    CALL_DS(cuMemcpyDtoD_v2, kWatched),
    CALL_DS(cuMemcpyPeer, kWatched),
    CALL_DS(cuMemcpy2D_v2, kWatched),
    CALL_DS(cuMemcpy2DUnaligned_v2, kWatched),
    CALL_DS(cuMemcpy3D_v2, kWatched),
    CALL_DS(cuMemcpy3DPeer, kWatched),
    CALL_DS(cuMemcpyAtoD_v2, kWatched),
    CALL_DS(cuMemcpyDtoA_v2, kWatched),
    CALL_DS(cuMemcpyAtoH_v2, kWatched),
    CALL_DS(cuMemcpyHtoA_v2, kWatched),
    CALL_DS(cuMemcpyAtoA_v2, kWatched),
    CALL_SZ(cuMemcpyAsync, kWatched),
    CALL_SZ(cuMemcpyHtoDAsync_v2, kWatched),
    CALL_SZ(cuMemcpyDtoHAsync_v2, kWatched),
    CALL_SZ(cuMemcpyDtoDAsync_v2, kWatched),
    CALL_SZ(cuMemcpyPeerAsync, kWatched),
    CALL_SZ(cuMemcpy2DAsync_v2, kWatched),
    CALL_SZ(cuMemcpy3DAsync_v2, kWatched),
    CALL_SZ(cuMemcpy3DPeerAsync, kWatched),
    CALL_SZ(cuMemcpyHtoAAsync_v2, kWatched),
    CALL_SZ(cuMemcpyAtoHAsync_v2, kWatched),
    CALL_DS(cuMemsetD8_v2, kWatched),
    CALL_DS(cuMemsetD16_v2, kWatched),
    CALL_DS(cuMemsetD32_v2, kWatched),
    CALL_DS(cuMemsetD2D8_v2, kWatched),
    CALL_DS(cuMemsetD2D16_v2, kWatched),
    CALL_DS(cuMemsetD2D32_v2, kWatched),
    CALL_SZ(cuMemsetD8Async, kWatched),
    CALL_SZ(cuMemsetD16Async, kWatched),
    CALL_SZ(cuMemsetD32Async, kWatched),
    CALL_SZ(cuMemsetD2D8Async, kWatched),
    CALL_SZ(cuMemsetD2D16Async, kWatched),
    CALL_SZ(cuMemsetD2D32Async, kWatched),
    CALL(cuMemAlloc_v2, kWatched),
    CALL(cuMemAllocPitch_v2, kWatched),
    CALL(cuMemAllocManaged, kWatched),
    CALL(cuMemFree_v2, kWatched),
    CALL_SZ(cuMemAllocAsync, kWatched),
    CALL_SZ(cuMemAllocFromPoolAsync, kWatched),
    CALL_SZ(cuMemFreeAsync, kWatched),
    CALL(cuMemAllocHost_v2, kWatched),
    CALL(cuMemHostAlloc, kWatched),
    CALL(cuMemFreeHost, kWatched),
    CALL(cuMemHostRegister, kWatched),
    CALL(cuMemHostRegister_v2, kWatched),
    CALL(cuMemHostUnregister, kWatched),
    CALL(cuMemCreate, kWatched),
    CALL(cuMemRelease, kWatched),
    CALL(cuMemMap, kWatched),
    CALL(cuMemUnmap, kWatched),
    CALL_SZ(cuEventRecord, kEdge),
    CALL_SZ(cuEventRecordWithFlags, kEdge),
    CALL_SZ(cuStreamWaitEvent, kEdge),
  };
  return all;
}
#undef CALL_SZ
#undef CALL_DS
#undef CALL
#undef TYPED

}  // namespace

void turn_hooks(InterposeSource& source, const hooks::HookTable& table, Hooks which, bool edges) noexcept {
  set_line(source);
  for (const Entry& entry : entries()) {
    if (*entry.row == nullptr) *entry.row = find_hook(table, entry.name);
    HookRow* const row = *entry.row;
    if (row == nullptr || (entry.group == Group::kEdge && !edges)) continue;
    const bool on = which == Hooks::kAll || (which == Hooks::kState && entry.group == Group::kState);
    void* const target = on ? entry.function : __atomic_load_n(&row->real, __ATOMIC_ACQUIRE);
    before_turn();
    __atomic_store_n(&row->target, target, __ATOMIC_RELEASE);
  }
}

}  // namespace gpuflight::capture
