#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "capture/launch_clock.h"
#include "capture/launch_recorder.h"

namespace gpuflight::capture {
namespace {

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

HotPage& page() {
  static HotPage* const one = new HotPage{};
  one->scale.store(0);
  return *one;
}

// The counter is asked between two looks at the clock; what it says must lie between them, give or take.
TEST(LaunchClock, AgreesWithTheClockThroughRecalibrations) {
  constexpr std::int64_t kAllowedNs = 50'000;
  const std::int64_t t0 = monotonic_ns();
  LaunchClock clock(t0, page());
  clock.start();
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::int64_t before = monotonic_ns() - t0;
    const std::int64_t now = clock.now_ns();
    const std::int64_t after = monotonic_ns() - t0;
    EXPECT_GE(now, before - kAllowedNs);
    EXPECT_LE(now, after + kAllowedNs);
    clock.recalibrate();
  }
}

TEST(LaunchClock, BeforeItIsStartedItIsTheClock) {
  const std::int64_t t0 = monotonic_ns();
  const LaunchClock clock(t0, page());
  EXPECT_FALSE(clock.uses_counter());
  const std::int64_t before = monotonic_ns() - t0;
  const std::int64_t now = clock.now_ns();
  EXPECT_GE(now, before);
  EXPECT_LE(now, monotonic_ns() - t0);
}

// Readers never see a half-made calibration: their time does not jump.
TEST(LaunchClock, ReadersAreNeverFarOffWhileItIsRecalibrated) {
  const std::int64_t t0 = monotonic_ns();
  LaunchClock clock(t0, page());
  clock.start();
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> furthest{0};
  std::thread reader([&] {
    std::int64_t last = clock.now_ns();
    while (!stop.load(std::memory_order_relaxed)) {
      const std::int64_t now = clock.now_ns();
      if (last - now > furthest.load()) furthest.store(last - now);
      last = now;
    }
  });
  for (int i = 0; i < 2000; ++i) clock.recalibrate();
  stop.store(true);
  reader.join();
  EXPECT_LT(furthest.load(), 100'000) << "ns backwards";
}

// The recorder thread may lose its processor in the middle of a recalibration, and to those very readers.
TEST(LaunchClock, OneStoppedHalfWayHoldsNobodyUp) {
  const std::int64_t t0 = monotonic_ns();
  LaunchClock clock(t0, page());
  clock.start();
  page().version.fetch_add(1);
  const std::int64_t before = monotonic_ns() - t0;
  const std::int64_t now = clock.now_ns();
  const std::int64_t after = monotonic_ns() - t0;
  page().version.fetch_add(1);
  EXPECT_GE(now, before);
  EXPECT_LE(now, after);
}

}  // namespace

TEST(OwnCost, IsToldFromEnoughSamplesOnly) {
  CostCounters cost;
  for (std::uint64_t i = 1; i < CostCounters::kFewestSamples; ++i) cost.add(50);
  EXPECT_EQ(cost.median_ns(), std::nullopt);
  cost.add(1'000'000);
  EXPECT_EQ(cost.median_ns(), 50);
}

}  // namespace gpuflight::capture
