// The time of a launch: nanoseconds of CLOCK_MONOTONIC since the start of the recording, read from the processor's time
// stamp counter where that can be trusted. clock_gettime costs 50 to 70 ns in the virtual machines of the H200s measured
// (kvm-clock), the counter under 10, and a launch needs two.
//
// Threads: now_ns on any thread, wait-free; start and recalibrate on the recorder thread, which holds the counter against
// the clock once a round. Who comes in that instant tries a few times and then reads the clock itself: the recorder
// thread may have lost its processor half-way, and those who wait may be what keeps it from getting one. When the two
// part by more than kMostErrorNs (a suspended or migrated machine, a counter that is no clock) the clock itself is read
// from then on.
#pragma once

#include <atomic>
#include <cstdint>

#include "capture/hot_page.h"
#include "capture/system_clock.h"

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
  bool uses_counter() const noexcept { return page_.scale.load(std::memory_order_relaxed) != 0; }

  std::int64_t now_ns() const noexcept {
    std::int64_t now;
    return counter_ns(page_, now) ? now : clock_ns() - t0_ns_;
  }

  // The same from the counter alone; false: it is not in use, or not to be had now. Touches nothing but the page.
  static bool counter_ns(const HotPage& page, std::int64_t& now) noexcept {
#if defined(__x86_64__)
    return try_counter_ns(page, now) || counter_ns_again(page, now);
#else
    static_cast<void>(page), static_cast<void>(now);
    return false;
#endif
  }

 private:
  static constexpr std::int64_t kMostErrorNs = 100'000;

  struct Pair {
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;  // CLOCK_MONOTONIC
  };

#if defined(__x86_64__)
  [[gnu::always_inline]] static bool try_counter_ns(const HotPage& page, std::int64_t& now) noexcept {
    const std::uint32_t before = page.version.load(std::memory_order_acquire);
    const std::uint64_t base = page.base_ticks.load(std::memory_order_relaxed);
    const std::int64_t ns = page.base_ns.load(std::memory_order_relaxed);
    const std::uint64_t scale = page.scale.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (((before & 1) | (page.version.load(std::memory_order_relaxed) ^ before)) != 0 || scale == 0) [[unlikely]] {
      return false;
    }
    // Another core's counter may be a few ticks behind the base.
    const auto ticks = static_cast<std::int64_t>(__rdtsc() - base);
    now = ns + static_cast<std::int64_t>((static_cast<__int128>(ticks) * static_cast<std::int64_t>(scale)) >> 32);
    return true;
  }
  static bool counter_ns_again(const HotPage& page, std::int64_t& now) noexcept;  // a few times more
#endif
  static std::int64_t clock_ns() noexcept { return system_clock_ns(CLOCK_MONOTONIC); }
  static Pair read_pair() noexcept;
  static std::uint64_t scale_between(const Pair& a, const Pair& b) noexcept;
  void publish(const Pair& base, std::uint64_t scale) noexcept;

  const std::int64_t t0_ns_;
  HotPage& page_;
  Pair first_, last_;  // the rate is taken over 10 to 20 seconds
};

}  // namespace gpuflight::capture
