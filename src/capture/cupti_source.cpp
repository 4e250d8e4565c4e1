#include "capture/cupti_source.h"

#include <algorithm>

#include "capture/launch_hit.h"
#include "capture/system_clock.h"
#include "capture/watched_calls.h"
#include "capture/young_callbacks.h"

namespace gpuflight::capture {
namespace {

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

// The call that a callback is measured by: it needs no context and changes nothing.
constexpr CUpti_CallbackId kProbeId = CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent;
constexpr int kProbeBatches = 7, kProbeCalls = 500;

constexpr CUpti_CallbackId kResourceIds[] = {
    CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
    CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
};

}  // namespace

CuptiSource::CuptiSource(const DriverCallReader::Parts& parts, std::string explicit_path, int driver_version)
    : recorder_(parts.recorder),
      page_(recorder_.page()),
      calls_(parts, *this),
      explicit_path_(std::move(explicit_path)),
      driver_version_(driver_version) {}

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
      calls_.note_blind();
      enable(true, CUPTI_CB_DOMAIN_DRIVER_API, kJoinIds, nullptr);
      recorder_.on_resumed_blind();
    }
    calls_.enable(true);
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
  calls_.enable(false);
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
  problem = "no usable libcupti; install the CUDA toolkit or the nvidia-cuda-cupti package of "
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
              "); run without it, or start it later and gpuflight first";
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
         enable(true, CUPTI_CB_DOMAIN_DRIVER_API, GraphCallReader::ids(), nullptr) &&
         enable(true, CUPTI_CB_DOMAIN_DRIVER_API, kStateIds, &problem);
}

bool CuptiSource::enable_launches(bool on, std::string& problem) noexcept {
  enable(on, CUPTI_CB_DOMAIN_DRIVER_API, watched_ids(), nullptr);
  if (calls_.edges()) enable(on, CUPTI_CB_DOMAIN_DRIVER_API, edge_ids(), nullptr);
  if (calls_.was_blind()) enable(true, CUPTI_CB_DOMAIN_DRIVER_API, kJoinIds, nullptr);
  return enable(on, CUPTI_CB_DOMAIN_DRIVER_API, kLaunchIds, &problem);
}

void CUPTIAPI CuptiSource::on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                       const void* data) noexcept {
  auto& source = *static_cast<CuptiSource*>(self);
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) [[likely]] {
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (source.on_launch_hit(id, call)) return;
    if (id == kProbeId) [[unlikely]] {
      source.probed_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    source.calls_.on_driver_call(id, call);
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
  const auto enter = [&](const auto& launch, const void* function, std::uint32_t kind) {
    auto& stream = thread->streams[ThreadState::stream_slot(launch.hStream, data.contextUid, kind)];
    return enter_hit(page_, *thread, launch, function, stream, data.contextUid, kind, data.correlationId, 0);
  };
  if (plain) [[likely]] {
    const auto& p = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
    return enter(p, p.f, id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz ? 2 : 1);
  }
  const auto& p = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
  if (p.config == nullptr || p.config->numAttrs != 0) return false;
  return enter(*p.config, p.f, id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz ? 2 : 1);
}

void CuptiSource::on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) noexcept {
  if (!recorder_.recording()) return;
  switch (id) {
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      calls_.on_module_unload();
      break;
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      calls_.on_context_destroy(uid_of(data.context));
      break;
    case CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING:
      calls_.on_stream_destroy(data.resourceHandle.stream, uid_of(data.context));
      break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      if (const auto* const graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor)) {
        calls_.on_graph_exec_destroy(graph->graphExec);
      }
      break;
    default:
      break;
  }
}

// In turns, and the least of each: whoever takes the processor away only adds.
std::optional<double> CuptiSource::measure_callback_ns(const DriverApi& driver) noexcept {
  if (subscriber_ == nullptr || driver.ctx_get_current == nullptr) return std::nullopt;
  const auto enable_probe = [this](bool on) noexcept {
    return cupti_.enable_callback(on ? 1 : 0, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, kProbeId) == CUPTI_SUCCESS;
  };
  std::int64_t least_ns[2] = {INT64_MAX, INT64_MAX};
  const std::uint32_t probed_before = probed_.load(std::memory_order_relaxed);
  for (int batch = 0; batch < 2 * kProbeBatches; ++batch) {
    const bool on = batch % 2 != 0;
    if (!enable_probe(on)) return std::nullopt;
    const std::int64_t before_ns = system_clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < kProbeCalls; ++i) {
      CUcontext context = nullptr;
      if (driver.ctx_get_current(&context) != CUDA_SUCCESS) {
        enable_probe(false);
        return std::nullopt;
      }
    }
    std::int64_t& least = least_ns[on ? 1 : 0];
    least = std::min(least, system_clock_ns(CLOCK_MONOTONIC) - before_ns);
  }
  enable_probe(false);
  if (probed_.load(std::memory_order_relaxed) - probed_before < 2u * kProbeBatches * kProbeCalls) return std::nullopt;
  const double each = static_cast<double>(least_ns[1] - least_ns[0]) / kProbeCalls;
  return each > 0 ? std::optional<double>(each) : std::nullopt;
}

std::uint32_t CuptiSource::uid_of(CUcontext context) noexcept {
  std::uint32_t uid = 0;
  return cupti_.get_context_id(context, &uid) == CUPTI_SUCCESS ? uid : 0;
}

std::int32_t CuptiSource::device_of(CUcontext context) noexcept {
  std::uint32_t device = 0;
  if (cupti_.get_device_id == nullptr || cupti_.get_device_id(context, &device) != CUPTI_SUCCESS) return -1;
  return static_cast<std::int32_t>(device);
}

}  // namespace gpuflight::capture
