#include "recorder/gpu_timing.h"

#include "capture/system_clock.h"

namespace gpuflight::recorder {
namespace {

// A line is to be in the log a second after its kernel ended; a flush takes CUPTI's locks, which launches take too.
constexpr std::int64_t kFlushNs = 250'000'000;
constexpr std::int64_t kCrowdedFlushNs = 20'000'000;
constexpr std::int64_t kClockNs = 60'000'000'000;

capture::ActivitySource::Graphs graphs_of(const config::Options& options) {
  using capture::ActivitySource;
  switch (options.graphs) {
    case config::Graphs::kNode: return ActivitySource::Graphs::kNode;
    case config::Graphs::kGraph: return ActivitySource::Graphs::kGraph;
    case config::Graphs::kOff: return ActivitySource::Graphs::kOff;
    default: break;
  }
  return options.mode == config::Mode::kBlackbox ? ActivitySource::Graphs::kOff : ActivitySource::Graphs::kNode;
}

}  // namespace

GpuTiming::GpuTiming(const config::Options& options, std::int64_t t0_monotonic_ns, capture::NoticeBoard& notices)
    : timing_(options.timing), t0_monotonic_ns_(t0_monotonic_ns), notices_(notices) {
  settings_.graphs = graphs_of(options);
  // A black box has no lines for them.
  settings_.copies = options.mode == config::Mode::kStream;
}

void GpuTiming::start(const capture::SharedObject& library, std::uint32_t cupti_version) noexcept {
  try {
    library_ = library;
    cupti_version_ = cupti_version;
    if (timing_.on()) {
      if (start_source()) state_.store(State::kOn, std::memory_order_release);
      return;
    }
    settings_.before_graphs = false;
    if (settings_.graphs == capture::ActivitySource::Graphs::kGraph) settings_.graphs = capture::ActivitySource::Graphs::kOff;
  } catch (...) {
  }
}

bool GpuTiming::start_source() noexcept {
  try {
    std::string problem;
    if (!source_.start(library_, cupti_version_, settings_, t0_monotonic_ns_, problem)) {
      notices_.post(event::Severity::kWarning, "no_gpu_times", "GPU times are not recorded: " + problem);
      return false;
    }
    if (!problem.empty()) {
      notices_.post(event::Severity::kWarning, "some_gpu_times", "some GPU times are not recorded: " + problem);
    }
    return true;
  } catch (...) {
    return false;
  }
}

void GpuTiming::pause(std::int64_t now_ns) noexcept {
  paused_ = true;
  if (!on()) return;
  unseen_to_ns_.store(INT64_MAX, std::memory_order_relaxed);
  unseen_from_ns_.store(now_ns, std::memory_order_relaxed);
  state_.store(State::kPaused, std::memory_order_release);
  source_.stop();
}

void GpuTiming::resume(std::int64_t now_ns) noexcept {
  paused_ = false;
  if (state_.load(std::memory_order_acquire) != State::kPaused || !start_source()) return;
  unseen_to_ns_.store(now_ns, std::memory_order_relaxed);
  note_restarted();
}

bool GpuTiming::switch_to(bool on, std::int64_t now_ns) noexcept {
  if (paused_) return false;
  const State state = state_.load(std::memory_order_acquire);
  if (on == (state == State::kOn)) return true;
  if (!on) {
    untimed_to_ns_.store(INT64_MAX, std::memory_order_relaxed);
    untimed_from_ns_.store(now_ns, std::memory_order_relaxed);
    if (state == State::kGivenUp || state == State::kOff) return true;
    state_.store(State::kSwitchedOff, std::memory_order_release);
    source_.stop();
    return true;
  }
  // What was given up for its memory stays so: the kernel that holds CUPTI's buffers may still run.
  if (state == State::kGivenUp || !start_source()) return false;
  if (state == State::kOff) untimed_from_ns_.store(INT64_MIN, std::memory_order_relaxed);
  untimed_to_ns_.store(now_ns, std::memory_order_relaxed);
  until_ns_.store(INT64_MAX, std::memory_order_relaxed);
  if (state == State::kOff) {
    state_.store(State::kOn, std::memory_order_release);
  } else {
    note_restarted();
  }
  return true;
}

void GpuTiming::note_restarted() noexcept {
  resumed_.store(true, std::memory_order_relaxed);
  state_.store(State::kOn, std::memory_order_release);
  if (!graphs_lose_their_ids()) return;
  try {
    notices_.post(event::Severity::kInfo, "graph_ids",
                  "this CUPTI numbers graph launches wrongly once its activity was off: kernels of graphs are written "
                  "without their graph from here on; CUPTI 13.1 update 1 and later do not");
  } catch (...) {
  }
}

// Wrong correlation ids for graph launches after the first enable/disable round, mended in 13.1 update 1.
bool GpuTiming::graphs_lose_their_ids() const noexcept {
  return cupti_version_ >= 130000 && cupti_version_ < 130100 &&
         settings_.graphs == capture::ActivitySource::Graphs::kNode;
}

void GpuTiming::begin_round(Drain& drain, std::int64_t now_ns, bool asked, bool several) noexcept {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kOff) return;
  if (several && state == State::kOn) source_.tell_peer_copies();
  // Launches that wait for their times fill the rings: a fast program is asked for more often.
  const std::int64_t due_ns = drain.crowded() ? kCrowdedFlushNs : kFlushNs;
  // Switched off, what was asked for before still ends.
  const bool owed = state == State::kOn || (state != State::kGivenUp && drain.join().held() > 0);
  if (owed && (asked || now_ns - flushed_ns_ >= due_ns)) {
    source_.flush(false);
    flushed_ns_ = now_ns;
  }
  source_.fetch();
  drain.join().expect_unseen(unseen_from_ns_.load(std::memory_order_relaxed),
                             unseen_to_ns_.load(std::memory_order_relaxed));
  drain.join().sample(timing_.every);
  drain.join().expect_no_times(untimed_from_ns_.load(std::memory_order_relaxed),
                               untimed_to_ns_.load(std::memory_order_relaxed));
  drain.join().expect_times(until_ns_.load(std::memory_order_relaxed),
                            settings_.graphs == capture::ActivitySource::Graphs::kGraph);
  if (settings_.graphs == capture::ActivitySource::Graphs::kNode) {
    drain.node_events().expect(until_ns_.load(std::memory_order_relaxed),
                               untimed_from_ns_.load(std::memory_order_relaxed),
                               untimed_to_ns_.load(std::memory_order_relaxed));
  }
}

