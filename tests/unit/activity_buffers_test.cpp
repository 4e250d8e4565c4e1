// Buffers for CUPTI: how many records the next one may take, who holds which, the bound, a system without memory.
#include "capture/activity_buffers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace gpuflight::capture {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint32_t kCapacity = 600;

// Asks as a thread does that fills what it gets at `per_second`; the last grant.
std::uint32_t settle(BufferRates& rates, std::uint64_t thread, double per_second, int rounds, std::int64_t& now,
                     bool comes_back = false) {
  std::uint32_t last = 0;
  for (int i = 0; i < rounds; ++i) {
    const BufferRates::Grant grant = rates.grant(thread, now);
    last = grant.records;
    const std::uint32_t records = last != 0 ? last : kCapacity;
    now += static_cast<std::int64_t>(records / per_second * kSecond);
    if (comes_back) rates.filled(grant, records);
  }
  return last;
}

TEST(BufferRates, ABufferIsFullWithinHalfASecond) {
  BufferRates rates(kCapacity, kSecond / 2);
  std::int64_t now = kSecond;
  EXPECT_EQ(rates.grant(1, now).records, BufferRates::kFirst);
  EXPECT_NEAR(settle(rates, 2, 200, 10, now), 100, 2);
  EXPECT_NEAR(settle(rates, 2, 20, 10, now, true), 10, 1);
  EXPECT_EQ(settle(rates, 2, 0.5, 10, now), 1u);     // a kernel of two seconds after the other: each by itself
  EXPECT_EQ(settle(rates, 2, 100'000, 6, now), 0u);  // as many as fit
  EXPECT_NEAR(settle(rates, 2, 100, 10, now), 50, 2);
}

// Where CUPTI asks for a buffer while the one before is being filled.
TEST(BufferRates, AskingAheadDoesNotSwing) {
  for (const double per_second : {3.0, 60.0, 900.0}) {
    BufferRates rates(kCapacity, kSecond / 2);
    std::int64_t now = kSecond;
    std::uint32_t in_use = rates.grant(1, now).records;
    std::uint32_t next = 0;
    for (int i = 0; i < 60; ++i) {
      next = rates.grant(1, now).records;
      now += static_cast<std::int64_t>((in_use != 0 ? in_use : kCapacity) / per_second * kSecond);
      in_use = next;
    }
    EXPECT_NEAR(next, per_second / 2, per_second / 40 + 1);
  }
}

TEST(BufferRates, ThreadsDoNotDisturbEachOther) {
  BufferRates rates(kCapacity, kSecond / 2);
  std::int64_t fast_now = kSecond, slow_now = kSecond;
  // As pthread_self() gives them: equal but for bits in the middle.
  EXPECT_EQ(settle(rates, 0x7f1122334700, 50'000, 6, fast_now), 0u);
  EXPECT_NEAR(settle(rates, 0x7f1121b33700, 10, 10, slow_now), 5, 1);
  EXPECT_EQ(settle(rates, 0x7f1122334700, 50'000, 1, fast_now), 0u);
}

// Beside a kernel that hangs no buffer comes back: what was known of slow work is not held on to, or thousands would go out
// with a handful of records each.
TEST(BufferRates, WithoutAWordOfHowWorkRanBuffersGrow) {
  BufferRates rates(kCapacity, kSecond / 10);
  std::int64_t now = kSecond, gpu = kSecond;
  const auto ask = [&] { return rates.grant(1, now += kSecond / 1000); };
  for (int i = 0; i < 20; ++i) {  // launched fast, runs slowly: 20 ms each
    const BufferRates::Grant grant = ask();
    const std::uint32_t records = grant.records != 0 ? grant.records : kCapacity;
    rates.filled(grant, records);
    const std::int64_t end = gpu + std::int64_t{records} * kSecond / 50;
    rates.ran(grant, records, gpu, end);
    gpu = end;
  }
  EXPECT_LE(ask().records, 8u);
  std::uint32_t last = 1;
  for (int i = 0; i < 30; ++i) last = ask().records;
  EXPECT_EQ(last, 0u);  // as many as fit
}

// A buffer that CUPTI gave back half empty tells a lower rate than its grant.
TEST(BufferRates, WhatCameBackCounts) {
  BufferRates rates(kCapacity, kSecond / 2);
  std::int64_t now = kSecond;
  EXPECT_EQ(settle(rates, 7, 50'000, 6, now), 0u);
  const BufferRates::Grant large = rates.grant(7, now);
  EXPECT_EQ(large.records, 0u);
  rates.filled(large, 10);
  const std::uint32_t few = rates.grant(7, now + kSecond / 10).records;  // 100 per second: on the way to 50
  EXPECT_GT(few, 10u);
  EXPECT_LE(few, 50u);
  // A late one of an earlier grant changes nothing.
  rates.filled(large, 1);
  EXPECT_EQ(rates.grant(7, now + kSecond / 10 + kSecond / 2).records, few);
}

// A thread launches in an instant what takes the GPU long.
TEST(BufferRates, WorkOfABufferRunsWithinHalfASecond) {
  BufferRates rates(kCapacity, kSecond / 2);
  std::int64_t now = kSecond, gpu = 0;
  const auto play = [&](std::int64_t each_ns, int rounds) {
    std::uint32_t last = 0;
    for (int i = 0; i < rounds; ++i) {
      const BufferRates::Grant grant = rates.grant(3, now += 1000);
      last = grant.records;
      const std::uint32_t records = last != 0 ? last : kCapacity;
      rates.filled(grant, records);
      rates.ran(grant, records, gpu, gpu + records * each_ns);
      gpu += records * each_ns;
    }
    return last;
  };
  EXPECT_NEAR(play(10'000'000, 12), 50, 2);
  EXPECT_EQ(play(2 * kSecond, 12), 1u);
  EXPECT_EQ(play(2'000, 8), 0u);
  gpu += 1000 * kSecond;  // nothing to do meanwhile
  EXPECT_EQ(play(2'000, 1), 0u);
  EXPECT_EQ(play(2'000, 1), 0u);
}

TEST(ActivityBuffers, AreAlignedAndRecycled) {
  ActivityBuffers buffers(16 * 1024, 1 << 20);
  ASSERT_TRUE(buffers.reserve());
  ActivityBuffers::Buffer* first = buffers.hand_out(1, kSecond);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first->data()) % 8, 0u);
  EXPECT_GE(first->capacity(), 16u * 1024 - 64);
  std::memset(first->data(), 0xff, first->capacity());
  EXPECT_EQ(buffers.take_completed(), nullptr);
  buffers.complete(first->data(), 100);
  ActivityBuffers::Buffer* taken = buffers.take_completed();
  ASSERT_EQ(taken, first);
  EXPECT_EQ(taken->valid_bytes, 100u);
  EXPECT_EQ(taken->next, nullptr);
  buffers.recycle(taken);
  buffers.replenish();
  // It comes again some time, and empty.
  std::set<ActivityBuffers::Buffer*> seen;
  for (int i = 0; i < 64 && !seen.contains(first); ++i) seen.insert(buffers.hand_out(1, kSecond));
  ASSERT_TRUE(seen.contains(first));
  for (const ActivityBuffers::Buffer* buffer : seen) EXPECT_EQ(buffer->valid_bytes, 0u);
}

TEST(ActivityBuffers, ComeBackInOrder) {
  ActivityBuffers buffers(4096, 1 << 20);
  std::vector<ActivityBuffers::Buffer*> out;
  for (int i = 0; i < 5; ++i) out.push_back(buffers.hand_out(1, kSecond));
  for (ActivityBuffers::Buffer* buffer : out) buffers.complete(buffer->data(), 8);
  ActivityBuffers::Buffer* taken = buffers.take_completed();
  for (ActivityBuffers::Buffer* expected : out) {
    ASSERT_EQ(taken, expected);
    taken = taken->next;
  }
  EXPECT_EQ(taken, nullptr);
}

TEST(ActivityBuffers, OverTheBoundIsCountedNotRefused) {
  constexpr std::size_t kBound = 32 * 4096;
  ActivityBuffers buffers(4096, kBound);
  ASSERT_TRUE(buffers.reserve());
  std::vector<ActivityBuffers::Buffer*> out;
  while (out.size() * 4096 < kBound) out.push_back(buffers.hand_out(1, kSecond));
  EXPECT_EQ(buffers.over_bound(), 0u);
  for (int i = 0; i < 10; ++i) out.push_back(buffers.hand_out(1, kSecond));
  EXPECT_EQ(std::count(out.begin(), out.end(), nullptr), 0);
  EXPECT_EQ(buffers.over_bound(), 10u);
  EXPECT_EQ(buffers.requested(), out.size());
  const std::size_t held = buffers.bytes_held();
  EXPECT_GE(held, kBound + 10 * 4096);
  EXPECT_LE(held, 2 * kBound);
  for (ActivityBuffers::Buffer* buffer : out) buffers.complete(buffer->data(), 0);
  EXPECT_EQ(buffers.bytes_complete(), out.size() * 4096);
  for (ActivityBuffers::Buffer* b = buffers.take_completed(); b != nullptr;) buffers.recycle(std::exchange(b, b->next));
  EXPECT_EQ(buffers.bytes_complete(), 0u);
  EXPECT_EQ(buffers.bytes_held(), held);  // kept for the next burst
  buffers.replenish();
  out.clear();
  for (int i = 0; i < 20; ++i) out.push_back(buffers.hand_out(1, kSecond));
  EXPECT_EQ(buffers.bytes_held(), held);  // none mapped anew
  EXPECT_EQ(buffers.over_bound(), 10u);   // and what only lies ready is not with CUPTI
  for (int i = 0; i < 1000; ++i) buffers.replenish();
  EXPECT_LT(buffers.bytes_held(), kBound);  // nobody needed the rest
}

// The recorder thread does not come to read: what is complete makes room, the newest of it, and is counted.
TEST(ActivityBuffers, UnreadOnesAreUsedAgainAtTwiceTheBound) {
  constexpr std::size_t kBound = 16 * 4096, kRecords = 5;
  ActivityBuffers buffers(4096, kBound / 2);
  ASSERT_TRUE(buffers.reserve());
  std::vector<ActivityBuffers::Buffer*> out;
  while (buffers.bytes_held() < kBound) out.push_back(buffers.hand_out(1, kSecond));
  for (ActivityBuffers::Buffer* buffer : out) {
    std::memset(buffer->data(), 1, kRecords * ActivityBuffers::kRecordBytes);
    buffers.complete(buffer->data(), kRecords * ActivityBuffers::kRecordBytes);
  }
  EXPECT_EQ(buffers.unread().single, 0u);
  const std::uint64_t over_bound = buffers.over_bound();  // while all were out
  EXPECT_GT(over_bound, 0u);
  for (std::size_t i = 1; i <= 3; ++i) {
    ActivityBuffers::Buffer* again = buffers.hand_out(1, kSecond);
    EXPECT_EQ(again, out[out.size() - i]);
    EXPECT_EQ(again->valid_bytes, 0u);
    EXPECT_EQ(buffers.unread().single, i * kRecords);
  }
  EXPECT_EQ(buffers.over_bound(), over_bound);  // with CUPTI there are three
  EXPECT_EQ(buffers.bytes_held(), kBound);
  std::size_t left = 0;
  for (ActivityBuffers::Buffer* b = buffers.take_completed(); b != nullptr; b = b->next) EXPECT_EQ(b, out[left++]);
  EXPECT_EQ(left, out.size() - 3);
}

TEST(ActivityBuffers, WhatNobodyNeedsIsGivenBack) {
  ActivityBuffers buffers(4096, 64 << 20);
  ASSERT_TRUE(buffers.reserve());
  const std::size_t before = buffers.bytes_held();
  std::vector<ActivityBuffers::Buffer*> out;
  for (int i = 0; i < 1000; ++i) out.push_back(buffers.hand_out(1, kSecond));
  EXPECT_GE(buffers.bytes_held(), 1000u * 4096);
  for (ActivityBuffers::Buffer* buffer : out) buffers.complete(buffer->data(), 0);
  for (ActivityBuffers::Buffer* b = buffers.take_completed(); b != nullptr;) buffers.recycle(std::exchange(b, b->next));
  for (int i = 0; i < 2000; ++i) buffers.replenish();
  EXPECT_LE(buffers.bytes_held(), before + 4096);
}

// Forked, since the limit holds for the whole process.
TEST(ActivityBuffers, ASystemWithoutMemoryFindsAReserve) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ActivityBuffers buffers(1 << 20, 64 << 20);
    if (!buffers.reserve()) _exit(10);
    std::vector<ActivityBuffers::Buffer*> out;
    out.reserve(100);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_AS, &none);
    errno = 4711;
    while (ActivityBuffers::Buffer* buffer = buffers.hand_out(1, kSecond)) {
      std::memset(buffer->data(), 1, buffer->capacity());
      out.push_back(buffer);
    }
    if (errno != 4711) _exit(11);
    // Those that were ready, and the reserve; and none of them is lost.
    if (out.size() != 8) _exit(12);
    for (ActivityBuffers::Buffer* buffer : out) buffers.complete(buffer->data(), 0);
    for (ActivityBuffers::Buffer* b = buffers.take_completed(); b != nullptr;) {
      buffers.recycle(std::exchange(b, b->next));
    }
    buffers.replenish();
    if (buffers.hand_out(1, kSecond) == nullptr) _exit(13);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Threads ask and give back while another takes: no buffer is held twice, none is lost; at the bound, none uncounted.
void play_many_threads(std::size_t bound) {
  constexpr int kThreads = 4, kEach = 5000;
  ActivityBuffers buffers(4096, bound);
  ASSERT_TRUE(buffers.reserve());
  std::atomic<int> running{kThreads};
  std::atomic<int> doubles{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        ActivityBuffers::Buffer* buffer = buffers.hand_out(static_cast<std::uint64_t>(t + 1) << 12, kSecond + i);
        const std::uint64_t mark = static_cast<std::uint64_t>(t) * kEach + static_cast<std::uint64_t>(i) + 1;
        std::memcpy(buffer->data(), &mark, sizeof mark);
        if (i % 64 == 0) std::this_thread::yield();
        if (std::memcmp(&mark, buffer->data(), sizeof mark) != 0) doubles.fetch_add(1);
        buffers.complete(buffer->data(), ActivityBuffers::kRecordBytes);
      }
      running.fetch_sub(1);
    });
  }
  std::set<std::uint64_t> marks;
  const auto take_all = [&] {
    for (ActivityBuffers::Buffer* b = buffers.take_completed(); b != nullptr;) {
      std::uint64_t mark = 0;
      std::memcpy(&mark, b->data(), sizeof mark);
      marks.insert(mark);
      buffers.recycle(std::exchange(b, b->next));
    }
    buffers.replenish();
  };
  while (running.load() > 0) {
    take_all();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  take_all();
  EXPECT_EQ(doubles.load(), 0);
  EXPECT_EQ(marks.size() + buffers.unread().single, static_cast<std::size_t>(kThreads) * kEach);
}

TEST(ActivityBuffers, ManyThreads) { play_many_threads(64 << 20); }
TEST(ActivityBuffers, ManyThreadsAtTheBound) { play_many_threads(12 * 4096); }

}  // namespace
}  // namespace gpuflight::capture
