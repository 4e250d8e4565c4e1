// A budget for the recorder's own cost: once a second it is looked at what was made and what that cost, and the recording
// goes to the level that fits.
#include <charconv>

#include "recorder/recorder.h"

namespace gpuflight::recorder {
namespace {

constexpr std::int64_t kPeriodNs = 1'000'000'000;
constexpr int kMostProbes = 3;

// Figures of one machine, the H200 of docs/measurements.md ("Cost of GPU times", by the least): what cannot be
// measured in a program without launching for it.
constexpr double kCallbackNs = 290;         // where it cannot be measured in the process
constexpr double kGpuTimesNs = 780;         // callback and activity 1,070, of it the callback 290
constexpr double kGraphCallbackNs = 17'500;  // of a graph of 100 nodes: 18,777 against 1,249 bare
constexpr double kNodeTimesNs = 570;        // 75,594 against 18,777, for 100 nodes
// Of our own part, until enough launches were timed (docs/measurements.md, "launch_cost").
constexpr double kOwnNs = 60;

std::string percent_text(double percent) {
  // Not printf, which writes a decimal comma where the host's locale says so.
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, percent, std::chars_format::general, 3);
  return std::string(text, end.ptr);
}

}  // namespace

CostMeans Recorder::cost_means() const noexcept {
  CostMeans means;
  std::string ignored;
  means.lines = options_.mode == config::Mode::kStream;
  means.times = gpu_->on() || times_held_;
  means.cupti = source_ == cupti_.get() || hooks_held_;
  means.hooks = hooks_held_ || (means.cupti && options_.capture == config::Capture::kAuto &&
                                interpose_->usable(ignored));
  return means;
}

// What a callback costs is measured once, when the program has begun to make calls: CUDA is ready then.
CostRates Recorder::cost_rates(const CostPeriod& period) noexcept {
  CostRates rates;
  rates.own_ns = static_cast<double>(launches_->cost().median_ns().value_or(static_cast<std::int64_t>(kOwnNs)));
  if (!callback_ns_ && probes_ < kMostProbes && period.calls > 0 && source_ == cupti_.get()) {
    ++probes_;
    callback_ns_ = cupti_->measure_callback_ns(driver_);
  }
  rates.callback_ns = callback_ns_.value_or(kCallbackNs);
  rates.graph_callback_ns = kGraphCallbackNs;
  rates.gpu_times_ns = kGpuTimesNs;
  rates.node_times_ns = kNodeTimesNs;
  rates.processors = processors_;
  return rates;
}

std::uint64_t Recorder::own_cpu_ns() const noexcept { return thread_.cpu_ns() + sink_.compressor_cpu_ns(); }

void Recorder::begin_budget() noexcept {
  if (!options_.budget.on()) return;
  try {
    budget_ = std::make_unique<CostBudget>(options_.budget.percent);
    meter_ = std::make_unique<CostMeter>(*rings_);
  } catch (...) {
    budget_.reset();
    return;
  }
  processors_ = usable_processors();
  meter_->skip(launches_->now_ns(), drain_->counts(), own_cpu_ns());
}

void Recorder::budget_round() noexcept {
  if (!budget_ || exiting_.load(std::memory_order_acquire)) return;
  const std::int64_t now = launches_->now_ns();
  if (now - meter_->last_ns() < kPeriodNs) return;
  // Whoever controls the recording meanwhile may be waiting for this very thread.
  if (pthread_mutex_trylock(&control_) != 0) return;
  const bool paused = file_.header().state.load(std::memory_order_relaxed) ==
                      static_cast<std::uint32_t>(flight::SessionState::kPaused);
  if (finished_ || paused) {
    meter_->skip(now, drain_->counts(), own_cpu_ns());
  } else {
    judge_cost(meter_->read(now, drain_->counts(), own_cpu_ns()));
  }
  pthread_mutex_unlock(&control_);
}

