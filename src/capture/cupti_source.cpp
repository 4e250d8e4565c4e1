#include "capture/cupti_source.h"

#include <cstring>

#include "capture/launch_hit.h"
#include "capture/watched_calls.h"
#include "event/driver_status.h"
#include "flight/record_event.h"

namespace gpuflight::capture {
namespace {

// Younger than the oldest headers that this is built with; CUPTI's numbers never change.
constexpr CUpti_CallbackId kBeginCaptureToGraph = 720, kBeginCaptureToGraphPerThread = 721;
// Of the same age: preferred shared memory carve-out, an unsigned int.
constexpr unsigned kCarveoutAttribute = 14;

constexpr CUpti_CallbackId kLaunchIds[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice,
    CUPTI_DRIVER_TRACE_CBID_cuLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

// Rare calls that change what a handle, a stream or a launch means.
constexpr CUpti_CallbackId kStateIds[] = {
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz,
    kBeginCaptureToGraph,
    kBeginCaptureToGraphPerThread,
    CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture,
    CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuModuleUnload,
    CUPTI_DRIVER_TRACE_CBID_cuLibraryUnload,
    CUPTI_DRIVER_TRACE_CBID_cuFuncSetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelSetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuStreamCreate,
    CUPTI_DRIVER_TRACE_CBID_cuStreamCreateWithPriority,
    CUPTI_DRIVER_TRACE_CBID_cuFuncSetBlockShape,
    CUPTI_DRIVER_TRACE_CBID_cuFuncSetSharedSize,
};

// Enabled, and kept enabled, after a pause that gave the slot up: a stream that waits for another's event joins the
// capture that the other may be in, and it may have begun unseen.
constexpr CUpti_CallbackId kJoinIds[] = {
    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent,
    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent_ptsz,
};

constexpr CUpti_CallbackId kResourceIds[] = {
    CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
    CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
};

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

CuptiSource::CuptiSource(LaunchRecorder& recorder, KernelResolver& resolver, StreamTable& streams, GraphTable& graphs,
                         DeviceQuery& devices, MarkerBoard* markers, ErrorBoard& errors, NoticeBoard& notices,
                         std::string explicit_path, int driver_version, bool edges)
    : recorder_(recorder),
      page_(recorder.page()),
      resolver_(resolver),
      streams_(streams),
      graphs_(graphs),
      devices_(devices),
      markers_(markers),
      errors_(errors),
      notices_(notices),
      explicit_path_(std::move(explicit_path)),
      driver_version_(driver_version),
      edges_(edges) {}

SourceStatus CuptiSource::start(std::string& problem) noexcept {
  try {
    const bool subscribe_now = subscriber_ == nullptr;
    const bool again = static_cast<bool>(library_);
    if (subscribe_now) {
      const SourceStatus status = again ? subscribe(problem) : choose(problem);
      if (status != SourceStatus::kOk) return status;
    }
    if ((subscribe_now && !enable_state(problem)) || !enable_launches(true, problem)) {
      stop(true);
      return SourceStatus::kRefused;
    }
    if (subscribe_now && again) {
      was_blind_.store(true, std::memory_order_relaxed);
      enable(true, CUPTI_CB_DOMAIN_DRIVER_API, kJoinIds, nullptr);
      recorder_.on_resumed_blind();
    }
    enabled_ = true;
    return SourceStatus::kOk;
  } catch (...) {
    return SourceStatus::kRefused;
  }
}

void CuptiSource::stop(bool release) noexcept {
  if (subscriber_ == nullptr) return;
  if (release) {
    cupti_.unsubscribe(subscriber_);
    subscriber_ = nullptr;
  } else if (enabled_) {
    // What says which handles and captures there are stays on: rare calls, and a resume knows them.
    std::string ignored;
    enable_launches(false, ignored);
  }
  enabled_ = false;
}

// Opens candidates until one can be subscribed to.
SourceStatus CuptiSource::choose(std::string& problem) {
  std::string tried;
  SourceStatus last = SourceStatus::kNoLibrary;
  for (const CuptiCandidate& candidate : find_cupti_candidates(explicit_path_, driver_version_)) {
    SharedObject library;
    const bool opened = candidate.loaded ? library.adopt(candidate.path.c_str()) : library.open(candidate.path.c_str());
    if (!opened) {
      tried += "; " + candidate.path + ": " + (candidate.loaded ? "gone" : library.error());
      continue;
    }
    CuptiApi api;
    if (const char* const missing = api.load(library)) {
      tried += "; " + library.path() + " lacks " + missing;
      continue;
    }
    std::uint32_t version = 0;
    api.get_version(&version);
    library_ = library;
    cupti_ = api;
    choice_ = {library.path(), candidate.reason, version};
    std::string why;
    last = subscribe(why);
    if (last == SourceStatus::kOk) return last;
    if (last == SourceStatus::kSlotTaken) {  // no other copy of CUPTI would be given it either
      problem = why;
      return last;
    }
    tried += "; " + library.path() + ": " + why;
    library_ = SharedObject();
    choice_ = {};
  }
  problem = "no usable libcupti: launches are not recorded; install the CUDA toolkit or the nvidia-cuda-cupti package of "
            "the driver's version, or name one with GPUFLIGHT_CUPTI" + tried;
  return last;
}

SourceStatus CuptiSource::subscribe(std::string& problem) {
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUptiResult result =
      cupti_.subscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(&CuptiSource::on_callback), this);
  if (result == CUPTI_SUCCESS) {
    subscriber_ = subscriber;
    return SourceStatus::kOk;
  }
  const std::string text = cupti_.result_text(result);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED || result == CUPTI_ERROR_MAX_LIMIT_REACHED) {
    problem = "another CUPTI client (a profiler, sanitizer or debugger) holds the one subscriber slot (" + text +
              "): launches are not recorded; run without it, or start it later and gpuflight first";
    return SourceStatus::kSlotTaken;
  }
  if (result == CUPTI_ERROR_NOT_INITIALIZED) {
    problem = "CUPTI " + std::to_string(choice_.version) + " does not work with driver " +
              std::to_string(driver_version_) + " (" + text + "): it may be newer than the driver";
    return SourceStatus::kTooNew;
  }
  problem = "cuptiSubscribe: " + text + " (" + std::to_string(result) + ")";
  return SourceStatus::kRefused;
}

template <class Ids>
bool CuptiSource::enable(bool on, CUpti_CallbackDomain domain, const Ids& ids, std::string* problem) noexcept {
  for (const CUpti_CallbackId id : ids) {
    const CUptiResult result = cupti_.enable_callback(on ? 1 : 0, subscriber_, domain, id);
    // An older CUPTI does not know the newest ids: those calls do not exist in its driver either.
    if (result == CUPTI_SUCCESS || problem == nullptr || result == CUPTI_ERROR_INVALID_PARAMETER) continue;
    try {
      *problem = std::string("cuptiEnableCallback: ") + cupti_.result_text(result);
    } catch (...) {
    }
    return false;
  }
  return true;
}

bool CuptiSource::enable_state(std::string& problem) noexcept {
  return enable(true, CUPTI_CB_DOMAIN_RESOURCE, kResourceIds, nullptr) &&
         enable(true, CUPTI_CB_DOMAIN_DRIVER_API, kStateIds, &problem);
}

bool CuptiSource::enable_launches(bool on, std::string& problem) noexcept {
  enable(on, CUPTI_CB_DOMAIN_DRIVER_API, watched_ids(), nullptr);
  if (edges_) enable(on, CUPTI_CB_DOMAIN_DRIVER_API, edge_ids(), nullptr);
  if (was_blind_.load(std::memory_order_relaxed)) enable(true, CUPTI_CB_DOMAIN_DRIVER_API, kJoinIds, nullptr);
  return enable(on, CUPTI_CB_DOMAIN_DRIVER_API, kLaunchIds, &problem);
}

void CUPTIAPI CuptiSource::on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                       const void* data) noexcept {
  auto& source = *static_cast<CuptiSource*>(self);
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) [[likely]] {
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (!source.on_launch_hit(id, call)) source.on_driver_call(id, call);
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    source.on_resource(id, *static_cast<const CUpti_ResourceData*>(data));
  }
}

