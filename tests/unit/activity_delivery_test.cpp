// When the buffers come: what runs, what is late, many threads, the bound, a busy stream.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "activity_fixture.h"

namespace gpuflight::capture {
namespace {

using namespace test;
using namespace sim::test;

TEST(ActivityDelivery, WhatStillRunsComesOnceByForce) {
  in_child({}, [] {
    Recording recording;
    recording.start();
    start();
    sim::ModuleImage image{{kernel("hung")}};
    image.kernels[0].duration_ns = sim::kForeverNs;
    EXPECT_EQ(launch(function(load(image), "hung"), 1, 32, 0, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    recording.finish();
    EXPECT_TRUE(recording.seen.empty());
    recording.source.flush(true);
    recording.take();
    ASSERT_EQ(recording.seen.size(), 1u);
    EXPECT_TRUE(recording.seen[0].record.start_ns.has_value());
    EXPECT_FALSE(recording.seen[0].record.end_ns.has_value());
    EXPECT_EQ(recording.source.counters().null_times, 1u);
    recording.source.flush(true);
    recording.take();
    EXPECT_EQ(recording.seen.size(), 1u);
  });
}

TEST(ActivityDelivery, StoppedItStillTakesWhatComes) {
  in_child({}, [] {
    Recording recording;
    recording.start();
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    recording.source.stop();
    EXPECT_EQ(launch(k, 2, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.finish();
    ASSERT_EQ(recording.seen.size(), 1u);
    recording.start();
    EXPECT_EQ(launch(k, 3, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.finish();
    ASSERT_EQ(recording.seen.size(), 2u);
    EXPECT_EQ(recording.seen[1].record.grid.x, 3u);
  });
}

// One kernel that never ends, beside many short ones of another thread: nothing of theirs waits for it.
TEST(ActivityDelivery, ALongKernelHoldsItsOwnBufferOnly) {
  in_child({}, [] {
    Recording recording;
    recording.start();
    const CUcontext context = start();
    sim::ModuleImage image{{kernel("long"), kernel("short")}};
    image.kernels[0].duration_ns = sim::kForeverNs;
    image.kernels[1].duration_ns = 1000;
    const CUmodule m = load(image);
    const CUfunction k = function(m, "short");
    CUstream busy = nullptr, other = nullptr;
    ASSERT_EQ(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(launch(function(m, "long"), 1, 32, 0, busy), CUDA_SUCCESS);
    constexpr std::size_t kShort = 50'000;
    std::thread([&] {
      cuCtxSetCurrent(context);
      for (std::size_t i = 0; i < kShort; ++i) {
        EXPECT_EQ(launch(k, 1, 32, 0, other), CUDA_SUCCESS);
        if (i % 1000 == 0) recording.finish();
      }
    }).join();
    for (int i = 0; i < 2000 && recording.seen.size() < kShort; ++i) {
      EXPECT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
      recording.finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(recording.seen.size(), kShort);
    EXPECT_EQ(recording.source.counters().over_bound, 0u);
    EXPECT_LT(recording.source.counters().bytes_held, 64u << 20);
  });
}

// The same with all in one thread, whose every buffer is held back until a forced flush: the bound is told.
TEST(ActivityDelivery, BeyondTheBoundItSaysSo) {
  in_child({{"GPUFLIGHT_SIM_BUFFERS_LATE_MS", "600000"}}, [] {
    Recording recording;
    recording.start({.buffer_bytes = 16 * 1024, .memory_bound = 1 << 20});
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    std::size_t launched = 0;
    while (recording.source.counters().over_bound < 5 && launched < 100'000) {
      EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
      ++launched;
    }
    EXPECT_GE(recording.source.counters().over_bound, 5u);
    EXPECT_GT(recording.source.counters().bytes_held, 1u << 20);
    recording.source.stop();
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.source.flush(true);
    recording.take();
    EXPECT_EQ(recording.seen.size(), launched);  // none lost
    EXPECT_LE(recording.source.counters().bytes_held, 2u << 20);
  });
}

// Eight threads launch while this one flushes and takes, as the recorder does.
void play_threads(Recording& recording, std::size_t each) {
  constexpr int kThreads = 8;
  const CUcontext context = start();
  const CUfunction k = function(load({{kernel("k")}}), "k");
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(context);
      for (std::size_t i = 0; i < each; ++i) EXPECT_EQ(launch(k, 1, 32, 0, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
      cuStreamSynchronize(CU_STREAM_PER_THREAD);
      running.fetch_sub(1);
    });
  }
  while (running.load() > 0) recording.finish();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  // The worker may still be handing over what the threads left.
  const auto arrived = [&] { return recording.seen.size() + recording.source.counters().dropped; };
  for (int i = 0; i < 5000 && arrived() < kThreads * each; ++i) {
    recording.finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::set<std::uint32_t> correlations;
  for (const Seen& s : recording.seen) correlations.insert(s.record.correlation);
  EXPECT_EQ(correlations.size(), recording.seen.size());
  EXPECT_EQ(arrived(), kThreads * each);
}

TEST(ActivityDelivery, EveryKernelOfManyThreadsOnce) {
  in_child({}, [] {
    Recording recording;
    recording.start();
    play_threads(recording, 3000);
    EXPECT_EQ(recording.source.counters().dropped, 0u);
    EXPECT_EQ(recording.source.counters().null_times, 0u);
  });
}

TEST(ActivityDelivery, BuffersAskedForByLaunchingThreadsAndLate) {
  in_child({{"GPUFLIGHT_SIM_BUFFERS_ON_APP_THREADS", "1"}, {"GPUFLIGHT_SIM_BUFFERS_LATE_MS", "30"}}, [] {
    Recording recording;
    recording.start();
    play_threads(recording, 3000);
    EXPECT_GE(recording.source.counters().buffers_requested, 8u);
  });
}

TEST(ActivityDelivery, WhatCuptiDroppedIsCounted) {
  in_child({{"GPUFLIGHT_SIM_DROP_EVERY", "10"}}, [] {
    Recording recording;
    recording.start();
    play_threads(recording, 1000);
    EXPECT_EQ(recording.source.counters().dropped, 800u);
    EXPECT_EQ(recording.source.counters().records, 7200u);
  });
}

// A queue of kernels that keeps the GPU busy: those that have ended are there while others run.
TEST(ActivityDelivery, ABusyStreamIsSeenWhileItIsBusy) {
  in_child({{"GPUFLIGHT_SIM_BUFFERS_ON_APP_THREADS", "1"}}, [] {
    Recording recording;
    recording.start();
    start();
    sim::ModuleImage image{{kernel("k")}};
    image.kernels[0].duration_ns = 10'000'000;
    const CUfunction k = function(load(image), "k");
    // The first ones teach: a thread that launches at full speed gets buffers that hold seconds of them.
    for (int i = 0; i < 150; ++i) EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.finish();
    ASSERT_EQ(recording.seen.size(), 150u);
    constexpr std::size_t kBusy = 300;
    for (std::size_t i = 0; i < kBusy; ++i) EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    CUevent end = nullptr;
    ASSERT_EQ(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(end, nullptr), CUDA_SUCCESS);
    std::size_t while_busy = 0;
    while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) {
      while_busy = recording.seen.size() - 150;
      recording.finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_GE(while_busy, kBusy / 2);
    recording.finish();
    EXPECT_EQ(recording.seen.size(), 150 + kBusy);
  });
}

// A child that is forked from a recorded process and has CUDA for itself only afterwards.
TEST(ActivityDelivery, AForkedChildHasItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts a thread";
#endif
  in_child({}, [] {
    Recording parents;
    parents.start();
    in_child({}, [] {
      Recording recording;
      recording.start();
      start();
      EXPECT_EQ(launch(function(load({{kernel("k")}}), "k"), 1, 32), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      recording.source.flush(true);
      recording.take();
      EXPECT_EQ(recording.seen.size(), 1u);
    });
    start();
    EXPECT_EQ(launch(function(load({{kernel("k")}}), "k"), 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    parents.finish();
    EXPECT_EQ(parents.seen.size(), 1u);
  });
}

}  // namespace
}  // namespace gpuflight::capture
