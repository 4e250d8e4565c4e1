#include "capture/interpose_source.h"

#include "capture/interpose_hooks.h"
#include "capture/miss_guard.h"

namespace gpuflight::capture {
std::atomic<InterposeSource*> InterposeSource::g_current{nullptr};

InterposeSource::InterposeSource(const DriverCallReader::Parts& parts, const DriverApi& driver, HotPage& page,
                                 bool inside_init, bool time_each_call)
    : recorder_(parts.recorder),
      page_(page),
      driver_(driver),
      contexts_(driver, page),
      calls_(parts, *this),
      table_(find_hooks()),
      inside_init_(inside_init),
      time_each_call_(time_each_call) {}

bool InterposeSource::usable(std::string& problem) const noexcept {
  try {
    if (table_ == nullptr) {
      problem = "libgpuflight_hooks.so is not preloaded, or the driver is in a namespace of its own (dlmopen)";
      return false;
    }
    if (inside_init_ && __atomic_load_n(&table_->init_seen, __ATOMIC_RELAXED) == 0) {
      problem =
          "the program reaches the driver past the hooks (RTLD_DEEPBIND, dlmopen or another interposer): its launches "
          "cannot be seen by interposition";
      return false;
    }
    if (driver_.ctx_get_current == nullptr) {
      problem = "the driver has no cuCtxGetCurrent";
      return false;
    }
    return true;
  } catch (...) {
    return false;
  }
}

SourceStatus InterposeSource::start(std::string& problem) noexcept {
  if (!usable(problem)) return SourceStatus::kNoLibrary;
  g_current.store(this, std::memory_order_release);
  calls_.enable(true);
  if (events() != nullptr) events()->enable(true);
  turn_hooks(*this, *table_, Hooks::kAll, watch_edges());
  return SourceStatus::kOk;
}

SourceStatus InterposeSource::take_over(ContextSource& from, std::string& problem) noexcept {
  contexts_.number_by(from);
  calls_.note_blind();
  return start(problem);
}

// What says which handles and captures there are stays on: rare calls, and a resume knows them. With `release` another
// source will tell.
void InterposeSource::stop(bool release) noexcept {
  if (table_ == nullptr || current() != this) return;
  turn_hooks(*this, *table_, release ? Hooks::kNone : Hooks::kState, watch_edges());
  calls_.enable(false);
  if (events() != nullptr) events()->enable(false);
}

CUcontext InterposeSource::current_context() const noexcept {
  CUcontext context = nullptr;
  return driver_.ctx_get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}

std::uint32_t InterposeSource::known_context(const ThreadState& thread) const noexcept {
  const CUcontext context = current_context();
  return thread.context == context && context != nullptr &&
                 thread.context_generation == page_.context_generation.load(std::memory_order_relaxed)
             ? thread.context_uid
             : 0;
}

std::uint32_t InterposeSource::look_up_context(ThreadState& thread, CUcontext context) noexcept {
  const std::uint32_t generation = contexts_.generation();
  if (thread.context == context && thread.context_generation == generation) return thread.context_uid;
  MissGuard miss(thread);
  RelaxedCapture relaxed(driver_);
  thread.context_uid = contexts_.uid_of(context);
  thread.context = context;
  thread.context_generation = generation;
  return thread.context_uid;
}

bool InterposeSource::begin(CUpti_CallbackId id, const char* name, const void* params,
                            CUpti_CallbackData& data) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside) return false;
  data = {};
  data.callbackSite = CUPTI_API_ENTER;
  data.functionName = name;
  data.functionParams = params;
  data.context = current_context();
  data.contextUid = data.context != nullptr ? look_up_context(*thread, data.context) : 0;
  calls_.on_driver_call(id, data);
  return true;
}

void InterposeSource::end(CUpti_CallbackId id, const CUresult& result, CUpti_CallbackData& data) noexcept {
  CUresult copy = result;
  data.callbackSite = CUPTI_API_EXIT;
  data.functionReturnValue = &copy;
  calls_.on_driver_call(id, data);
}

void InterposeSource::end_hit(CUpti_CallbackId id, const char* name, const CUresult& result) noexcept {
  CUpti_CallbackData data{};
  data.functionName = name;
  const ThreadState& thread = *this_thread_state();
  data.contextUid = thread.open_stream != nullptr ? thread.open_stream->context_uid : thread.context_uid;
  end(id, result, data);
}

void InterposeSource::on_stream_destroy(CUstream stream) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside || stream == nullptr) return;
  MissGuard miss(*thread);
  RelaxedCapture relaxed(driver_);
  CUcontext context = nullptr;
  if (driver_.stream_get_ctx == nullptr || driver_.stream_get_ctx(stream, &context) != CUDA_SUCCESS) {
    context = current_context();
  }
  calls_.on_stream_destroy(stream, contexts_.uid_of(context));
}

void InterposeSource::on_graph_exec_destroy(CUgraphExec exec) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside) return;
  MissGuard miss(*thread);
  calls_.on_graph_exec_destroy(exec);
}

void InterposeSource::on_context_destroy(CUcontext context) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside) return;
  MissGuard miss(*thread);
  calls_.on_context_destroy(contexts_.on_destroyed(context));
}

// Which of a device's contexts was its primary one is not known: all of them get new ids, those that live on too.
void InterposeSource::on_primary_context_gone(CUdevice device) noexcept {
  ThreadState* const thread = recorder_.enter();
  if (thread == nullptr || thread->inside) return;
  MissGuard miss(*thread);
  unsigned flags = 0;
  int active = 0;
  if (driver_.primary_ctx_get_state != nullptr &&
      driver_.primary_ctx_get_state(device, &flags, &active) == CUDA_SUCCESS && active != 0) {
    return;
  }
  for (const CUcontext context : contexts_.of_device(device)) {
    calls_.on_context_destroy(contexts_.on_destroyed(context));
  }
}

}  // namespace gpuflight::capture
