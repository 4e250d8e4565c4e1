// When launches that share a time are taken to have begun (flight/shared_time.h).
#include "flight/shared_time.h"

#include <gtest/gtest.h>

#include <array>

namespace {

using namespace gpuflight::flight;

class SharedTime : public testing::Test {
 protected:
  void read(std::int64_t ns, RecordPhase phase = RecordPhase::kReturned) { add(ns, 0, 100, phase); }
  void shared(std::int64_t ns, RecordPhase phase = RecordPhase::kReturned) {
    add(ns, kFlagTimeShared | kFlagCallUntimed, kTimeNotKnown, phase);
  }
  const Record& settle(std::uint32_t at, std::optional<std::int64_t> now = std::nullopt) {
    settle_shared_time([this](std::uint32_t i) -> Record& { return records_[i]; }, at, count_, [&] {
      ++asked_;
      return now;
    });
    return records_[at];
  }

  std::array<Record, kRecordsPerChunk> records_{};
  std::uint32_t count_ = 0;
  int asked_ = 0;

 private:
  void add(std::int64_t ns, std::uint16_t flags, std::int64_t call_ns, RecordPhase phase) {
    Record& record = records_[count_++];
    record.kind = static_cast<std::uint8_t>(RecordKind::kKernelLaunch);
    record.launch_ns = ns;
    record.flags = flags;
    record.call_ns = call_ns;
    record.phase.store(static_cast<std::uint8_t>(phase));
  }
};

TEST_F(SharedTime, EqualStepsBetweenTwoReadings) {
  read(1000);
  for (int i = 0; i < 3; ++i) shared(1000);
  read(5000);
  EXPECT_EQ(settle(0).launch_ns, 1000);
  EXPECT_EQ(records_[0].call_ns, 100);
  for (std::uint32_t i = 1; i <= 3; ++i) EXPECT_EQ(settle(i).launch_ns, 1000 + 1000 * i);
  EXPECT_EQ(records_[1].call_ns, 3000);
  EXPECT_EQ(records_[2].call_ns, 2000);
  EXPECT_EQ(records_[3].call_ns, 3000);
  EXPECT_EQ(settle(2).launch_ns, 3000);  // once
  EXPECT_EQ(asked_, 0);
}

TEST_F(SharedTime, APauseIsNotSpreadOverThem) {
  read(0);
  shared(0);
  shared(0);
  read(60'000'000);
  EXPECT_EQ(settle(1).launch_ns, kBurstStepNs);
  EXPECT_EQ(records_[1].call_ns, 60'000'000 - kBurstStepNs);
  EXPECT_EQ(settle(2).launch_ns, 2 * kBurstStepNs);
}

TEST_F(SharedTime, NorIsOneAfterFastLaunches) {
  read(0);
  read(300);
  shared(300);
  shared(300);
  read(60'000'000);
  EXPECT_EQ(settle(2).launch_ns, 900);
  EXPECT_EQ(settle(3).launch_ns, 1500);
  EXPECT_EQ(records_[3].call_ns, 60'000'000 - 1500);
}

TEST_F(SharedTime, TheLastOnesHadComeBackByNow) {
  read(1000);
  shared(1000);
  shared(1000);
  EXPECT_EQ(settle(1, 4000).launch_ns, 2000);
  EXPECT_EQ(records_[1].call_ns, 2000);
  const Record& last = settle(2);  // nobody knows
  EXPECT_EQ(last.launch_ns, 1000);
  EXPECT_EQ(last.call_ns, kTimeNotKnown);
}

TEST_F(SharedTime, ACallThatHasNotComeBackHasATimeAllTheSame) {
  read(1000);
  shared(1000);
  read(3000, RecordPhase::kEntered);
  EXPECT_EQ(settle(1, 9000).launch_ns, 2000);
  EXPECT_EQ(records_[1].call_ns, 1000);
  EXPECT_EQ(asked_, 0);
}

TEST_F(SharedTime, OneThatHasNotComeBackAndSharesItTooSaysNothing) {
  read(1000);
  shared(1000);
  shared(1000, RecordPhase::kEntered);
  EXPECT_EQ(settle(1, 3000).launch_ns, 2000);
  EXPECT_EQ(asked_, 1);
}

TEST_F(SharedTime, TimesThatCannotBe) {
  read(INT64_MIN);
  shared(INT64_MIN);
  read(INT64_MAX);
  EXPECT_EQ(settle(1).call_ns, kTimeNotKnown);
  shared(5000);
  read(4000);  // the clock was set back
  EXPECT_EQ(settle(3).launch_ns, 5000);
  EXPECT_EQ(records_[3].call_ns, 0);
}

}  // namespace
