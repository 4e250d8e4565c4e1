// What the recorder costs the program, read off what it counts anyhow: how many records the program's threads made since
// the last reading, and what CPU time our own threads took.
//
// Threads: the recorder thread only. Blocks: no, but for reading a file of the control group once. Allocates a number
// for each thread slot.
#pragma once

#include <cstdint>
#include <vector>

#include "flight/ring.h"
#include "recorder/cost_budget.h"
#include "recorder/drain.h"

namespace gpuflight::recorder {

// Processors that the process may use: by its mask and by the quota of its control group, at least 1.
std::uint32_t usable_processors() noexcept;

class CostMeter {
 public:
  explicit CostMeter(const flight::RingSet& rings) noexcept : rings_(rings) {}

  // What came since the last call.
  CostPeriod read(std::int64_t now_ns, const Drain::Counts& counts, std::uint64_t recorder_cpu_ns) noexcept;
  // Forgets what came since then.
  void skip(std::int64_t now_ns, const Drain::Counts& counts, std::uint64_t recorder_cpu_ns) noexcept {
    static_cast<void>(read(now_ns, counts, recorder_cpu_ns));
  }
  std::int64_t last_ns() const noexcept { return last_ns_; }

 private:
  const flight::RingSet& rings_;
  std::vector<std::uint64_t> seen_;  // by slot
  Drain::Counts counts_;
  std::uint64_t cpu_ns_ = 0;
  std::int64_t last_ns_ = 0;
};

}  // namespace gpuflight::recorder