void Recorder::judge_cost(const CostPeriod& period) noexcept {
  follow_resume();
  const CostRates rates = cost_rates(period);
  const CostBudget::Verdict verdict = budget_->judge(period, rates, cost_means());
  if (verdict.unattainable) {
    try {
      say(event::Severity::kWarning, "budget_unattainable",
          "the budget of " + percent_text(budget_->percent()) + " % is unattainable, floor " +
              percent_text(verdict.floor_percent) + " %: the recording stays at its lowest level");
    } catch (...) {
    }
  }
  const event::RecordLevel before = budget_->level();
  if (verdict.level == before) return;
  if (!go_to_level(verdict.level)) return budget_->refused();
  budget_->moved_to(verdict.level);
  write_level(before, verdict.level, verdict.reason, verdict.share, verdict.floor_percent);
}

// At the level of the hooks somebody else had the slot, and has given it back: launches are seen by CUPTI again.
void Recorder::follow_resume() noexcept {
  using event::RecordLevel;
  if (budget_->level() != RecordLevel::kHooks || source_ != cupti_.get()) return;
  budget_->moved_to(RecordLevel::kSummaries);
  drain_->set_level(RecordLevel::kSummaries);
  write_level(RecordLevel::kHooks, RecordLevel::kSummaries, event::LevelEvent::Reason::kFits, {}, 0);
}

// Times by events are told at level `events` only. With control_ held.
void Recorder::hold_event_times() noexcept {
  if (events_) events_->enable(!below_events_ && source_ == interpose_.get());
}

// With control_ held. What somebody else has switched off stays off.
bool Recorder::go_to_level(event::RecordLevel level) noexcept {
  using event::RecordLevel;
  const std::int64_t now = launches_->now_ns();
  const bool held_before = times_held_;
  if (level != RecordLevel::kEvents && gpu_->on()) times_held_ = gpu_->switch_to(false, now) || times_held_;
  if (level == RecordLevel::kHooks && !stands_in_) {
    if (!switch_to_hooks("until the budget of the recorder's cost allows more")) {
      if (times_held_ && !held_before) times_held_ = !gpu_->switch_to(true, now);
      return false;
    }
    hooks_held_ = true;
  }
  if (level != RecordLevel::kHooks && hooks_held_) {
    if (switch_to_cupti() != StartResult::kStarted) return false;
    hooks_held_ = false;
  }
  // Not while it is paused: resume does it then.
  if (level == RecordLevel::kEvents && times_held_) times_held_ = !gpu_->switch_to(true, now);
  drain_->set_level(level);
  below_events_ = level != RecordLevel::kEvents;
  hold_event_times();
  return true;
}

// What the budget wanted on again while it could not be.
void Recorder::resume_times() noexcept {
  if (times_held_ && budget_ && budget_->level() == event::RecordLevel::kEvents && source_ == cupti_.get()) {
    times_held_ = !gpu_->switch_to(true, launches_->now_ns());
  }
}

void Recorder::write_level(event::RecordLevel from, event::RecordLevel to, event::LevelEvent::Reason reason,
                           const CostShare& share, double floor_percent) noexcept {
  end_bursts();  // launches are to lie on the right side of the change
  event::LevelEvent line;
  line.time_ns = launches_->now_ns();
  line.from = from;
  line.to = to;
  line.reason = reason;
  line.budget_percent = budget_->percent();
  line.app_percent = share.app_percent;
  line.recorder_percent = share.recorder_percent;
  line.floor_percent = floor_percent;
  drain_->write_level(line);
}

// What it cost over the whole recording.
void Recorder::end_budget() noexcept {
  if (!budget_) return;
  const CostPeriod rest = meter_->read(launches_->now_ns(), drain_->counts(), own_cpu_ns());
  const CostRates rates = cost_rates({});
  budget_->add(rest, rates, cost_means());
  const event::RecordLevel level = budget_->level();
  write_level(level, level, event::LevelEvent::Reason::kEnd, budget_->mean(), budget_->mean_floor_percent());
}

}  // namespace gpuflight::recorder
