// The recorder thread's rounds: what is done in each, and at the end.
#include <algorithm>
#include <cstring>

#include "recorder/mutex_lock.h"
#include "recorder/recorder.h"

namespace gpuflight::recorder {

namespace {

// While many launches wait for their times: less of CUPTI's memory waits with them.
constexpr std::uint64_t kCrowdedSleepMs = 20;

}  // namespace

void Recorder::loop() noexcept {
  announce_to_run();
  sink_.begin(drain_->prologue());
  for (std::size_t i = 0; i < problems_.lines.size(); ++i) {
    event::Notice notice;
    notice.severity = event::Severity::kWarning;
    notice.code = "option";
    try {
      notice.message = problems_.lines[i];
      if (i + 1 == problems_.lines.size() && problems_.omitted > 0) {
        notice.message += " (and " + std::to_string(problems_.omitted) + " more)";
      }
    } catch (...) {
    }
    if (options_.verbose) say_aloud(notice.message);
    drain_->say(std::move(notice));
  }
  begin_budget();
  rings_->make_ready(1);
  for (bool stop = false; !stop;) {
    bool asked = false, last = false;
    {
      MutexLock lock(mutex_);
      if (!stop_ && !round_wanted_) {
        // With rings filling fast there is no sleep: half a pool is what a burst may need.
        if (rings_->free_chunks() > file_.chunk_count() / 2 && !gpu_->behind()) {
          const timespec deadline =
              deadline_in(drain_->crowded() ? std::min(options_.flush_ms, kCrowdedSleepMs) : options_.flush_ms);
          pthread_cond_timedwait(&wake_, &mutex_, &deadline);
        }
      }
      stop = stop_;
      asked = round_wanted_;
      last = last_round_wanted_;
      round_wanted_ = last_round_wanted_ = false;
      ++rounds_begun_;
    }
    file_.header().heartbeat_ns.store(static_cast<std::uint64_t>(launches_->now_ns()), std::memory_order_relaxed);
    // Asked for before the rings are read: what was recorded by then is in the dump.
    const bool dump_wanted = dump_wanted_.exchange(false, std::memory_order_acq_rel);
    const auto command =
        static_cast<flight::ControlCommand>(file_.header().control.load(std::memory_order_acquire));
    say_notices();
    clock_->recalibrate();
    watch_->begin_round(launches_->now_ns());
    gpu_->begin_round(*drain_, launches_->now_ns(), asked, devices_->several());
    event_times_->begin_round();
    // What makes it last is what a budget is to put right.
    rings_->make_ready(drain_->round(budget_ != nullptr && !asked));
    event_times_->round(*drain_);
    fetch_gpu_times(last);
    watch_round();
    if (dump_wanted) dump_asked_by_program();
    obey_control(command);
    write_forks();
    budget_round();
    drain_->write_due_summaries(false);
    drain_->write_losses();
    {
      MutexLock lock(mutex_);
      rounds_done_ = rounds_begun_;
      last_ledger_ = drain_->ledger();
      pthread_cond_broadcast(&changed_);
    }
  }
}

void Recorder::fetch_gpu_times(bool last) noexcept {
  const std::int64_t now = launches_->now_ns();
  if (last) {
    gpu_->last_round(*drain_, now);
    drain_->finish_times();
  } else {
    gpu_->round(*drain_, now);
  }
  drain_->settle();
  gpu_->write_clock(*drain_, *clock_, now);
}

// What has gone wrong, and the dump that it is a reason for.
void Recorder::watch_round() noexcept {
  IncidentWatch::Incidents incidents = watch_->end_round(drain_->waiting(), launches_->now_ns());
  const bool trouble = incidents.any_begun();
  const bool error = !incidents.errors.empty();
  if (!incidents.errors.empty() || !incidents.hangs.empty()) drain_->write_incidents(std::move(incidents));
  if (trouble) dump(error ? "a CUDA error" : "a hang");
  if (drain_->take_rule_match()) {
    // A rule that matches all the time would write everything after all.
    constexpr std::int64_t kBetweenDumpsNs = 10'000'000'000;
    const std::int64_t now = launches_->now_ns();
    if (last_dump_ns_ == 0 || now - last_dump_ns_ >= kBetweenDumpsNs) dump("dump_when matched");
  }
}

StartResult Recorder::dump(const char* reason) noexcept {
  drain_->dump(reason);
  last_dump_ns_ = launches_->now_ns();
  return StartResult::kStarted;
}

void Recorder::write_forks() noexcept {
  if (forks_ == nullptr) return;
  const std::uint32_t missed = forks_->take([&](ForkBoard::Fork fork) {
    drain_->write_fork({{}, fork.monotonic_ns - t0_monotonic_ns_, fork.child_pid});
  });
  if (missed > 0) {
    say(event::Severity::kInfo, "forks_missed",
        std::to_string(missed) + " forks came too fast to be written one by one");
  }
}

// A command that another process wrote into the flight file.
void Recorder::obey_control(flight::ControlCommand command) noexcept {
  using flight::ControlCommand;
  using flight::ControlResult;
  flight::Header& header = file_.header();
  // Who had sent it may have given up and another have come.
  auto sent = static_cast<std::uint32_t>(command);
  if (command == ControlCommand::kNone || header.control.load(std::memory_order_acquire) != sent) return;
  StartResult result = StartResult::kStarted;
  ControlResult answer = ControlResult::kDone;
  switch (command) {
    case ControlCommand::kDump:
      result = dump("asked for from outside");
      break;
    case ControlCommand::kPause:
      result = pause(false);
      break;
    case ControlCommand::kPauseRelease:
      result = pause(true);
      break;
    case ControlCommand::kResume:
      result = resume();
      break;
    case ControlCommand::kTimingOff:
    case ControlCommand::kTimingOn:
      result = switch_timing(command == ControlCommand::kTimingOn);
      break;
    default:
      answer = ControlResult::kUnknown;
      break;
  }
  if (result == StartResult::kSlotTaken) {
    answer = ControlResult::kSlotTaken;
  } else if (result != StartResult::kStarted) {
    answer = ControlResult::kRefused;
  }
  header.control_result.store(static_cast<std::uint32_t>(answer), std::memory_order_relaxed);
  header.control_done.fetch_add(1, std::memory_order_release);
  header.control.compare_exchange_strong(sent, static_cast<std::uint32_t>(ControlCommand::kNone),
                                         std::memory_order_release, std::memory_order_relaxed);
}

void Recorder::end_session() noexcept {
  const bool dump_wanted = dump_wanted_.exchange(false, std::memory_order_acq_rel);
  watch_->begin_round(launches_->now_ns());
  drain_->round();
  watch_round();
  if (dump_wanted) dump_asked_by_program();
  write_forks();
  if (const std::uint64_t refused = scopes_->refused(); refused > 0) {
    say(event::Severity::kInfo, "scopes_refused", std::to_string(refused) + " scopes and marks had no place in the table");
  }
  end_budget();
  say_notices();
  event::SessionEnd end;
  end.reason = end_reason_;
  end.recorder_cpu_ns = thread_.cpu_ns();
  end.added_ns_per_launch = launches_->cost().median_ns();
  const Drain::Counts& counts = drain_->counts();
  end.launches = counts.launches;
  end.graph_launches = counts.graph_launches;
  end.captured = counts.captured;
  end.failed = counts.failed;
  end.graph_kernels = counts.graph_kernels;
  end.unlaunched = counts.unlaunched;
  end.replayed_kernels = counts.replayed_kernels;
  end.event_times = event_times_->totals();
  end.kernels = kernels_->kernels();
  end.configs = kernels_->configs();
  drain_->write_end(std::move(end));
  file_.header().state.store(static_cast<std::uint32_t>(flight::SessionState::kClosed), std::memory_order_release);
  const event::Ledger ledger = drain_->ledger();
  // Black box: the last events are in the flight file only. Events lost or pending: what is there is evidence.
  if (options_.mode == config::Mode::kStream && ledger.pending == 0 && ledger.lost_total() == 0) {
    file_.release_unused(kernels_->kernels() + 1, kernels_->configs() + 1,
                         [&](std::uint32_t chunk) { return drain_->chunk_needed(chunk); });
  }
  sink_.close(exit_timeout_ms() / 2);
  MutexLock lock(mutex_);
  last_ledger_ = ledger;
}

}  // namespace gpuflight::recorder
