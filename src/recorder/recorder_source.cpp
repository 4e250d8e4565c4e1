// Which source sees the launches: CUPTI, or the hooks of the driver's entry points; and how one follows the other.
#include "recorder/recorder.h"

namespace gpuflight::recorder {

// Which of the two sees the launches, and why.
StartResult Recorder::choose_source() {
  std::string no_hooks;
  const bool hooks = options_.capture != config::Capture::kCupti && interpose_->usable(no_hooks);
  const bool asked = options_.capture == config::Capture::kInterpose;
  if (asked && !hooks) {
    say(event::Severity::kError, "no_hooks",
        no_hooks + ": launches are not recorded; start the program with 'gpuflight run'");
    source_ = interpose_.get();
    return StartResult::kNoCupti;
  }
  if (hooks && (asked || !options_.timing.on())) {
    source_ = interpose_.get();
    source_reason_ = asked ? "asked for" : "timing is off";
    return start_source();
  }
  source_ = cupti_.get();
  source_reason_ = options_.capture == config::Capture::kCupti ? "asked for"
                   : options_.timing.on()                      ? "GPU times are wanted"
                                                               : no_hooks;
  if (!hooks) return start_source();
  std::string problem;
  const StartResult result = start_cupti(problem);
  if (result == StartResult::kStarted) return result;
  source_ = interpose_.get();
  source_reason_ = result == StartResult::kSlotTaken ? "CUPTI's subscriber slot is taken" : "CUPTI cannot be used";
  say(event::Severity::kWarning, "no_gpu_times",
      "GPU times are not recorded, launches are seen by the driver's entry points: " + problem);
  return start_source();
}

// Asked for, and of no use where CUPTI tells of launches.
void Recorder::say_if_no_event_times() noexcept {
  if (options_.event_times.every == 0 || source_ != cupti_.get()) return;
  say(event::Severity::kInfo, "event_times",
      options_.timing.on() ? "event_times has no effect: launches are seen through CUPTI, which tells their GPU times"
                           : "event_times has no effect: launches are seen through CUPTI; capture=interpose takes the hooks");
}

StartResult Recorder::start_cupti(std::string& problem) noexcept {
  switch (cupti_->start(problem)) {
    case capture::SourceStatus::kOk:
      file_.header().state.store(static_cast<std::uint32_t>(flight::SessionState::kRecording),
                                 std::memory_order_release);
      return StartResult::kStarted;
    case capture::SourceStatus::kSlotTaken: return StartResult::kSlotTaken;
    default: return StartResult::kNoCupti;
  }
}

// The one that was chosen, at the start and after each pause.
StartResult Recorder::start_source() noexcept {
  std::string problem;
  if (source_ == cupti_.get()) {
    const StartResult result = start_cupti(problem);
    if (result != StartResult::kStarted) {
      say_because(event::Severity::kError, result == StartResult::kSlotTaken ? "cupti_slot_taken" : "no_cupti",
                  "launches are not recorded: ", problem);
    }
    return result;
  }
  if (interpose_->start(problem) != capture::SourceStatus::kOk) {
    say(event::Severity::kError, "no_hooks", std::move(problem));
    return StartResult::kNoCupti;
  }
  file_.header().state.store(static_cast<std::uint32_t>(flight::SessionState::kRecording), std::memory_order_release);
  return StartResult::kStarted;
}

// CUPTI is given up, for another client or for its cost, and launches are seen all the same. False: they cannot be.
bool Recorder::switch_to_hooks(const char* until) noexcept {
  if (stands_in_) return true;
  std::string problem;
  if (source_ != cupti_.get() || options_.capture != config::Capture::kAuto) return false;
  if (!interpose_->usable(problem)) return false;
  cupti_->share(true);
  const bool started = interpose_->take_over(*cupti_, problem) == capture::SourceStatus::kOk;
  if (started) {
    const std::int64_t now = launches_->now_ns();
    cupti_->stop(true);
    gpu_->pause(now);
    launches_->on_resumed_blind();
    source_ = interpose_.get();
    stands_in_ = true;
    say_because(event::Severity::kInfo, "hooks_stand_in", "CUPTI is given up: launches are seen by the driver's entry "
                "points, without GPU times, ", until);
  }
  cupti_->share(false);
  return started;
}

// Where the slot stays with the other client the hooks stay too.
StartResult Recorder::switch_to_cupti() noexcept {
  std::string problem;
  cupti_->share(true);
  const StartResult result = start_cupti(problem);
  if (result == StartResult::kStarted) {
    interpose_->stop(true);
    launches_->on_resumed_blind();
    source_ = cupti_.get();
    stands_in_ = false;
    gpu_->resume(launches_->now_ns());
    say_because(event::Severity::kInfo, "cupti_again", "launches are seen through CUPTI again", {});
  } else {
    std::string ignored;
    interpose_->start(ignored);  // after a pause
    file_.header().state.store(static_cast<std::uint32_t>(flight::SessionState::kRecording), std::memory_order_release);
    say_because(event::Severity::kWarning, "cupti_slot_taken",
                "launches are still seen by the driver's entry points, without GPU times: ", problem);
  }
  cupti_->share(false);
  watch_->on_resumed(launches_->now_ns());
  return result;
}

}  // namespace gpuflight::recorder
