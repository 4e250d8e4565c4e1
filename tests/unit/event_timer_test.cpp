// The timer against a driver that is told when its events have been passed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "capture/event_timer.h"
#include "flight_fixture.h"

namespace gpuflight::capture {
namespace {

using State = EventPool::State;

// What the fake driver has been asked, and what it answers.
struct FakeDriver {
  int created = 0, recorded = 0, queried = 0;
  CUresult create_answer = CUDA_SUCCESS, record_answer = CUDA_SUCCESS, query_answer = CUDA_SUCCESS;
  CUcontext stream_context = nullptr, current = nullptr;
  float elapsed_ms = 0.0125F, gap_ms = 0.002F;
  std::vector<CUevent> order;  // as recorded; null: a kernel
  std::map<CUevent, CUresult> passed;  // not here: query_answer
};
FakeDriver g_fake;

CUresult event_create(CUevent* event, unsigned) {
  if (g_fake.create_answer != CUDA_SUCCESS) return g_fake.create_answer;
  *event = reinterpret_cast<CUevent>(static_cast<std::uintptr_t>(0x1000 + 16 * ++g_fake.created));
  return CUDA_SUCCESS;
}
CUresult event_record(CUevent event, CUstream) {
  if (g_fake.record_answer != CUDA_SUCCESS) return g_fake.record_answer;
  ++g_fake.recorded;
  g_fake.order.push_back(event);
  return CUDA_SUCCESS;
}
CUresult event_query(CUevent event) {
  ++g_fake.queried;
  const auto known = g_fake.passed.find(event);
  return known != g_fake.passed.end() ? known->second : g_fake.query_answer;
}
// Of a pair that was recorded with nothing between, the gap.
CUresult event_elapsed(float* ms, CUevent begin, CUevent end) {
  const auto last = std::find(g_fake.order.rbegin(), g_fake.order.rend(), begin);
  const bool adjacent = last != g_fake.order.rbegin() && last != g_fake.order.rend() && *std::prev(last) == end;
  *ms = adjacent ? g_fake.gap_ms : g_fake.elapsed_ms;
  return CUDA_SUCCESS;
}
CUresult stream_get_ctx(CUstream, CUcontext* context) {
  *context = g_fake.stream_context;
  return CUDA_SUCCESS;
}
CUresult ctx_push(CUcontext context) {
  g_fake.current = context;
  return CUDA_SUCCESS;
}
CUresult ctx_pop(CUcontext* context) {
  *context = g_fake.current;
  g_fake.current = nullptr;
  return CUDA_SUCCESS;
}

class EventTimerTest : public flight::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    g_fake = {};
    g_fake.stream_context = context_;
    writer_ = std::make_unique<flight::FlightWriter>(path("a.flight"));
    page_ = HotPage::create();
    driver_.event_create = &event_create;
    driver_.event_record = &event_record;
    driver_.event_query = &event_query;
    driver_.event_elapsed_time = &event_elapsed;
    driver_.stream_get_ctx = &stream_get_ctx;
    driver_.ctx_push_current = &ctx_push;
    driver_.ctx_pop_current = &ctx_pop;
    clock_ = std::make_unique<LaunchClock>(0, *page_);
    streams_ = std::make_unique<StreamTable>(driver_, *writer_->rows, *page_, 16);
    thread_.stream_generation = streams_->generation();
    stream_.id = 3;
    stream_.kind = 1;
    call_.context = context_;
    call_.context_uid = 1;
    call_.stream = reinterpret_cast<const void*>(0x5000);
    make(10);
  }

  void make(std::uint32_t every) {
    timer_ = std::make_unique<EventTimer>(driver_, *page_, *clock_, *streams_, every);
    timer_->enable(true);
  }

  // The ticket of a launch with events around it; 0: it has none.
  std::uint32_t launch(bool succeeded = true) {
    timer_->begin(thread_, stream_, call_);
    g_fake.order.push_back(nullptr);
    const std::uint32_t ticket = timer_->end(thread_, succeeded);
    if (ticket != 0) timer_->submit(thread_);
    return ticket;
  }
  std::vector<EventTimer::Time> poll() {
    std::vector<EventTimer::Time> times;
    timer_->poll([&](const EventTimer::Time& time) { times.push_back(time); });
    return times;
  }
  // How many of so many launches of one configuration are to be timed, and the first of them (from 1).
  std::pair<int, int> timed_of(int launches) {
    ThreadState::LaunchEntry entry;
    int timed = 0, first = 0;
    for (int i = 1; i <= launches; ++i) {
      if (!timer_->count(entry)) continue;
      ++timed;
      if (first == 0) first = i;
    }
    return {timed, first};
  }

