#include "capture/driver_call_reader.h"

#include <cstring>

#include "capture/miss_guard.h"
#include "capture/watched_calls.h"
#include "capture/young_callbacks.h"
#include "event/driver_status.h"
#include "flight/record_event.h"

namespace gpuflight::capture {
namespace {

// Younger than the oldest headers that this is built with: preferred shared memory carve-out, an unsigned int.
constexpr unsigned kCarveoutAttribute = 14;

LaunchCall base_call(const CUpti_CallbackData& data) {
  LaunchCall call;
  call.symbol = data.symbolName;
  call.context = data.context;
  call.context_uid = data.contextUid;
  call.correlation = data.correlationId;
  return call;
}

template <class Params>
void set_geometry(LaunchCall& call, const Params& p) {
  call.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
  call.shape.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
  call.shape.dyn_shared_bytes = p.sharedMemBytes;
  call.stream = p.hStream;
}

void read_attributes(LaunchCall& call, const CUlaunchConfig& config) {
  if (config.attrs == nullptr) return;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    switch (static_cast<unsigned>(attribute.id)) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        call.shape.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        call.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        call.programmatic = true;
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        call.shape.cooperative = attribute.value.cooperative != 0;
        break;
      case kCarveoutAttribute:
        std::memcpy(&call.shape.carveout, &attribute.value, sizeof call.shape.carveout);
        call.shape.carveout_from_launch = true;
        break;
      default:
        break;
    }
  }
}

}  // namespace

void DriverCallReader::on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside) return;
  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  if (enter && thread->open_count != 0 && shared_.load(std::memory_order_relaxed)) return;
  if (const WatchedCall* const watched = watched_call(id)) {
    on_watched_call(*thread, *watched, data);
  } else if (enter) {
    on_driver_enter(*thread, id, data);
  } else {
    on_driver_exit(*thread, id, data);
  }
}

void DriverCallReader::on_driver_enter(ThreadState& thread, CUpti_CallbackId id,
                                       const CUpti_CallbackData& data) noexcept {
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
      LaunchCall call = base_call(data);
      set_geometry(call, p);
      call.function = p.f;
      call.per_thread_default = id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz;
      recorder_.on_call_begin(thread);
      recorder_.on_kernel_enter(thread, call, this, &device_of);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
      if (p.config == nullptr) break;  // the driver will refuse it; there is nothing to record
      LaunchCall call = base_call(data);
      set_geometry(call, *p.config);
      read_attributes(call, *p.config);
      call.function = p.f;
      call.per_thread_default = id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz;
      recorder_.on_call_begin(thread);
      recorder_.on_kernel_enter(thread, call, this, &device_of);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchCooperativeKernel_params*>(data.functionParams);
      LaunchCall call = base_call(data);
      set_geometry(call, p);
      call.function = p.f;
      call.shape.cooperative = true;
      call.per_thread_default = id == CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz;
      recorder_.on_call_begin(thread);
      recorder_.on_kernel_enter(thread, call, this, &device_of);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice:
      recorder_.on_call_begin(thread);
      on_multi_device(thread, data);
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunch:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync: {
      // All three begin with the function; the grid follows where there is one.
      const auto& p = *static_cast<const cuLaunchGridAsync_params*>(data.functionParams);
      LaunchCall call = base_call(data);
      call.function = p.f;
      if (id != CUPTI_DRIVER_TRACE_CBID_cuLaunch) {
        call.grid = {static_cast<std::uint32_t>(p.grid_width), static_cast<std::uint32_t>(p.grid_height), 1};
      }
      if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync) call.stream = p.hStream;
      resolver_.legacy_shape(p.f, call.shape);
      recorder_.on_call_begin(thread);
      recorder_.on_kernel_enter(thread, call, this, &device_of);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz: {
      const auto& p = *static_cast<const cuGraphLaunch_params*>(data.functionParams);
      GraphCall call;
      call.graph_exec = p.hGraph;
      call.context = data.context;
      call.context_uid = data.contextUid;
      call.stream = p.hStream;
      call.per_thread_default = id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz;
      call.correlation = data.correlationId;
      recorder_.on_call_begin(thread);
      recorder_.on_graph_enter(thread, call, this, &device_of);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuModuleUnload:
    case CUPTI_DRIVER_TRACE_CBID_cuLibraryUnload:
      resolver_.on_handles_released();
      break;
    default:
      break;
  }
}