// True: the call was a plain launch, and is recorded.
[[gnu::always_inline]] inline bool CuptiSource::on_launch_hit(CUpti_CallbackId id,
                                                              const CUpti_CallbackData& data) noexcept {
  const bool plain = id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz;
  const bool extended =
      id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz;
  ThreadState* const thread = this_thread_state();
  if (!(plain || extended) || page_.recording.load(std::memory_order_relaxed) == 0 || thread == nullptr ||
      thread->owner != &recorder_ || thread->inside) [[unlikely]] {
    return false;
  }
  if (data.callbackSite != CUPTI_API_ENTER) {
    if (data.functionReturnValue == nullptr) [[unlikely]] return false;
    return return_hit(page_, *thread, static_cast<std::int32_t>(*static_cast<const CUresult*>(data.functionReturnValue)),
                      [this](ThreadState& t, ThreadState::StreamEntry& s) { recorder_.mark_behind(t, s); });
  }
  if (plain) [[likely]] {
    const auto& p = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
    return enter_hit(page_, *thread, p, p.f, data.contextUid,
                     id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz ? 2 : 1, data.correlationId);
  }
  const auto& p = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
  if (p.config == nullptr || p.config->numAttrs != 0) return false;
  return enter_hit(page_, *thread, *p.config, p.f, data.contextUid,
                   id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz ? 2 : 1, data.correlationId);
}

