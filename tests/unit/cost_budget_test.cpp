// The budget of the recorder's own cost: which level a series of periods leads to.
#include <gtest/gtest.h>

#include "recorder/cost_budget.h"

namespace gpuflight::recorder {
namespace {

using Level = event::RecordLevel;
using Reason = event::LevelEvent::Reason;

constexpr std::int64_t kSecond = 1'000'000'000;

// One thread launches at this rate; the recorder takes `each_ns` a launch.
CostPeriod launching(std::uint64_t launches, double each_ns = 0) {
  CostPeriod period;
  period.wall_ns = kSecond;
  period.records = period.busiest = period.calls = period.launches = launches;
  period.recorder_cpu_ns = static_cast<std::uint64_t>(static_cast<double>(launches) * each_ns);
  return period;
}

CostRates rates(std::uint32_t processors = 10) {
  CostRates rates;
  rates.own_ns = 50;
  rates.callback_ns = 250;
  rates.graph_callback_ns = 20'000;
  rates.gpu_times_ns = 700;
  rates.node_times_ns = 600;
  rates.processors = processors;
  return rates;
}

// What there is under CUPTI with the hooks at hand, and what without either.
constexpr CostMeans kAll{true, true, true, true};
constexpr CostMeans kNoHooks{true, true, true, false};
constexpr CostMeans kInterposed{true, false, false, false};
constexpr CostMeans kBlackBox{false, true, true, false};

// Judges the same period so often; steps are taken. The last verdict that was a step, or the last one.
CostBudget::Verdict judged(CostBudget& budget, const CostPeriod& period, const CostMeans& means, int times = 1,
                           const CostRates& at = rates()) {
  CostBudget::Verdict step;
  bool stepped = false;
  for (int i = 0; i < times; ++i) {
    const CostBudget::Verdict verdict = budget.judge(period, at, means);
    if (verdict.level != budget.level()) {
      budget.moved_to(verdict.level);
      step = verdict;
      stepped = true;
    } else if (!stepped) {
      step = verdict;
    }
  }
  return step;
}

TEST(CostBudget, ShareIsOfTheBusiestThreadAndOfTheProcessors) {
  CostBudget budget(50);
  CostPeriod period = launching(20'000, 1000);
  // Two threads, one of them with three quarters.
  period.busiest = 15'000;
  const CostShare share = budget.share_of(period, rates(4), kAll);
  EXPECT_NEAR(share.app_percent, 100 * 15'000 * (50 + 250 + 700) / 1e9, 1e-9);
  EXPECT_NEAR(share.recorder_percent, 100 * 20'000 * 1000 / 4e9, 1e-9);
  EXPECT_EQ(budget.share_of(CostPeriod{}, rates(), kAll).total(), 0);
}

// A thread that launches all the time, 4 us a launch, and pays 100 ns each.
TEST(CostBudget, TheExampleOfTheDocuments) {
  CostRates at;
  at.own_ns = 100;
  EXPECT_NEAR(CostBudget(1).share_of(launching(250'000), at, kInterposed).app_percent, 2.5, 1e-9);
}

TEST(CostBudget, GraphsAndScopesHaveTheirOwnPrice) {
  CostBudget budget(50);
  CostPeriod period;
  period.wall_ns = kSecond;
  period.records = period.busiest = 1'000;
  period.calls = 400;  // the others are scopes
  period.graph_launches = 100;
  period.nodes = 5'000;
  const double ns = 1'000 * 50 + 300 * 250 + 100 * 20'000 + 5'000 * 600;
  EXPECT_NEAR(budget.share_of(period, rates(), kAll).app_percent, 100 * ns / 1e9, 1e-9);
}

TEST(CostBudget, DownAtOnceAndNoFurtherThanNeeded) {
  CostBudget budget(1);
  // 1,000 ns a launch, 300 without GPU times.
  EXPECT_EQ(judged(budget, launching(9'000), kAll).level, Level::kEvents);
  const auto verdict = judged(budget, launching(11'000), kAll);
  EXPECT_EQ(verdict.level, Level::kSampled);
  EXPECT_EQ(verdict.reason, Reason::kOverBudget);
  EXPECT_NEAR(verdict.share.app_percent, 1.1, 1e-9);
  EXPECT_NEAR(verdict.floor_percent, 100 * 11'000 * 50 / 1e9, 1e-9);
  EXPECT_FALSE(verdict.unattainable);
  // There it costs 0.33 %: it stays, as foreseen at the level above is too much.
  EXPECT_EQ(judged(budget, launching(11'000), kAll, 100).level, Level::kSampled);
}

TEST(CostBudget, ALevelThatCannotSufficeIsPassedOver) {
  CostBudget budget(1);
  // 3 % by CUPTI's callback alone.
  EXPECT_EQ(judged(budget, launching(100'000), kAll).level, Level::kHooks);
  EXPECT_NEAR(budget.share_of(launching(100'000), rates(), kAll).app_percent, 0.5, 1e-9);
}

TEST(CostBudget, TheRecorderLeadsDownStepByStep) {
  CostBudget budget(1);
  EXPECT_EQ(judged(budget, launching(1'000, 200'000), kInterposed).level, Level::kSampled);
  // A period that still has work of before does not count.
  EXPECT_EQ(budget.judge(launching(1'000, 200'000), rates(), kInterposed).level, Level::kSampled);
  EXPECT_EQ(judged(budget, launching(1'000, 200'000), kInterposed).level, Level::kSummaries);
  EXPECT_EQ(judged(budget, launching(1'000, 20'000), kInterposed, 100).level, Level::kSummaries);
  EXPECT_EQ(budget.level(), Level::kSummaries);
}

TEST(CostBudget, UpWhenSeveralPeriodsInARowWouldFit) {
  CostBudget budget(1);
  judged(budget, launching(11'000), kNoHooks);
  ASSERT_EQ(budget.level(), Level::kSampled);
  judged(budget, launching(11'000), kNoHooks, 3);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(judged(budget, launching(100), kNoHooks).level, Level::kSampled);
  EXPECT_EQ(judged(budget, launching(11'000), kNoHooks).level, Level::kSampled);  // begins anew
  for (int i = 0; i < 4; ++i) EXPECT_EQ(judged(budget, launching(100), kNoHooks).level, Level::kSampled);
  const auto verdict = judged(budget, launching(100), kNoHooks);
  EXPECT_EQ(verdict.level, Level::kEvents);
  EXPECT_EQ(verdict.reason, Reason::kFits);
}

TEST(CostBudget, FromTheHooksBackLevelByLevel) {
  CostBudget budget(1);
  judged(budget, launching(100'000), kAll);
  ASSERT_EQ(budget.level(), Level::kHooks);
  judged(budget, CostPeriod{kSecond, 0, 0, 0, 0, 0, 0, 0}, kAll, 6);
  EXPECT_EQ(budget.level(), Level::kSummaries);
  judged(budget, CostPeriod{kSecond, 0, 0, 0, 0, 0, 0, 0}, kAll, 12);
  EXPECT_EQ(budget.level(), Level::kEvents);
}

// What the recorder took at the level above is foreseen by what it took there before.
TEST(CostBudget, TheRecordersCostIsForeseen) {
  CostBudget budget(1);
  judged(budget, launching(10'000, 20'000), kInterposed);  // 2 %
  ASSERT_EQ(budget.level(), Level::kSampled);
  EXPECT_EQ(judged(budget, launching(10'000, 1'000), kInterposed, 200).level, Level::kSampled);
  EXPECT_EQ(judged(budget, launching(3'000, 1'000), kInterposed, 5).level, Level::kEvents);
}

TEST(CostBudget, DoesNotFlap) {
  CostBudget budget(1);
  int changes = 0, at_events = 0;
  // Six idle periods, then one that is over: up and down each time, were it not for patience.
  for (int i = 0; i < 700; ++i) {
    const CostPeriod period = i % 7 == 6 ? launching(11'000) : launching(10);
    const auto verdict = budget.judge(period, rates(), kNoHooks);
    if (verdict.level != budget.level()) {
      budget.moved_to(verdict.level);
      ++changes;
    }
    at_events += budget.level() == Level::kEvents;
  }
  EXPECT_LE(changes, 6);
}

TEST(CostBudget, PatienceComesBackOnceALevelHasProved) {
  CostBudget budget(1);
  const auto idle_until_up = [&] {
    int periods = 0;
    for (; budget.level() != Level::kEvents && periods < 1000; ++periods) judged(budget, launching(10), kNoHooks);
    return periods;
  };
  judged(budget, launching(11'000), kNoHooks);
  int before = 0;
  for (int i = 0; i < 3; ++i) {  // steps up that are taken back at once
    const int periods = idle_until_up();
    EXPECT_GT(periods, before);
    before = periods;
    judged(budget, launching(11'000), kNoHooks, 2);
    ASSERT_EQ(budget.level(), Level::kSampled);
  }
  EXPECT_GT(idle_until_up(), 30);
  judged(budget, launching(10), kNoHooks, 40);
  judged(budget, launching(11'000), kNoHooks);
  ASSERT_EQ(budget.level(), Level::kSampled);
  EXPECT_EQ(idle_until_up(), 6);  // one that has work of before, five that fit
}

TEST(CostBudget, UnattainableIsSaidOnceWithTheFloor) {
  CostBudget budget(0.001);
  int said = 0;
  double floor = 0;
  for (int i = 0; i < 50; ++i) {
    const auto verdict = budget.judge(launching(100'000), rates(), kAll);
    if (verdict.level != budget.level()) budget.moved_to(verdict.level);
    if (!verdict.unattainable) continue;
    ++said;
    floor = verdict.floor_percent;
  }
  EXPECT_EQ(budget.level(), Level::kHooks);
  EXPECT_EQ(said, 1);
  EXPECT_NEAR(floor, 0.5, 1e-9);
}

// One period over at the lowest level, by the recorder's own, is no floor.
TEST(CostBudget, OneBadPeriodIsNoFloor) {
  CostBudget budget(1);
  judged(budget, launching(1'000, 200'000), kInterposed, 3);
  ASSERT_EQ(budget.level(), Level::kSummaries);
  judged(budget, launching(1'000), kInterposed);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(budget.judge(launching(1'000, i % 2 == 0 ? 200'000 : 0), rates(), kInterposed).unattainable);
  }
}

TEST(CostBudget, ABlackBoxHasNoLinesToSave) {
  CostBudget budget(1);
  EXPECT_EQ(judged(budget, launching(11'000), kBlackBox).level, Level::kSummaries);
  judged(budget, launching(10), kBlackBox, 6);
  EXPECT_EQ(budget.level(), Level::kEvents);
  // Without GPU times and CUPTI nothing is left to step down to.
  CostBudget bare(0.001);
  const auto verdict = judged(bare, launching(11'000), CostMeans{}, 1);
  EXPECT_EQ(verdict.level, Level::kEvents);
  EXPECT_TRUE(verdict.unattainable);
}

TEST(CostBudget, ARefusedStepIsTriedLaterAndLater) {
  CostBudget budget(1);
  judged(budget, launching(100'000), kAll);
  ASSERT_EQ(budget.level(), Level::kHooks);
  int tries = 0;
  for (int i = 0; i < 200; ++i) {
    if (budget.judge(launching(10), rates(), kAll).level == Level::kHooks) continue;
    ++tries;
    budget.refused();
  }
  EXPECT_GT(tries, 2);
  EXPECT_LT(tries, 8);
}

TEST(CostBudget, MeanOverAllPeriods) {
  CostBudget budget(50);
  judged(budget, launching(10'000, 1'000), kAll);
  judged(budget, CostPeriod{kSecond, 0, 0, 0, 0, 0, 0, 0}, kAll, 3);
  EXPECT_NEAR(budget.mean().app_percent, 0.25, 1e-9);
  EXPECT_NEAR(budget.mean().recorder_percent, 0.025, 1e-9);
  EXPECT_NEAR(budget.mean_floor_percent(), 100 * 10'000 * 50 / 4e9, 1e-9);
}

}  // namespace
}  // namespace gpuflight::recorder