void DriverCallReader::on_watched_call(ThreadState& thread, const WatchedCall& watched,
                                       const CUpti_CallbackData& data) noexcept {
  const event::ApiKind kind = event::facts(watched.api()).kind;
  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  // An edge may be seen for the sake of captures alone.
  const bool recorded =
      kind != event::ApiKind::kEdge || (edges_ && enabled_.load(std::memory_order_relaxed));
  DriverCall call;
  call.call = watched.api();
  call.may_wait = watched.may_wait;
  call.per_thread_default = watched.per_thread_default;
  call.context = data.context;
  call.context_uid = data.contextUid;
  call.correlation = data.correlationId;
  if (const CUcontext named = watched.context(data.functionParams)) {
    MissGuard miss(thread);
    call.context = named;
    call.context_uid = contexts_.uid_of(named);
  }
  call.has_stream = watched.has_stream();
  if (call.has_stream) call.stream = watched.stream(data.functionParams);
  if (enter) {
    if (!recorded) return;
    if (kind == event::ApiKind::kEdge) call.event = event_of(call.call, data.functionParams);
    if (flight::is_memory_call(kind)) call.memory = memory_arguments(call.call, data.functionParams);
    recorder_.on_call_begin(thread);
    recorder_.on_call_enter(thread, call, this, &device_of);
    return;
  }
  const std::int32_t status =
      data.functionReturnValue != nullptr ? *static_cast<const CUresult*>(data.functionReturnValue) : 0;
  if (call.call == event::ApiCall::kStreamWaitEvent && status == 0 && was_blind()) {
    recorder_.on_stream_joined();
  }
  if (!recorded) return;
  if (kind == event::ApiKind::kEdge) {
    recorder_.on_edge_return(thread, call, this, &device_of);
  } else if (kind == event::ApiKind::kAlloc && status == 0) {
    recorder_.on_memory_return(thread, call.call, memory_result(call.call, data.functionParams));
  } else if ((call.call == event::ApiCall::kStreamSynchronize || call.call == event::ApiCall::kCtxSynchronize) &&
             status == 0) {
    recorder_.on_wait_return(thread, call);
  }
  on_return(thread, status, data, event::facts(call.call).name);
}

// Of a launch or a watched call; `name` as it stands in the log.
void DriverCallReader::on_return(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data,
                            const char* name) noexcept {
  recorder_.on_return(thread, status);
  if (event::sticky_status(status) != nullptr) [[unlikely]] on_sticky_error(thread, status, data, name);
}

void DriverCallReader::on_multi_device(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& p = *static_cast<const cuLaunchCooperativeKernelMultiDevice_params*>(data.functionParams);
  if (p.launchParamsList == nullptr) return;
  for (unsigned i = 0; i < p.numDevices; ++i) {
    const CUDA_LAUNCH_PARAMS& one = p.launchParamsList[i];
    LaunchCall call = base_call(data);
    set_geometry(call, one);
    call.function = one.function;
    call.shape.cooperative = true;
    call.one_of_several = true;
    if (i > 0) call.symbol = nullptr;  // the callback names one function; the others are asked for
    CUcontext context = nullptr;
    thread.inside = true;
    if (recorder_.driver().stream_get_ctx != nullptr &&
        recorder_.driver().stream_get_ctx(one.hStream, &context) == CUDA_SUCCESS && context != nullptr) {
      call.context = context;
      call.context_uid = contexts_.uid_of(context);
    }
    thread.inside = false;
    recorder_.on_kernel_enter(thread, call, this, &device_of);
  }
}

