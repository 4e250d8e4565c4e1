// The parts rules are made of: order, repeats, busy shares, held calls, gaps and their causes, words with facts.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "analysis/analyzer.h"
#include "analysis/rules/busy_bins.h"
#include "analysis/rules/gap_finder.h"
#include "analysis/rules/held_calls.h"
#include "analysis/rules/order_window.h"
#include "analysis/rules/repeat_finder.h"
#include "report/findings_report.h"
#include "report/kernel_name.h"

namespace gpuflight::analysis::rules {
namespace {

TEST(OrderWindow, PutsInOrderWhatIsWithinIt) {
  OrderWindow<int> window(100);
  std::mt19937 random(1);
  std::vector<int> given;
  const auto give = [&](int& item) { given.push_back(item); };
  for (int i = 0; i < 5000; ++i) {
    const int at = i + static_cast<int>(random() % 60);
    window.put(at, 0, at, give);
  }
  window.flush(give);
  EXPECT_EQ(given.size(), 5000u);
  EXPECT_TRUE(std::is_sorted(given.begin(), given.end()));
}

TEST(OrderWindow, GivesLateOnesNextAndEqualTimesByNumber) {
  OrderWindow<int> window(2);
  std::vector<int> given;
  const auto give = [&](int& item) { given.push_back(item); };
  window.put(10, 2, 2, give);
  window.put(10, 1, 1, give);
  window.put(20, 3, 3, give);
  window.put(30, 4, 4, give);
  window.put(5, 0, 0, give);  // its time has passed
  window.flush(give);
  EXPECT_EQ(given, (std::vector<int>{1, 2, 0, 3, 4}));
}

RepeatFinder::State after(const std::vector<std::uint64_t>& round, int rounds) {
  RepeatFinder finder;
  RepeatFinder::State state;
  for (int i = 0; i < rounds; ++i) {
    for (const std::uint64_t token : round) state = finder.add(token);
  }
  return state;
}

TEST(RepeatFinder, FindsThePeriod) {
  EXPECT_EQ(after({7}, 20).period, 1u);
  EXPECT_EQ(after({1, 2, 3, 4, 5}, 20).period, 5u);
  EXPECT_EQ(after({1, 1, 2, 2}, 20).period, 4u);
  EXPECT_EQ(after({1, 1, 1, 2, 1, 3}, 20).period, 6u);
  std::vector<std::uint64_t> longest;
  for (std::uint64_t i = 0; i < RepeatFinder::kLongest; ++i) longest.push_back(i * i);
  EXPECT_EQ(after(longest, 4).period, RepeatFinder::kLongest);
  EXPECT_GE(after({1, 2, 3, 4, 5}, 20).matched, 90u);
}

TEST(RepeatFinder, FindsNoneInChance) {
  RepeatFinder finder;
  std::mt19937 random(5);
  std::uint64_t most = 0;
  for (int i = 0; i < 20'000; ++i) most = std::max(most, finder.add(random() % 12).matched);
  EXPECT_LT(most, 12u);
}

TEST(RepeatFinder, ForgetsARunThatIsBroken) {
  RepeatFinder finder;
  for (int i = 0; i < 30; ++i) finder.add(static_cast<std::uint64_t>(i % 3));
  EXPECT_EQ(finder.add(99).period, 0u);
}

TEST(BusyBins, SharesAreThoseOfTheIntervals) {
  BusyBins bins;
  const std::int64_t unit = 1'000'000;  // goes far beyond the first width
  for (std::int64_t i = 0; i < 300; ++i) {
    if (i / 10 % 3 != 1) bins.add(1000 + i * unit, 1000 + (i + 1) * unit);  // every third part of ten is idle
  }
  const auto busy = bins.chunks(30, 1000 + 300 * unit);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(busy[i], i % 3 == 1 ? 0.0 : 10.0 * unit, 0.3 * unit) << i;
  }
}

GpuWork kernel(std::int64_t start, std::int64_t end, std::int64_t launch = kNoTime) {
  GpuWork work;
  work.device = 0;
  work.stream = 1;
  work.thread = 9;
  work.launch_ns = launch;
  work.start_ns = start;
  work.end_ns = end;
  return work;
}

HostCall call(CallKind kind, std::int64_t from, std::int64_t to) {
  HostCall call;
  call.kind = kind;
  call.thread = 9;
  call.time_ns = from;
  call.call_ns = to - from;
  call.waits = kind == CallKind::kSync || kind == CallKind::kCopy;
  return call;
}

TEST(HeldCalls, CountsOnlyWhatNoKernelRanBeside) {
  std::vector<std::int64_t> idle;
  HeldCalls calls([&](std::uint32_t, const EventRef&, std::int64_t ns) { idle.push_back(ns); });
  calls.saw_work(kernel(0, 100));
  calls.hold(0, 50, 250, {});
  calls.saw_work(kernel(120, 140));
  calls.saw_work(kernel(130, 150));
  EXPECT_TRUE(idle.empty());  // not over yet
  calls.saw_work(kernel(240, 400));
  calls.saw_work(kernel(500, 600));
  EXPECT_EQ(idle, (std::vector<std::int64_t>{200 - 50 - 30 - 10}));
  calls.hold(1, 0, 10, {});  // another device, without kernels
  calls.settle_all();
  EXPECT_EQ(idle.back(), 10);
}

// The gap between a kernel until 1 ms and one from 1.1 ms on.
std::optional<Gap> gap_with(const std::vector<HostCall>& calls, std::int64_t launch) {
  GapFinder finder;
  DeviceTotals totals;
  for (const HostCall& c : calls) finder.saw_call(c);
  finder.saw_work(kernel(0, 1'000'000), totals);
  auto gap = finder.saw_work(kernel(1'100'000, 1'200'000, launch), totals);
  EXPECT_EQ(totals.busy_ns + totals.idle_ns(), totals.span_ns());
  return gap;
}

TEST(GapFinder, NamesWhatTheLaunchingThreadDid) {
  using enum CallKind;
  EXPECT_EQ(gap_with({}, 900'000)->cause, GapCause::kQueued);
  EXPECT_EQ(gap_with({}, kNoTime)->cause, GapCause::kUnknown);
  EXPECT_EQ(gap_with({call(kSync, 500'000, 1'005'000)}, 1'090'000)->cause, GapCause::kSync);
  EXPECT_EQ(gap_with({call(kCopy, 500'000, 1'005'000)}, 1'090'000)->cause, GapCause::kBlockingCopy);
  EXPECT_EQ(gap_with({call(kSync, 500'000, 990'000)}, 1'090'000)->cause, GapCause::kHost);  // back before it ran dry
  EXPECT_EQ(gap_with({call(kSync, 1'050'000, 1'052'000)}, 1'090'000)->cause, GapCause::kHost);  // it was dry already
  EXPECT_EQ(gap_with({call(kAlloc, 1'010'000, 1'080'000)}, 1'090'000)->cause, GapCause::kAlloc);
  EXPECT_EQ(gap_with({call(kLaunch, 1'000'500, 1'089'000)}, 1'090'000)->cause, GapCause::kLaunching);
  EXPECT_EQ(gap_with({}, 995'000)->cause, GapCause::kLaunching);
  HostCall other = call(kSync, 500'000, 1'005'000);
  other.thread = 8;
  EXPECT_EQ(gap_with({other}, 1'090'000)->cause, GapCause::kHost);
}

TEST(GapFinder, WorkSideBySideLeavesNoGap) {
  GapFinder finder;
  DeviceTotals totals;
  finder.saw_work(kernel(0, 1000), totals);
  EXPECT_FALSE(finder.saw_work(kernel(100, 200), totals));
  EXPECT_FALSE(finder.saw_work(kernel(900, 1500), totals));
  EXPECT_TRUE(finder.saw_work(kernel(1501, 1600), totals));
  EXPECT_EQ(totals.busy_ns, 1599);
  EXPECT_EQ(totals.span_ns(), 1600);
}

TEST(Evidence, KeepsTheWeightiestAndCountsAll) {
  Evidence evidence;
  for (std::uint64_t i = 0; i < 100; ++i) evidence.add({0, i, i, 0}, static_cast<std::int64_t>(i * 37 % 100));
  Finding finding;
  evidence.give(finding);
  ASSERT_EQ(finding.evidence.size(), 5u);
  EXPECT_EQ(finding.evidence_total, 100u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(finding.evidence[i].seq * 37 % 100, 99 - i);
}

TEST(Words, FactsArePutIn) {
  report::KernelNames names(40);
  Finding f;
  f.count("n", 1234).count("gaps", 1, "gap").ns("t", 5130).bytes("b", 2048).ratio("r", 0.25).kernel("k", "_Z3addPf");
  EXPECT_EQ(report::filled_in("{n} x {gaps}: {t}, {b}, {r} by {k}{unknown}", f.facts, names),
            "1,234 x 1 gap: 5.13 us, 2 KiB, 25% by add{unknown}");
  EXPECT_EQ(report::filled_in("a { b", f.facts, names), "a { b");
}

TEST(RuleTable, EveryRuleIsWhole) {
  for (const RuleInfo& rule : all_rules()) {
    EXPECT_EQ(find_rule(rule.name), &rule);  // no name twice
    EXPECT_NE(rule.make(RuleSettings(rule.thresholds)), nullptr);
    for (const char* const name : rule.explains) EXPECT_NE(find_rule(name), nullptr) << rule.name << ": " << name;
  }
}

TEST(Severity, GoesByTheShareOfTheSpan) {
  EXPECT_EQ(costed("gpu_gaps", CostKind::kLost, 4, 100).severity, Severity::kInfo);
  EXPECT_EQ(costed("gpu_gaps", CostKind::kLost, 5, 100).severity, Severity::kWarning);
  EXPECT_EQ(costed("gpu_gaps", CostKind::kLost, 20, 100).severity, Severity::kCritical);
  EXPECT_EQ(costed("gpu_gaps", CostKind::kAtStake, 90, 100).severity, Severity::kWarning);
  EXPECT_EQ(costed("gpu_gaps", CostKind::kLost, 1, 0).severity, Severity::kInfo);
}

}  // namespace
}  // namespace gpuflight::analysis::rules
