// How often launches may be timed by events: what that cost is held against all launches, and when it is too much every
// thread times half as many from then on.
//
// Threads: the recorder thread only; the interval is read by all. Blocks, allocates: no.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuflight::capture {

class EventBudget {
 public:
  static constexpr std::int64_t kMostNsPerLaunch = 20;    // in the mean over all launches
  static constexpr std::uint64_t kFewestLaunches = 4096;  // the first ones pay for making the events
  static constexpr std::uint32_t kLongest = 1u << 30;

  explicit EventBudget(std::uint32_t every) : every_(every) {}

  std::uint32_t every() const noexcept { return every_.load(std::memory_order_relaxed); }

  // What all launches so far have cost. What was spent too much at first is saved later, so a stretch that keeps well
  // within the bound by itself is left alone.
  void note(std::uint64_t launches, std::int64_t cost_ns) noexcept {
    const std::uint64_t more = launches - launches_;
    if (more < kFewestLaunches) return;
    const std::int64_t spent = cost_ns - cost_ns_;
    launches_ = launches;
    cost_ns_ = cost_ns;
    const bool now = spent > static_cast<std::int64_t>(more) * kMostNsPerLaunch / 2;
    const bool ever = cost_ns > static_cast<std::int64_t>(launches) * kMostNsPerLaunch;
    if (now && ever && every() < kLongest) every_.store(2 * every(), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> every_;
  std::uint64_t launches_ = 0;
  std::int64_t cost_ns_ = 0;
};

}  // namespace gpuflight::capture