void GpuTiming::round(Drain& drain, std::int64_t now_ns) noexcept {
  if (resumed_.exchange(false, std::memory_order_relaxed) && graphs_lose_their_ids()) drain.join().distrust_graphs();
  if (state_.load(std::memory_order_acquire) == State::kOff) return;
  take(drain, now_ns);
  watch_bound(now_ns);
}

void GpuTiming::take(Drain& drain, std::int64_t now_ns) noexcept {
  source_.take([&](const capture::ActivityRecord& record) noexcept { drain.join().on_activity(record, now_ns); });
  const capture::ActivitySource::Counters counters = source_.counters();
  if (state_.load(std::memory_order_relaxed) == State::kGivenUp) return;  // of launches that nobody expects times of
  const std::uint64_t lost = counters.dropped + counters.unread;
  drain.note_gpu_records_lost(lost - counters.unread_nodes, counters.unread_nodes);
  if (lost == 0 || said_lost_) return;
  said_lost_ = true;
  try {
    notices_.post(event::Severity::kWarning, "gpu_records_lost",
                  counters.dropped > 0 ? "CUPTI dropped records of GPU work: their launches have no times"
                                       : "GPU work is reported faster than it can be taken: some launches have no times");
  } catch (...) {
  }
}

void GpuTiming::last_round(Drain& drain, std::int64_t now_ns) noexcept {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kOff) return;
  take(drain, now_ns);
  source_.flush(false);
  take(drain, now_ns);
  // What a kernel that still runs holds back in CUPTI's buffers comes only so, and its own record without times.
  if (drain.join().held() > 0) {
    source_.flush(true);
    take(drain, now_ns);
  }
}

void GpuTiming::watch_bound(std::int64_t now_ns) noexcept {
  if (!on() || source_.counters().over_bound == 0) return;
  until_ns_.store(now_ns, std::memory_order_relaxed);
  unseen_from_ns_.store(now_ns, std::memory_order_relaxed);
  state_.store(State::kGivenUp, std::memory_order_release);
  source_.stop();
  try {
    notices_.post(event::Severity::kWarning, "gpu_times_given_up",
                  "a kernel that runs for long holds back more of CUPTI's buffers than the bound allows: GPU times are "
                  "not recorded from here on, launches are");
  } catch (...) {
  }
}

void GpuTiming::write_clock(Drain& drain, const capture::LaunchClock& clock, std::int64_t now_ns) noexcept {
  if (now_ns < clock_due_ns_) return;
  clock_due_ns_ = now_ns + kClockNs;
  event::ClockEvent best;
  // The closest of a few: whoever takes the processor away in between makes the pair wide.
  for (int i = 0; i < 5; ++i) {
    event::ClockEvent pair;
    const std::int64_t before_ns = capture::system_clock_ns(CLOCK_MONOTONIC);
    pair.time_ns = clock.now_ns();
    pair.unix_ns = capture::system_clock_ns(CLOCK_REALTIME);
    const std::int64_t after_ns = capture::system_clock_ns(CLOCK_MONOTONIC);
    pair.monotonic_ns = before_ns + (after_ns - before_ns) / 2;
    pair.error_ns = after_ns - before_ns;
    pair.drift_ns = pair.time_ns + t0_monotonic_ns_ - pair.monotonic_ns;
    if (i == 0 || pair.error_ns < best.error_ns) best = pair;
  }
  drain.write_clock(best);
}

}  // namespace gpuflight::recorder