  CUcontext context_ = reinterpret_cast<CUcontext>(0x77);
  std::unique_ptr<flight::FlightWriter> writer_;
  HotPage* page_ = nullptr;
  DriverApi driver_;
  std::unique_ptr<LaunchClock> clock_;
  std::unique_ptr<StreamTable> streams_;
  std::unique_ptr<EventTimer> timer_;
  const std::unique_ptr<ThreadState> state_ = std::make_unique<ThreadState>();
  ThreadState& thread_ = *state_;
  ThreadState::StreamEntry stream_;
  LaunchCall call_;
};

TEST_F(EventTimerTest, TheSecondAndEachNthAfterIt) {
  EXPECT_EQ(timed_of(1), (std::pair{0, 0}));
  EXPECT_EQ(timed_of(2), (std::pair{1, 2}));
  EXPECT_EQ(timed_of(11), (std::pair{1, 2}));
  EXPECT_EQ(timed_of(12), (std::pair{2, 2}));
  EXPECT_EQ(timed_of(1000), (std::pair{100, 2}));
  make(1);
  EXPECT_EQ(timed_of(7), (std::pair{7, 1}));
}

TEST_F(EventTimerTest, NothingIsCountedWhileOff) {
  timer_->enable(false);
  EXPECT_EQ(timed_of(100), (std::pair{0, 0}));
  ThreadState::LaunchEntry entry;
  entry.until_timed = 0xFFFF'FF00;  // hits counted on meanwhile
  timer_->enable(true);
  EXPECT_FALSE(timer_->count(entry));
  EXPECT_TRUE(timer_->count(entry));
}

TEST_F(EventTimerTest, ADriverWithoutEventsIsNeverAsked) {
  driver_.event_query = nullptr;
  make(1);
  EXPECT_EQ(timed_of(5), (std::pair{0, 0}));
}

TEST_F(EventTimerTest, ATimeComesWhenTheSecondEventIsPassed) {
  g_fake.query_answer = CUDA_ERROR_NOT_READY;
  const std::uint32_t ticket = launch();
  ASSERT_NE(ticket, 0u);
  EXPECT_TRUE(poll().empty());
  g_fake.query_answer = CUDA_SUCCESS;
  const auto times = poll();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].ticket, ticket);
  EXPECT_EQ(times[0].duration_ns, 12'500);
  // Two gaps of 2 us, half a microsecond of resolution, and what it took to record the second event.
  EXPECT_GE(*times[0].error_ns, 4'500);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(timer_->counts().begun, 1u);
  EXPECT_EQ(g_fake.current, nullptr);
}

TEST_F(EventTimerTest, TheErrorIsNeverMoreThanTheTime) {
  g_fake.elapsed_ms = 0.003F;
  launch();
  const auto times = poll();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].error_ns, times[0].duration_ns);
}

TEST_F(EventTimerTest, AnIdleStreamMayHaveWaitedForTheCall) {
  const auto error_of = [&](CUresult first_passed) {
    g_fake.elapsed_ms = 50;
    timer_->begin(thread_, stream_, call_);
    g_fake.order.push_back(nullptr);
    g_fake.query_answer = first_passed;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the host's call
    EXPECT_NE(timer_->end(thread_, true), 0u);
    timer_->submit(thread_);
    g_fake.query_answer = CUDA_SUCCESS;
    return *poll().at(0).error_ns;
  };
  EXPECT_GE(error_of(CUDA_SUCCESS), 5'000'000);
  EXPECT_LT(error_of(CUDA_ERROR_NOT_READY), 5'000'000);
}

TEST_F(EventTimerTest, WhatMustNotBeTimedIsNot) {
  const int before = g_fake.recorded;
  call_.programmatic = true;
  EXPECT_EQ(launch(), 0u);
  call_.programmatic = false;
  call_.one_of_several = true;
  EXPECT_EQ(launch(), 0u);
  call_.one_of_several = false;
  page_->captures = 1;
  EXPECT_EQ(launch(), 0u);
  page_->captures = 0;
  stream_.programmatic = true;
  EXPECT_EQ(launch(), 0u);
  stream_.programmatic = false;
  call_.correlation = 7;  // CUPTI's
  EXPECT_EQ(launch(), 0u);
  call_.correlation = 0;
  thread_.open_count = 1;
  EXPECT_EQ(launch(), 0u);
  thread_.open_count = 0;
  g_fake.stream_context = reinterpret_cast<CUcontext>(0x78);
  EXPECT_EQ(launch(), 0u);
  g_fake.stream_context = context_;
  thread_.stream_generation += 1;  // some stream has gone
  EXPECT_EQ(launch(), 0u);
  thread_.stream_generation -= 1;
  timer_->note_programmatic(stream_.id);  // by another thread
  EXPECT_EQ(launch(), 0u);
  EXPECT_EQ(g_fake.recorded, before);
  stream_.id = 4;
  EXPECT_NE(launch(), 0u);
}