[[gnu::noinline]] void CuptiSource::on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside) return;
  if (const WatchedCall* const watched = watched_call(id)) {
    on_watched_call(*thread, *watched, data);
  } else if (data.callbackSite == CUPTI_API_ENTER) {
    on_driver_enter(*thread, id, data);
  } else {
    on_driver_exit(*thread, id, data);
  }
}

void CuptiSource::on_driver_enter(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
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

void CuptiSource::on_watched_call(ThreadState& thread, const WatchedCall& watched,
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
  if (call.call == event::ApiCall::kStreamWaitEvent && status == 0 && was_blind_.load(std::memory_order_relaxed)) {
    recorder_.on_stream_joined();
  }
  if (!recorded) return;
  if (kind == event::ApiKind::kEdge) {
    recorder_.on_edge_return(thread, call, this, &device_of);
  } else if (kind == event::ApiKind::kAlloc && status == 0) {
    recorder_.on_memory_return(thread, call.call, memory_result(call.call, data.functionParams));
  }
  on_return(thread, status, data, event::facts(call.call).name);
}

// Of a launch or a watched call; `name` as it stands in the log.
void CuptiSource::on_return(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data,
                            const char* name) noexcept {
  recorder_.on_return(thread, status);
  if (event::sticky_status(status) != nullptr) [[unlikely]] on_sticky_error(thread, status, data, name);
}

void CuptiSource::on_multi_device(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& p = *static_cast<const cuLaunchCooperativeKernelMultiDevice_params*>(data.functionParams);
  if (p.launchParamsList == nullptr) return;
  for (unsigned i = 0; i < p.numDevices; ++i) {
    const CUDA_LAUNCH_PARAMS& one = p.launchParamsList[i];
    LaunchCall call = base_call(data);
    set_geometry(call, one);
    call.function = one.function;
    call.shape.cooperative = true;
    if (i > 0) call.symbol = nullptr;  // the callback names one function; the others are asked for
    CUcontext context = nullptr;
    thread.inside = true;
    if (recorder_.driver().stream_get_ctx != nullptr &&
        recorder_.driver().stream_get_ctx(one.hStream, &context) == CUDA_SUCCESS && context != nullptr) {
      call.context = context;
      cupti_.get_context_id(context, &call.context_uid);
    }
    thread.inside = false;
    recorder_.on_kernel_enter(thread, call, this, &device_of);
  }
}

void CuptiSource::on_driver_exit(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
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
      // An invalidated capture ends here too; refused for another reason (wrong thread, not capturing), it goes on.
      if (status == CUDA_SUCCESS || status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) recorder_.on_capture_ended();
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
    default:
      on_return(thread, static_cast<std::int32_t>(status), data, data.functionName);
      break;
  }
}

void CuptiSource::on_sticky_error(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data,
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

void CuptiSource::on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) noexcept {
  if (!recorder_.recording()) return;
  switch (id) {
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      resolver_.on_handles_released();
      break;
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING: {
      resolver_.on_handles_released();
      std::uint32_t uid = 0;
      if (cupti_.get_context_id(data.context, &uid) == CUPTI_SUCCESS) {
        streams_.on_context_destroyed(uid);
        if (markers_ != nullptr) markers_->on_context_destroyed(uid);
      }
      break;
    }
    case CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING: {
      std::uint32_t uid = 0;
      if (cupti_.get_context_id(data.context, &uid) == CUPTI_SUCCESS) {
        streams_.on_stream_destroyed(data.resourceHandle.stream, uid);
      }
      break;
    }
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      if (const auto* const graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor)) {
        graphs_.on_graph_exec_destroyed(graph->graphExec);
      }
      break;
    default:
      break;
  }
}

std::int32_t CuptiSource::device_of(void* self, const void* context) noexcept {
  auto& source = *static_cast<CuptiSource*>(self);
  std::uint32_t device = 0;
  if (context == nullptr || source.cupti_.get_device_id == nullptr ||
      source.cupti_.get_device_id(static_cast<CUcontext>(const_cast<void*>(context)), &device) != CUPTI_SUCCESS) {
    return -1;
  }
  const auto ordinal = static_cast<std::int32_t>(device);
  source.devices_.describe(ordinal);
  return ordinal;
}

}  // namespace gpuflight::capture
