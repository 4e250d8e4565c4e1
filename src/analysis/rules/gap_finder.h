// Finds when a device had nothing to do, and why, by what the launching thread did meanwhile. Fed in order of time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "analysis/rules/rule.h"

namespace gpuflight::analysis::rules {

class GapFinder {
 public:
  void saw_call(const HostCall& call);
  // The gap that `work` ends, if its device was idle before. Adds to `totals` what is known of the device.
  std::optional<Gap> saw_work(const GpuWork& work, DeviceTotals& totals);

 private:
  static constexpr std::size_t kRecent = 32, kMaxThreads = 4096;
  struct Recent {  // ring
    std::array<HostCall, kRecent> calls;
    std::uint64_t count = 0;
  };
  void explain(Gap& gap, const GpuWork& after) const;

  std::unordered_map<std::uint32_t, Recent> threads_;
  std::int64_t untimed_ns_ = kNoTime;                 // the latest launch of a kernel without times
  std::unordered_map<std::int32_t, GpuWork> latest_;  // by device: that ends last so far
};

}  // namespace gpuflight::analysis::rules