TEST_F(EventTimerTest, ARefusedLaunchGivesItsPairBack) {
  EXPECT_EQ(launch(false), 0u);
  const int made = g_fake.created;
  for (int i = 0; i < 2'000; ++i) EXPECT_EQ(launch(false), 0u);
  EXPECT_EQ(g_fake.created, made);
  poll();
  EXPECT_NE(launch(), 0u);
  EXPECT_EQ(timer_->counts().no_pair, 0u);
}

TEST_F(EventTimerTest, ACaptureThatBeganInTheCallGetsNoEvent) {
  timer_->begin(thread_, stream_, call_);
  const int recorded = g_fake.recorded;
  page_->captures = 1;
  EXPECT_EQ(timer_->end(thread_, true), 0u);
  EXPECT_EQ(g_fake.recorded, recorded);
}

TEST_F(EventTimerTest, NothingWaitsForAFreePair) {
  g_fake.query_answer = CUDA_ERROR_NOT_READY;
  int timed = 0;
  for (int i = 0; i < 400; ++i) timed += launch() != 0;
  EXPECT_LE(timed, static_cast<int>(EventPool::kPairs));
  EXPECT_GE(timed, static_cast<int>(EventPool::kPairs) - 8);  // some see how long the gap is
  EXPECT_EQ(timer_->counts().no_pair, 400u - static_cast<unsigned>(timed));
  g_fake.query_answer = CUDA_SUCCESS;
  EXPECT_EQ(poll().size(), static_cast<std::size_t>(timed));
  EXPECT_NE(launch(), 0u);
}

TEST_F(EventTimerTest, EventsOfADestroyedContextAreNotTouched) {
  g_fake.query_answer = CUDA_ERROR_NOT_READY;
  for (int i = 0; i < 3; ++i) EXPECT_NE(launch(), 0u);
  timer_->begin(thread_, stream_, call_);  // goes while a launch is under way
  timer_->on_context_destroyed(1);
  EXPECT_EQ(timer_->end(thread_, true), 0u);
  g_fake.queried = g_fake.recorded = 0;
  const auto times = poll();
  EXPECT_EQ(times.size(), 3u);
  for (const auto& time : times) EXPECT_FALSE(time.duration_ns);
  EXPECT_EQ(timer_->counts().given_up, 3u);
  EXPECT_EQ(g_fake.queried, 0);
  // The next context has events of its own.
  const int created = g_fake.created;
  call_.context_uid = 2;
  g_fake.query_answer = CUDA_SUCCESS;
  EXPECT_NE(launch(), 0u);
  EXPECT_GT(g_fake.created, created);
}

// Programs end by that, and by a reset, right behind their last kernel.
TEST_F(EventTimerTest, WhatHasEndedIsReadBeforeItsContextGoes) {
  g_fake.query_answer = CUDA_ERROR_NOT_READY;
  launch();
  g_fake.query_answer = CUDA_SUCCESS;
  timer_->on_context_destroyed(1);
  call_.context_uid = 2;
  g_fake.query_answer = CUDA_ERROR_NOT_READY;
  launch();
  g_fake.query_answer = CUDA_SUCCESS;
  { const EventTimer::HeldOff held(timer_.get()); }
  g_fake.queried = 0;
  const auto times = poll();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].duration_ns, 12'500);
  EXPECT_EQ(times[1].duration_ns, 12'500);
  EXPECT_EQ(g_fake.queried, 0);
}

TEST_F(EventTimerTest, ALaunchThatAnotherSourceClosedLeavesNothingBehind) {
  timer_->begin(thread_, stream_, call_);  // its end never comes
  ASSERT_NE(thread_.timed.pool, nullptr);
  call_.programmatic = true;
  timer_->begin(thread_, stream_, call_);
  EXPECT_EQ(thread_.timed.pool, nullptr);
  EXPECT_EQ(timer_->end(thread_, true), 0u);
  call_.programmatic = false;
  constexpr std::uint32_t kToSeeTheGap = 4;
  for (std::uint32_t i = kToSeeTheGap; i < EventPool::kPairs; ++i) EXPECT_NE(launch(), 0u) << i;  // none is missing
}

TEST_F(EventTimerTest, MoreContextsThanFitOneAfterTheOther) {
  for (std::uint32_t uid = 1; uid <= 500; ++uid) {
    call_.context_uid = uid;
    EXPECT_NE(launch(), 0u) << uid;
    poll();
    timer_->on_context_destroyed(uid);
  }
}

TEST_F(EventTimerTest, HeldOffNothingIsAsked) {
  g_fake.query_answer = CUDA_ERROR_NOT_READY;
  launch();
  {
    const EventTimer::HeldOff held(timer_.get());
    g_fake.query_answer = CUDA_SUCCESS;
    g_fake.queried = 0;
    EXPECT_TRUE(poll().empty());
    EXPECT_EQ(launch(), 0u);
    EXPECT_EQ(g_fake.queried, 0);
  }
  EXPECT_EQ(poll().size(), 1u);
  timer_->close();
  EXPECT_EQ(launch(), 0u);
}

TEST_F(EventTimerTest, ALostContextIsGivenUp) {
  launch();
  g_fake.query_answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto times = poll();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_FALSE(times[0].duration_ns);
  EXPECT_EQ(launch(), 0u);
}

TEST_F(EventTimerTest, WithoutEventsToBeHadLaunchesGoOn) {
  g_fake.create_answer = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(launch(), 0u);
  EXPECT_EQ(launch(), 0u);
  EXPECT_EQ(g_fake.recorded, 0);
}

TEST_F(EventTimerTest, ManyThreadsAndOneReader) {
  std::atomic<int> timed{0};
  std::atomic<bool> done{false};
  std::size_t told = 0;
  // Each with a fake driver that answers at once; its counters are not looked at here.
  driver_.event_create = [](CUevent* event, unsigned) {
    static std::atomic<std::uintptr_t> next{1};
    *event = reinterpret_cast<CUevent>(next.fetch_add(1));
    return CUDA_SUCCESS;
  };
  driver_.event_record = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  driver_.event_query = [](CUevent) { return CUDA_SUCCESS; };
  driver_.event_elapsed_time = [](float* ms, CUevent, CUevent) { return *ms = 1, CUDA_SUCCESS; };
  driver_.ctx_push_current = [](CUcontext) { return CUDA_SUCCESS; };
  driver_.ctx_pop_current = [](CUcontext*) { return CUDA_SUCCESS; };
  std::thread reader([&] {
    while (!done.load()) told += poll().size();
    told += poll().size();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto state = std::make_unique<ThreadState>();
      ThreadState& own = *state;
      own.stream_generation = streams_->generation();
      for (int i = 0; i < 2'000; ++i) {
        timer_->begin(own, stream_, call_);
        if (timer_->end(own, true) == 0) continue;
        timer_->submit(own);
        timed.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  reader.join();
  EXPECT_EQ(told, static_cast<std::size_t>(timed.load()));
  EXPECT_EQ(timed.load() + static_cast<int>(timer_->counts().no_pair), 16'000);
}

TEST(EventBudget, DoublesTheIntervalWhileLaunchesCostTooMuch) {
  EventBudget budget(10);
  budget.note(1'000, 1'000'000);  // too few to tell
  EXPECT_EQ(budget.every(), 10u);
  budget.note(10'000, 10'000 * 100);
  EXPECT_EQ(budget.every(), 20u);
  budget.note(20'000, 20'000 * 100);
  EXPECT_EQ(budget.every(), 40u);
  // The mean is still too high, but for what was spent before.
  budget.note(40'000, 20'000 * 100 + 20'000 * 5);
  EXPECT_EQ(budget.every(), 40u);
  budget.note(400'000, 400'000 * 19);
  EXPECT_EQ(budget.every(), 40u);
}

TEST(EventBudget, KeepsTheMeanWithinTheBound) {
  constexpr std::int64_t kCost = 2'000;  // of one timed launch
  EventBudget budget(1);
  std::uint64_t launches = 0;
  std::int64_t cost = 0;
  for (int round = 0; round < 400; ++round) {
    launches += 10'000;
    cost += kCost * 10'000 / budget.every();
    budget.note(launches, cost);
  }
  EXPECT_LE(cost / static_cast<std::int64_t>(launches), EventBudget::kMostNsPerLaunch);
  EXPECT_LE(budget.every(), 512u);  // and not far more seldom than that asks for
}

}  // namespace
}  // namespace gpuflight::capture
