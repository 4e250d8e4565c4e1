#include "capture/launch_clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gpuflight::capture {
namespace {

constexpr std::int64_t kShortestBaselineNs = 3'000'000;
constexpr std::int64_t kLongestBaselineNs = 10'000'000'000;

// The counter runs at one rate in all states of the processor (CPUID 80000007h, EDX bit 8). Some virtual machines hide
// the bit though the hardware has it; there the recalibration is what it has to stand up to.
bool counter_may_serve() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0) return true;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 31)) != 0;  // a hypervisor is there
#else
  return false;
#endif
}

}  // namespace

#if defined(__x86_64__)
[[gnu::cold, gnu::noinline]] bool LaunchClock::counter_ns_again(const HotPage& page, std::int64_t& now) noexcept {
  for (int tries = 0; tries < 15 && page.scale.load(std::memory_order_relaxed) != 0; ++tries) {
    if (try_counter_ns(page, now)) return true;
  }
  return false;
}
#endif

// Counter and clock at one instant: of a few tries the one least disturbed.
LaunchClock::Pair LaunchClock::read_pair() noexcept {
  Pair best;
#if defined(__x86_64__)
  std::uint64_t narrowest = ~std::uint64_t{0};
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = __rdtsc();
    const std::int64_t ns = clock_ns();
    const std::uint64_t after = __rdtsc();
    if (after - before < narrowest) {
      narrowest = after - before;
      best = {before + narrowest / 2, ns};
    }
  }
#else
  best.ns = clock_ns();
#endif
  return best;
}

std::uint64_t LaunchClock::scale_between(const Pair& a, const Pair& b) noexcept {
  if (b.ticks <= a.ticks || b.ns <= a.ns) return 0;
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(b.ns - a.ns) << 32) / (b.ticks - a.ticks));
}

void LaunchClock::start() noexcept {
  if (!counter_may_serve()) return;
  const std::int64_t waited = clock_ns() - first_.ns;
  if (waited < kShortestBaselineNs) {
    const timespec rest{0, static_cast<long>(kShortestBaselineNs - waited)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, nullptr);
  }
  last_ = read_pair();
  const std::uint64_t scale = scale_between(first_, last_);
  if (scale == 0) return;
  publish(last_, scale);
}

void LaunchClock::recalibrate() noexcept {
  if (!uses_counter()) return;
  const Pair now = read_pair();
  const std::int64_t error =
      page_.base_ns.load(std::memory_order_relaxed) + t0_ns_ +
      static_cast<std::int64_t>((static_cast<__int128>(static_cast<std::int64_t>(
                                     now.ticks - page_.base_ticks.load(std::memory_order_relaxed))) *
                                 static_cast<std::int64_t>(page_.scale.load(std::memory_order_relaxed))) >>
                                32) -
      now.ns;
  const std::uint64_t scale = scale_between(first_, now);
  if (scale == 0 || error > kMostErrorNs || error < -kMostErrorNs) {
    publish(now, 0);
    return;
  }
  publish(now, scale);
  if (now.ns - first_.ns > 2 * kLongestBaselineNs) {
    first_ = last_;
    last_ = now;
  } else if (now.ns - last_.ns > kLongestBaselineNs) {
    last_ = now;
  }
}

void LaunchClock::publish(const Pair& base, std::uint64_t scale) noexcept {
  const std::uint32_t version = page_.version.load(std::memory_order_relaxed);
  page_.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  page_.base_ticks.store(base.ticks, std::memory_order_relaxed);
  page_.base_ns.store(base.ns - t0_ns_, std::memory_order_relaxed);
  page_.scale.store(scale, std::memory_order_relaxed);
  page_.version.store(version + 2, std::memory_order_release);
  page_.end_bursts();
}

}  // namespace gpuflight::capture