void DriverCallReader::on_driver_exit(ThreadState& thread, CUpti_CallbackId id,
                                      const CUpti_CallbackData& data) noexcept {
  const auto status =
      data.functionReturnValue != nullptr ? *static_cast<const CUresult*>(data.functionReturnValue) : CUDA_SUCCESS;
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz:
    case kBeginCaptureToGraph:
    case kBeginCaptureToGraphPerThread:
      if (status == CUDA_SUCCESS) recorder_.on_capture_begun();
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture_ptsz:
      on_end_capture(thread, id == CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture_ptsz, data, status);
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuStreamCreate: {
      const auto& p = *static_cast<const cuStreamCreate_params*>(data.functionParams);
      if (status == CUDA_SUCCESS) streams_.on_stream_created(*p.phStream, data.contextUid, p.Flags, std::nullopt);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuStreamCreateWithPriority: {
      const auto& p = *static_cast<const cuStreamCreateWithPriority_params*>(data.functionParams);
      if (status == CUDA_SUCCESS) streams_.on_stream_created(*p.phStream, data.contextUid, p.flags, p.priority);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuFuncSetAttribute: {
      const auto& p = *static_cast<const cuFuncSetAttribute_params*>(data.functionParams);
      if (status == CUDA_SUCCESS) resolver_.on_attribute_set(p.hfunc, p.attrib, p.value);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuKernelSetAttribute: {
      const auto& p = *static_cast<const cuKernelSetAttribute_params*>(data.functionParams);
      if (status == CUDA_SUCCESS) resolver_.on_attribute_set(p.kernel, p.attrib, p.val);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuFuncSetBlockShape: {
      const auto& p = *static_cast<const cuFuncSetBlockShape_params*>(data.functionParams);
      if (status == CUDA_SUCCESS) {
        resolver_.on_block_shape_set(p.hfunc, {static_cast<std::uint32_t>(p.x), static_cast<std::uint32_t>(p.y),
                                               static_cast<std::uint32_t>(p.z)});
      }
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuFuncSetSharedSize: {
      const auto& p = *static_cast<const cuFuncSetSharedSize_params*>(data.functionParams);
      if (status == CUDA_SUCCESS) resolver_.on_shared_size_set(p.hfunc, p.bytes);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuModuleUnload:
    case CUPTI_DRIVER_TRACE_CBID_cuLibraryUnload:
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz:
      on_return(thread, static_cast<std::int32_t>(status), data, data.functionName);
      break;
    default:
      if (GraphCallReader::is_graph_call(id)) {
        if (status == CUDA_SUCCESS) graph_calls_.on_return(thread, id, data);
        break;
      }
      on_return(thread, static_cast<std::int32_t>(status), data, data.functionName);
      break;
  }
}

// An invalidated capture ends here too; refused for another reason (wrong thread, not capturing), it goes on. One whose
// streams had not joined is over by all that is seen, but nothing says so: there the driver is asked.
void DriverCallReader::on_end_capture(ThreadState& thread, bool per_thread_default, const CUpti_CallbackData& data,
                                      CUresult status) noexcept {
  const auto& p = *static_cast<const cuStreamEndCapture_params*>(data.functionParams);
  const bool ended = status == CUDA_SUCCESS || status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                     (status == CUDA_ERROR_STREAM_CAPTURE_UNJOINED &&
                      !recorder_.is_capturing(thread, p.hStream, per_thread_default).value_or(true));
  if (ended) recorder_.on_capture_ended();
}

void DriverCallReader::on_sticky_error(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data,
                                  const char* name) noexcept {
  try {
    SeenError error;
    error.time_ns = recorder_.now_ns();
    error.code = status;
    if (name != nullptr) error.call = name;
    error.thread = thread.tid;
    error.context_uid = data.contextUid;
    errors_.post(std::move(error));
  } catch (...) {
  }
}

void DriverCallReader::on_context_destroy(std::uint32_t uid) noexcept {
  resolver_.on_handles_released();
  if (uid == 0) return;
  streams_.on_context_destroyed(uid);
  if (markers_ != nullptr) markers_->on_context_destroyed(uid);
  if (events_ != nullptr) events_->on_context_destroyed(uid);
}

void DriverCallReader::on_stream_destroy(CUstream stream, std::uint32_t context_uid) noexcept {
  if (context_uid != 0) streams_.on_stream_destroyed(stream, context_uid);
}

std::int32_t DriverCallReader::device_of(void* self, const void* context) noexcept {
  auto& reader = *static_cast<DriverCallReader*>(self);
  if (context == nullptr) return -1;
  const std::int32_t ordinal = reader.contexts_.device_of(static_cast<CUcontext>(const_cast<void*>(context)));
  if (ordinal >= 0) reader.devices_.describe(ordinal);
  return ordinal;
}

}  // namespace gpuflight::capture
