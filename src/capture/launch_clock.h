// The time of a launch: nanoseconds of CLOCK_MONOTONIC since the start of the recording, read from the processor's time
// stamp counter where that can be trusted. clock_gettime costs 50 to 70 ns in the virtual machines of the H200s measured
// (kvm-clock), the counter under 10, and a launch needs two.
//
// Threads: now_ns on any thread, wait-free but for a retry in the instant of a recalibration; start and recalibrate on
// the recorder thread, which holds the counter against the clock once a round. When the two part by more than
// kMostErrorNs (a suspended or migrated machine, a counter that is no clock) the clock itself is read from then on.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "capture/hot_page.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gpuflight::capture {

class LaunchClock {
 public:
  LaunchClock(std::int64_t t0_monotonic_ns, HotPage& page) : t0_ns_(t0_monotonic_ns), page_(page), first_(read_pair()) {}

  // At least a few milliseconds after construction; waits for them if need be.
  void start() noexcept;
  void recalibrate() noexcept;
  bool uses_counter() const noexcept { return page_.counter.load(std::memory_order_relaxed) != 0; }

  std::int64_t now_ns() const noexcept {
#if defined(__x86_64__)
    if (page_.counter.load(std::memory_order_acquire) != 0) [[likely]] {
      for (;;) {
        const std::uint32_t before = page_.version.load(std::memory_order_acquire);
        const std::uint64_t base = page_.base_ticks.load(std::memory_order_relaxed);
        const std::int64_t ns = page_.base_ns.load(std::memory_order_relaxed);
        const std::uint64_t scale = page_.scale.load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if ((before & 1) == 0 && page_.version.load(std::memory_order_relaxed) == before) [[likely]] {
          // Another core's counter may be a few ticks behind the base.
          const auto ticks = static_cast<std::int64_t>(__rdtsc() - base);
          return ns + static_cast<std::int64_t>((static_cast<__int128>(ticks) * static_cast<std::int64_t>(scale)) >> 32);
        }
      }
    }
#endif
    return clock_ns() - t0_ns_;
  }

 private:
  static constexpr std::int64_t kMostErrorNs = 100'000;

  struct Pair {
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;  // CLOCK_MONOTONIC
  };

  static std::int64_t clock_ns() noexcept {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  static Pair read_pair() noexcept;
  static std::uint64_t scale_between(const Pair& a, const Pair& b) noexcept;
  void publish(const Pair& base, std::uint64_t scale) noexcept;

  const std::int64_t t0_ns_;
  HotPage& page_;
  Pair first_, last_;  // the rate is taken over 10 to 20 seconds
};

}  // namespace gpuflight::capture
