// Counts launches per configuration instead of writing them: each second in black-box mode and while the log's bound
// is too small for events, and over the whole recording for its end.
//
// Threads: the recorder thread. Allocates when a configuration is first seen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "event/events.h"
#include "event/quantile_sketch.h"

namespace gpuflight::recorder {

class Summariser {
 public:
  static constexpr std::size_t kMostBuckets = 262'144;  // of all sketches; 4 MB

  // False: no memory for it.
  bool add(const event::KernelLaunch& launch) noexcept {
    try {
      if (launch.config.value >= totals_.size()) totals_.resize(launch.config.value + 1);
      const Totals& known = totals_[launch.config.value];
      if (known.count == 0 && !known.times) touched_.push_back(launch.config.value);
    } catch (...) {
      return false;
    }
    Totals& totals = totals_[launch.config.value];
    ++totals.count;
    totals.failed += launch.status.has_value() && *launch.status != 0;
    totals.captured += launch.captured;
    if (launch.call_ns) {
      totals.call_total_ns += static_cast<std::uint64_t>(*launch.call_ns);
      ++totals.calls_timed;
      if (totals.call_min_ns < 0 || *launch.call_ns < totals.call_min_ns) totals.call_min_ns = *launch.call_ns;
      if (*launch.call_ns > totals.call_max_ns) totals.call_max_ns = *launch.call_ns;
    }
    return true;
  }

  // The times of a launch, which may have been counted in an earlier second.
  void add_time(const event::KernelLaunch& launch) noexcept {
    const event::MaybeNs known = launch.gpu_ns();
    if (!known) return;
    const std::int64_t duration = *known;
    try {
      const std::uint32_t config = launch.config.value;
      if (config >= totals_.size()) totals_.resize(config + 1);
      Totals& totals = totals_[config];
      if (totals.count == 0 && !totals.times) touched_.push_back(config);
      if (!totals.times) totals.times = std::make_unique<Times>();
      Times& times = *totals.times;
      if (times.durations.count() == 0 || duration < times.min_ns) times.min_ns = duration;
      if (duration > times.max_ns) times.max_ns = duration;
      times.total_ns += duration;
      times.durations.add(duration, buckets_);
    } catch (...) {
    }
  }

  // A launch of a graph whose kernels have neither records nor events of their own.
  void add_replay(event::ContentsId contents) noexcept {
    try {
      if (contents.value >= replays_.size()) replays_.resize(contents.value + 1);
      if (replays_[contents.value]++ == 0) replayed_.push_back(contents);
    } catch (...) {
    }
  }

  // Of what has been added so: `contents_of(id)` says what each ran.
  template <class ContentsOf>
  void count_replays(ContentsOf&& contents_of) noexcept {
    for (const event::ContentsId id : replayed_) {
      const std::uint64_t times = std::exchange(replays_[id.value], 0);
      if (const event::GraphContents* const contents = contents_of(id)) {
        for (const event::GraphKernel& kernel : contents->kernels) add_replayed(kernel.config, times * kernel.count);
      }
    }
    replayed_.clear();
  }

  bool empty() const noexcept { return touched_.empty(); }

  // Hands each configuration seen since the last call to `emit`, and forgets it.
  template <class Emit>
  void take(std::int64_t from_ns, std::int64_t to_ns, Emit&& emit) {
    for (const std::uint32_t config : touched_) {
      Totals& totals = totals_[config];
      event::KernelSummary summary;
      summary.config = event::ConfigId{config};
      summary.from_ns = from_ns;
      summary.to_ns = to_ns;
      summary.count = totals.count;
      summary.failed = totals.failed;
      summary.captured = totals.captured;
      summary.replayed = totals.replayed;
      summary.call_total_ns = totals.call_total_ns;
      summary.calls_timed = totals.calls_timed;
      if (totals.call_min_ns >= 0) {
        summary.call_min_ns = totals.call_min_ns;
        summary.call_max_ns = totals.call_max_ns;
      }
      if (totals.times) {
        const Times& times = *totals.times;
        summary.timed = times.durations.count();
        summary.total_ns = times.total_ns;
        summary.min_ns = times.min_ns;
        summary.max_ns = times.max_ns;
        // The sketch is right to 1 %, the ends are exact.
        const auto quantile = [&](double q) {
          const auto ns = static_cast<std::int64_t>(std::llround(times.durations.quantile(q).value_or(0)));
          return std::clamp(ns, times.min_ns, times.max_ns);
        };
        summary.p50_ns = quantile(0.5);
        summary.p95_ns = quantile(0.95);
        summary.p99_ns = quantile(0.99);
      }
      emit(summary);
      if (totals.times) buckets_.buckets += totals.times->durations.buckets();
      totals = {};
    }
    touched_.clear();
  }

 private:
  void add_replayed(event::ConfigId config, std::uint64_t count) noexcept {
    try {
      if (config.value >= totals_.size()) totals_.resize(config.value + 1);
      Totals& totals = totals_[config.value];
      if (totals.count == 0 && !totals.times) touched_.push_back(config.value);
      totals.count += count;
      totals.replayed += count;
    } catch (...) {
    }
  }

  struct Times {
    std::int64_t total_ns = 0, min_ns = 0, max_ns = 0;
    event::QuantileSketch durations;
  };
  struct Totals {
    std::uint64_t count = 0, failed = 0, captured = 0, replayed = 0, call_total_ns = 0, calls_timed = 0;
    std::int64_t call_min_ns = -1, call_max_ns = -1;
    std::unique_ptr<Times> times;  // null: none known
  };
  std::vector<Totals> totals_;  // by configuration id
  std::vector<std::uint32_t> touched_;
  std::vector<std::uint64_t> replays_;  // by number of the contents
  std::vector<event::ContentsId> replayed_;
  event::SketchBudget buckets_{kMostBuckets};
};

}  // namespace gpuflight::recorder
