// Counts launches per configuration instead of writing them: each second in black-box mode and while the log's bound
// is too small for events, and over the whole recording for its end.
//
// Threads: the recorder thread. Allocates when a configuration is first seen.
#pragma once

#include <cstdint>
#include <vector>

#include "event/events.h"

namespace gpuflight::recorder {

class Summariser {
 public:
  // False: no memory for it.
  bool add(const event::KernelLaunch& launch) noexcept {
    try {
      if (launch.config.value >= totals_.size()) totals_.resize(launch.config.value + 1);
      if (totals_[launch.config.value].count == 0) touched_.push_back(launch.config.value);
    } catch (...) {
      return false;
    }
    Totals& totals = totals_[launch.config.value];
    ++totals.count;
    totals.failed += launch.status.has_value() && *launch.status != 0;
    totals.captured += launch.captured;
    if (launch.call_ns) {
      totals.call_total_ns += static_cast<std::uint64_t>(*launch.call_ns);
      if (totals.call_min_ns < 0 || *launch.call_ns < totals.call_min_ns) totals.call_min_ns = *launch.call_ns;
      if (*launch.call_ns > totals.call_max_ns) totals.call_max_ns = *launch.call_ns;
    }
    return true;
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
      summary.call_total_ns = totals.call_total_ns;
      if (totals.call_min_ns >= 0) {
        summary.call_min_ns = totals.call_min_ns;
        summary.call_max_ns = totals.call_max_ns;
      }
      emit(summary);
      totals = {};
    }
    touched_.clear();
  }

 private:
  struct Totals {
    std::uint64_t count = 0, failed = 0, captured = 0, call_total_ns = 0;
    std::int64_t call_min_ns = -1, call_max_ns = -1;
  };
  std::vector<Totals> totals_;  // by configuration id
  std::vector<std::uint32_t> touched_;
};

}  // namespace gpuflight::recorder
