// Sketch and timeline against what is computed the plain way, and what a summary makes of lines with times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "analysis/device_timeline.h"
#include "analysis/log_summary.h"
#include "event/quantile_sketch.h"
#include "log_fixture.h"

namespace gpuflight::analysis {
namespace {

using event::QuantileSketch;
using event::SketchBudget;

using Work = DeviceTimeline::Work;

// Of sorted ones.
double exact(const std::vector<std::int64_t>& values, double q) {
  return static_cast<double>(values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))]);
}

std::vector<std::int64_t> durations(std::uint32_t seed, int count, double spread) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> likely(9, spread);
  std::vector<std::int64_t> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<std::int64_t>(likely(random)));
  std::sort(values.begin(), values.end());
  return values;
}

TEST(QuantileSketch, IsWithinItsErrorForEveryQuantile) {
  SketchBudget budget;
  for (const double spread : {0.01, 0.5, 3.0}) {
    const auto values = durations(7, 20'000, spread);
    QuantileSketch sketch;
    for (const std::int64_t value : values) sketch.add(value, budget);
    EXPECT_EQ(sketch.count(), values.size());
    EXPECT_NEAR(sketch.error(), 0.005, 1e-9);
    for (int i = 0; i <= 100; ++i) {
      const double want = exact(values, i / 100.0);
      EXPECT_NEAR(*sketch.quantile(i / 100.0), want, want * 0.00501) << "quantile " << i << " spread " << spread;
    }
  }
}

TEST(QuantileSketch, HoldsEveryValueThereIs) {
  SketchBudget budget;
  for (const std::int64_t value : {std::int64_t{1}, std::int64_t{2}, std::int64_t{1} << 53, INT64_MAX}) {
    QuantileSketch sketch;
    sketch.add(value, budget);
    EXPECT_NEAR(*sketch.quantile(0.5), static_cast<double>(value), 0.00501 * static_cast<double>(value));
  }
  QuantileSketch sketch;
  EXPECT_FALSE(sketch.quantile(0.5));
  for (const std::int64_t value : {-5, 0, 0, 10}) sketch.add(value, budget);
  EXPECT_EQ(*sketch.quantile(0.5), 0);
  EXPECT_NEAR(*sketch.quantile(1), 10, 0.05);
}

TEST(QuantileSketch, SumOfSketchesIsTheSketchOfAll) {
  SketchBudget budget;
  const auto a = durations(1, 5'000, 1), b = durations(2, 5'000, 2);
  QuantileSketch one, two, both;
  for (const std::int64_t value : a) one.add(value, budget), both.add(value, budget);
  for (const std::int64_t value : b) two.add(value, budget), both.add(value, budget);
  one.add(two, budget);
  EXPECT_EQ(one.count(), both.count());
  for (const double q : {0.0, 0.25, 0.5, 0.95, 1.0}) EXPECT_EQ(*one.quantile(q), *both.quantile(q)) << q;
}

TEST(QuantileSketch, WithoutRoomItGetsCoarserAndSaysHowMuch) {
  SketchBudget budget{100};
  const auto values = durations(3, 20'000, 3);
  QuantileSketch sketch;
  for (const std::int64_t value : values) sketch.add(value, budget);
  EXPECT_EQ(sketch.count(), values.size());
  EXPECT_LE(sketch.buckets(), 100u);
  EXPECT_GT(sketch.error(), 0.01);
  for (const double q : {0.0, 0.5, 0.95, 1.0}) {
    const double want = exact(values, q);
    EXPECT_NEAR(*sketch.quantile(q), want, want * sketch.error() * 1.001) << q;
  }
  // One finer and one coarser, either way round.
  SketchBudget plenty;
  QuantileSketch fine;
  for (const std::int64_t value : values) fine.add(value, plenty);
  QuantileSketch sum = fine;
  sum.add(sketch, plenty);
  EXPECT_EQ(sum.count(), 2 * values.size());
  EXPECT_NEAR(*sum.quantile(0.5), exact(values, 0.5), exact(values, 0.5) * sum.error() * 1.001);
  sketch.add(fine, plenty);
  EXPECT_NEAR(*sketch.quantile(0.5), *sum.quantile(0.5), 1e-6 * *sum.quantile(0.5));
}

struct Interval {
  Work work;
  std::int64_t start, end;
};

// By the ns.
BusyTimes plain(const std::vector<Interval>& all) {
  std::int64_t last = 0;
  for (const Interval& one : all) last = std::max(last, one.end);
  std::vector<int> kernels(static_cast<std::size_t>(last)), copies(static_cast<std::size_t>(last));
  for (const Interval& one : all) {
    std::vector<int>& at_work = one.work == Work::kKernel ? kernels : copies;
    for (std::int64_t t = one.start; t < one.end; ++t) ++at_work[static_cast<std::size_t>(t)];
  }
  BusyTimes times;
  for (std::size_t t = 0; t < kernels.size(); ++t) {
    times.busy_ns += kernels[t] + copies[t] > 0;
    times.kernel_ns += kernels[t] > 0;
    times.copy_ns += copies[t] > 0;
    times.overlapped_ns += kernels[t] + copies[t] > 1;
    times.copy_beside_kernel_ns += kernels[t] > 0 && copies[t] > 0;
    times.kernels_beside_ns += kernels[t] > 1;
  }
  return times;
}

void expect_same(const BusyTimes& got, const BusyTimes& want, std::int64_t off = 0) {
  EXPECT_NEAR(got.busy_ns, want.busy_ns, off);
  EXPECT_NEAR(got.kernel_ns, want.kernel_ns, off);
  EXPECT_NEAR(got.copy_ns, want.copy_ns, off);
  EXPECT_NEAR(got.overlapped_ns, want.overlapped_ns, off);
  EXPECT_NEAR(got.copy_beside_kernel_ns, want.copy_beside_kernel_ns, off);
  EXPECT_NEAR(got.kernels_beside_ns, want.kernels_beside_ns, off);
}

// Nearly in order: each starts within `window` of a time that goes on.
std::vector<Interval> work(std::uint32_t seed, int count, int window, int longest) {
  std::mt19937 random(seed);
  std::vector<Interval> all;
  std::int64_t now = window;
  for (int i = 0; i < count; ++i) {
    now += static_cast<std::int64_t>(random() % 40);
    const std::int64_t start = now - static_cast<std::int64_t>(random() % static_cast<unsigned>(window));
    all.push_back({random() % 3 == 0 ? Work::kCopy : Work::kKernel, start,
                   start + static_cast<std::int64_t>(random() % static_cast<unsigned>(longest))});
  }
  return all;
}

TEST(DeviceTimeline, EqualsWhatIsCountedByTheNanosecond) {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    for (const int window : {1, 50, 4000}) {
      const auto all = work(seed, 3000, window, 60);
      DeviceTimeline timeline;
      for (const Interval& one : all) timeline.add(one.work, one.start, one.end);
      const BusyTimes got = timeline.times();
      expect_same(got, plain(all));
      EXPECT_EQ(got.uncertain_ns, 0);
      EXPECT_EQ(got.kernels + got.copies, all.size());
    }
  }
}

TEST(DeviceTimeline, ResultsCanBeAskedForOnTheWay) {
  const auto all = work(4, 2000, 300, 60);
  DeviceTimeline timeline;
  std::vector<Interval> so_far;
  for (const Interval& one : all) {
    timeline.add(one.work, one.start, one.end);
    so_far.push_back(one);
    if (so_far.size() % 500 == 0) expect_same(timeline.times(), plain(so_far));
  }
}

TEST(DeviceTimeline, SpanIdleAndOddIntervals) {
  DeviceTimeline timeline;
  EXPECT_EQ(timeline.times().span_ns(), 0);
  timeline.add(Work::kKernel, 100, 200);
  timeline.add(Work::kKernel, 150, 250);
  timeline.add(Work::kCopy, 400, 500);
  timeline.add(Work::kKernel, 700, 600);  // reversed: no interval
  timeline.add(Work::kCopy, 900, 900);    // took no time, yet was there
  const BusyTimes times = timeline.times();
  EXPECT_EQ(times.first_ns, 100);
  EXPECT_EQ(times.last_ns, 900);
  EXPECT_EQ(times.busy_ns, 250);
  EXPECT_EQ(times.idle_ns(), 550);
  EXPECT_EQ(times.overlapped_ns, 50);
  EXPECT_EQ(times.kernel_sum_ns, 200);
  EXPECT_EQ(times.copies, 2u);
}

// The past is folded into blocks; in memory there is never more than was asked for.
TEST(DeviceTimeline, MemoryIsBoundedAndWhatIsInOrderStaysExact) {
  const auto all = work(5, 60'000, 200, 30);
  DeviceTimeline timeline(1024, 64);
  for (const Interval& one : all) timeline.add(one.work, one.start, one.end);
  const BusyTimes got = timeline.times();
  EXPECT_LE(timeline.steps(), 1024u);
  EXPECT_LE(timeline.blocks(), 64u);
  EXPECT_GT(timeline.blocks(), 0u);
  EXPECT_LE(got.uncertain_ns, 4000);  // where batches meet
  expect_same(got, plain(all), got.uncertain_ns);
}

// A kernel of minutes is told of after the many that ran beside it: what it covers whole is added exactly.
TEST(DeviceTimeline, ALongKernelThatComesLast) {
  auto all = work(6, 100'000, 100, 20);
  DeviceTimeline timeline(4096, 1024);
  for (const Interval& one : all) timeline.add(one.work, one.start, one.end);
  EXPECT_GT(timeline.times().idle_ns(), 100'000);
  ASSERT_GT(timeline.blocks(), 100u);
  const std::int64_t begin = 50, end = 1'900'000;
  all.push_back({Work::kKernel, begin, end});
  timeline.add(Work::kKernel, begin, end);
  const BusyTimes got = timeline.times();
  expect_same(got, plain(all), got.uncertain_ns);
  EXPECT_LT(got.uncertain_ns, 30'000);  // the ends of blocks, of two million ns
}

TEST(DeviceTimeline, LateAnywhereTheErrorIsWithinWhatIsSaid) {
  std::mt19937 random(8);
  auto all = work(9, 30'000, 100, 20);
  DeviceTimeline timeline(512, 32);
  for (const Interval& one : all) timeline.add(one.work, one.start, one.end);
  timeline.times();  // all of it taken in before
  for (int i = 0; i < 50; ++i) {
    const auto start = static_cast<std::int64_t>(random() % 500'000);
    const Interval late{random() % 2 == 0 ? Work::kKernel : Work::kCopy, start,
                        start + static_cast<std::int64_t>(random() % 30'000)};
    all.push_back(late);
    timeline.add(late.work, late.start, late.end);
  }
  timeline.add(Work::kKernel, 0, 10);  // before all that was
  all.push_back({Work::kKernel, 0, 10});
  const BusyTimes got = timeline.times();
  EXPECT_GT(got.uncertain_ns, 0);
  expect_same(got, plain(all), got.uncertain_ns);
}

TEST(DeviceTimeline, DescendingStartsDoNotPileUp) {
  DeviceTimeline timeline(64, 8);
  for (int i = 0; i < 40'000; ++i) timeline.add(Work::kKernel, 10'000'000 + 10 * i, 10'000'005 + 10 * i);
  timeline.times();
  for (int i = 0; i < 40'000; ++i) timeline.add(Work::kKernel, 9'000'000 - 10 * i, 9'000'005 - 10 * i);
  const BusyTimes got = timeline.times();
  EXPECT_LE(timeline.blocks(), 8u);
  EXPECT_NEAR(got.busy_ns, 400'000, got.uncertain_ns);
}

// From here on: lines.
log::KernelEventLine kernel(std::uint64_t counter, std::int64_t start, std::int64_t end) {
  log::KernelEventLine line;
  line.kernel.name = "k";
  line.kernel.device = 0;
  line.config_known = true;
  line.launch.seq = event::Seq(1, counter);
  line.launch.launch_ns = start - 100;
  line.launch.call_ns = 10;
  line.launch.status = 0;
  if (end != 0) {
    line.launch.start_ns = start;
    line.launch.end_ns = end;
    line.duration_ns = end - start;
  }
  return line;
}

log::SessionStartLine session(const std::string& timing) {
  log::SessionStartLine line;
  line.session.configuration = {{"details", "on"}, {"timing", timing}};
  return line;
}

TEST(LogTimes, SpreadOfAGroup) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(session("all"));
  const auto values = durations(11, 2'000, 1);
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    summary.add(kernel(i, 1'000'000, 1'000'000 + values[i]));
    sum += static_cast<double>(values[i]);
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const auto& gpu = summary.groups()[0].gpu;
  const double mean = sum / static_cast<double>(values.size());
  EXPECT_NEAR(*gpu.mean_ns(), mean, 1e-6 * mean);
  EXPECT_NEAR(*gpu.deviation_ns(), std::sqrt(squares / static_cast<double>(values.size()) - mean * mean), 1e-3 * mean);
  EXPECT_NEAR(*gpu.quantile_ns(0.95), exact(values, 0.95), 0.01 * exact(values, 0.95));
  EXPECT_EQ(gpu.each_ns.max, *std::max_element(values.begin(), values.end()));
  EXPECT_EQ(summary.groups()[0].queue.total_ns, 100 * 2'000);
  const LaunchGroup totals = summary.totals();
  EXPECT_NEAR(*totals.gpu.deviation_ns(), *gpu.deviation_ns(), 1e-6 * mean);
  EXPECT_EQ(*totals.gpu.quantile_ns(0.5), *gpu.quantile_ns(0.5));
}

TEST(LogTimes, WhatCameLateIsAddedToItsRow) {
  LogSummary summary(GroupBy::kThread);
  summary.begin_log("a");
  summary.add(session("all"));
  auto early = kernel(1, 1'000, 0);  // still ran when its line was written
  early.launch.thread = 7;
  summary.add(early);
  auto other = kernel(2, 5'000, 6'000);
  other.launch.thread = 8;
  summary.add(other);
  log::KernelPendingLine pending;
  pending.pending.event = event::Seq(1, 1);
  pending.name = "k";
  summary.add(pending);
  EXPECT_EQ(summary.logs()[0].untimed_kernels, 1u);
  EXPECT_EQ(summary.logs()[0].pending.size(), 1u);
  log::KernelTimeLine late;
  late.device = 0;
  late.time.event = event::Seq(1, 1);
  late.time.launch_ns = 900;
  late.time.start_ns = 1'000;
  late.time.end_ns = 100'000;
  summary.add(late);
  late.time.event = event::Seq(1, 99);  // of a line that is not there
  late.time.start_ns = 100'000;
  late.time.end_ns = 100'500;
  summary.add(late);
  summary.end_log({});
  const LogFacts& log = summary.logs()[0];
  EXPECT_TRUE(log.pending.empty());
  EXPECT_EQ(log.late_times, 2u);
  EXPECT_EQ(log.unplaced_times, 1u);
  ASSERT_EQ(summary.groups().size(), 2u);
  EXPECT_EQ(summary.groups()[0].label, "thread 7 of process 0");
  EXPECT_EQ(summary.groups()[0].gpu.total_ns, 99'000);
  EXPECT_EQ(summary.groups()[0].queue.total_ns, 100);
  EXPECT_EQ(summary.groups()[0].launches, 1u);
  EXPECT_EQ(summary.groups()[1].gpu.total_ns, 1'000);
  ASSERT_EQ(log.busy.size(), 1u);
  EXPECT_EQ(log.busy[0].times.busy_ns, 99'500);
  EXPECT_EQ(log.busy[0].times.kernels_beside_ns, 1'000);
}

TEST(LogTimes, DevicesAreKeptApartAndLogsToo) {
  LogSummary summary(GroupBy::kKernel);
  for (const int shift : {0, 1'000}) {
    summary.begin_log("x");
    for (const int device : {0, 1}) {
      auto line = kernel(1, 1'000 + shift, 3'000 + shift);
      line.kernel.device = device;
      summary.add(line);
    }
    log::MemcpyLine copy;
    copy.device = 1;
    copy.copy.start_ns = 2'000 + shift;
    copy.copy.end_ns = 4'000 + shift;
    summary.add(copy);
    summary.end_log({});
  }
  for (const LogFacts& log : summary.logs()) {
    ASSERT_EQ(log.busy.size(), 2u);
    EXPECT_EQ(log.busy[0].device, 0);
    EXPECT_EQ(log.busy[0].times.busy_ns, 2'000);
    EXPECT_EQ(log.busy[1].times.busy_ns, 3'000);
    EXPECT_EQ(log.busy[1].times.copy_beside_kernel_ns, 1'000);
  }
}

TEST(LogTimes, CopiesFillsCallsMemoryAndGraphs) {
  using namespace log_fixture;
  LogSummary summary(GroupBy::kGraph);
  summary.begin_log("a");
  log::MemcpyLine copy;
  copy.copy = memcpy_event();
  summary.add(copy);
  copy.copy.bytes *= 3;
  summary.add(copy);
  copy.copy = peer_copy();  // a node of graph 5
  summary.add(copy);
  log::MemsetLine fill;
  fill.fill = memset_event();
  summary.add(fill);
  log::MemoryLine memory;
  memory.memory = allocation();
  memory.call = "cuMemAlloc";
  summary.add(memory);
  memory.memory.operation = event::MemoryEvent::Operation::kFree;
  memory.memory.total_bytes = 2 << 20;
  memory.call = "cuMemFreeAsync";
  summary.add(memory);
  memory.memory.status = 2;
  summary.add(memory);
  log::SyncLine sync;
  sync.name = "cuCtxSynchronize";
  sync.call.call = static_cast<std::uint32_t>(event::ApiCall::kCtxSynchronize);
  sync.call.call_ns = 5'000'000;
  summary.add(sync);
  log::GraphLaunchLine graph;
  graph.launch = timed_graph_launch();
  summary.add(graph);
  auto node = kernel(1, 1'000, 1'500);
  node.launch.graph = event::GraphId(5);
  node.launch.graph_node = 3;
  summary.add(node);
  summary.add(kernel(2, 3'000, 3'200));
  const ActivityTables& activity = summary.activity();

  ASSERT_EQ(activity.copies().size(), 2u);
  const Transfers& pinned = activity.copies().begin()->second;
  EXPECT_EQ(activity.copies().begin()->first.source, event::MemoryKind::kPinned);
  EXPECT_EQ(pinned.count, 2u);
  EXPECT_EQ(pinned.bytes, 4u << 20);
  EXPECT_EQ(pinned.gpu.total_ns, 82'000);
  EXPECT_NEAR(*pinned.bytes_per_second(), 4194304e9 / 82'000, 1e6);
  EXPECT_EQ(activity.fills().begin()->second.bytes, 4096u);

  EXPECT_EQ(activity.calls().at("copy htod async").count, 2u);
  EXPECT_FALSE(activity.calls().contains("copy ptop async"));  // its cuGraphLaunch is the call
  EXPECT_EQ(activity.calls().at("cuCtxSynchronize").host.total_ns, 5'000'000);
  EXPECT_TRUE(activity.calls().at("cuCtxSynchronize").may_wait);
  EXPECT_TRUE(activity.calls().at("cuMemAlloc").may_wait);
  EXPECT_FALSE(activity.calls().at("cuMemFreeAsync").may_wait);
  EXPECT_EQ(activity.calls().at("cuMemFreeAsync").failed, 1u);
  EXPECT_EQ(activity.calls().at(kKernelLaunches).count, 1u);

  const MemoryRow& pool = activity.memory().begin()->second;
  EXPECT_EQ(pool.allocs, 1u);
  EXPECT_EQ(pool.frees, 1u);
  EXPECT_EQ(pool.failed, 1u);
  EXPECT_EQ(pool.peak_bytes, 5u << 20);
  EXPECT_EQ(pool.live_bytes, 2u << 20);

  const GraphRow& row = activity.graphs().at({0, 5});
  EXPECT_EQ(row.launches, 1u);
  EXPECT_EQ(row.gpu.total_ns, 250'500);
  EXPECT_EQ(row.kernels, 1u);
  EXPECT_EQ(row.kernel_time.total_ns, 500);
  EXPECT_EQ(row.transfers, 1u);

  ASSERT_EQ(summary.groups().size(), 2u);
  EXPECT_EQ(summary.groups()[0].label, "graph 5 of log 1");
  EXPECT_EQ(summary.groups()[1].label, kNoGraph);
}

TEST(LogTimes, TablesAreBoundedWhateverALogSays) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    log::MemcpyLine copy;
    copy.copy.source_device = static_cast<std::int32_t>(i);
    copy.device = static_cast<std::int32_t>(i);
    copy.copy.start_ns = 1;
    copy.copy.end_ns = INT64_MAX;  // no time of a recording
    summary.add(copy);
    log::ApiLine call;
    call.name = "cuNew" + std::to_string(i);
    summary.add(call);
    log::MemoryLine memory;
    memory.memory.pool = i + 1;
    memory.call = "cuMemAlloc";
    summary.add(memory);
    log::GraphLaunchLine graph;
    graph.launch.graph = event::GraphId(i);
    summary.add(graph);
    log::KernelPendingLine pending;
    pending.pending.event = event::Seq(1, i);
    summary.add(pending);
  }
  summary.end_log({});
  const ActivityTables& activity = summary.activity();
  EXPECT_LE(activity.copies().size(), 5'000u);
  EXPECT_LE(activity.calls().size(), 300u);
  EXPECT_LE(activity.memory().size(), 5'000u);
  EXPECT_LE(activity.graphs().size(), 5'000u);
  EXPECT_GT(activity.left_out(), 10'000u);
  std::uint64_t copies = 0, calls = 0;
  for (const auto& [key, row] : activity.copies()) copies += row.count;
  for (const auto& [name, row] : activity.calls()) calls += row.count;
  EXPECT_EQ(copies, 10'000u);
  EXPECT_EQ(calls, 30'000u);
  EXPECT_EQ(summary.logs()[0].pending_total, 10'000u);
  EXPECT_LE(summary.logs()[0].pending.size(), LogFacts::kMaxPending);
  EXPECT_TRUE(summary.logs()[0].busy.empty());
}

TEST(LogTimes, SamplesStandForAll) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(session("sample:10"));
  for (std::uint64_t i = 0; i < 100; ++i) {
    auto line = kernel(i, 1'000, i % 10 == 0 ? 1'500 : 0);
    summary.add(line);
  }
  EXPECT_TRUE(summary.sampled());
  EXPECT_EQ(summary.groups()[0].gpu.count, 10u);
  EXPECT_DOUBLE_EQ(*summary.groups()[0].estimated_total_ns(), 50'000);
}

Stratum stratum(std::uint64_t executed, const std::vector<double>& timed) {
  Stratum one;
  one.executed = executed;
  for (const double ns : timed) one.add(ns);
  return one;
}

TEST(Extrapolation, OfOneConfiguration) {
  const Stratum one = stratum(100, {10, 12, 14});
  const auto sum = Extrapolation::of({&one});
  EXPECT_DOUBLE_EQ(sum->total_ns, 1'200);
  EXPECT_DOUBLE_EQ(*sum->variance, 100.0 * 100 * 4 / 3 * (1 - 0.03));
  EXPECT_FALSE(Extrapolation::of({}));
}

// Of a rare one a larger part is timed: each counts as often as it was launched.
TEST(Extrapolation, EachConfigurationStandsForItself) {
  const Stratum common = stratum(10'000, {10, 10, 10, 10}), rare = stratum(2, {1'000}), all = stratum(3, {5, 6, 7});
  const auto sum = Extrapolation::of({&common, &rare, &all});
  EXPECT_DOUBLE_EQ(sum->total_ns, 100'000 + 2'000 + 18);
  EXPECT_GT(*sum->variance, 0);  // of the one of two
  const Stratum lone = stratum(2, {1'000});
  EXPECT_FALSE(Extrapolation::of({&lone})->variance);  // nothing says how it spreads
  const Stratum none = stratum(5, {});
  EXPECT_DOUBLE_EQ(Extrapolation::of({&common, &none})->total_ns, 100'050);
}

TEST(Extrapolation, SumsDoNotTellASpread) {
  Stratum sum = stratum(100, {});
  sum.add_sum(10, 200);
  EXPECT_DOUBLE_EQ(Extrapolation::of({&sum})->total_ns, 2'000);
  EXPECT_FALSE(Extrapolation::of({&sum})->variance);
}

// The true total lies in the interval of 95 % about as often as that says, also where events count in finite numbers.
TEST(Extrapolation, TheErrorIsAboutRight) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> likely(9, 0.4);
  int inside = 0;
  constexpr int kTrials = 600, kLaunches = 1'000, kEvery = 20;
  for (int trial = 0; trial < kTrials; ++trial) {
    Stratum one;
    one.executed = kLaunches;
    double truth = 0;
    for (int i = 0; i < kLaunches; ++i) {
      const double ns = likely(random);
      truth += ns;
      if (i % kEvery == 1) one.add(ns);
    }
    const auto sum = Extrapolation::of({&one});
    inside += std::abs(sum->total_ns - truth) <= 1.96 * *sum->standard_error_ns();
  }
  EXPECT_NEAR(inside, 0.94 * kTrials, 0.03 * kTrials);
}

TEST(LogTimes, TimesByEvents) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  auto start = session("all");
  start.session.configuration.emplace_back("event_times", "10");
  summary.add(start);
  const auto by_events = [](std::uint64_t i, std::int64_t duration, std::int64_t error) {
    auto line = kernel(i, 1'000, 0);
    line.timed_by_events = true;
    line.duration_ns = line.launch.by_events.duration_ns = duration;
    line.launch.by_events.error_ns = error;
    return line;
  };
  for (std::uint64_t i = 1; i <= 98; ++i) {
    summary.add(i % 10 == 2 ? by_events(i, 500 + static_cast<std::int64_t>(i % 4), 100) : kernel(i, 1'000, 0));
  }
  log::KernelTimeLine late;
  late.time.event = event::Seq(1, 97);
  late.timed_by_events = true;
  late.duration_ns = late.time.by_events.duration_ns = 502;
  late.time.by_events.error_ns = 100;
  summary.add(late);
  summary.end_log({});
  const LogFacts& log = summary.logs()[0];
  EXPECT_TRUE(summary.sampled());
  EXPECT_EQ(log.event_timed, log.timed_kernels + log.late_times);
  EXPECT_TRUE(log.busy.empty());  // when the device was busy they do not say
  const LaunchGroup& group = summary.groups()[0];
  EXPECT_EQ(group.gpu.count, 11u);
  EXPECT_EQ(group.queue.count, 0u);
  EXPECT_NEAR(*group.estimated_total_ns(), 98 * 502, 98);
  EXPECT_TRUE(group.extrapolated->standard_error_ns());
  EXPECT_DOUBLE_EQ(group.most_too_long_ns(), 9'800);
  EXPECT_DOUBLE_EQ(*summary.totals().estimated_total_ns(), *group.estimated_total_ns());
}

// Recorded by a version that knew no times, or with timing off: nothing of all this.
TEST(LogTimes, NoneWithoutTimes) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(session("off"));
  summary.add(kernel(1, 1'000, 0));
  summary.add(log::SyncLine{});
  summary.end_log({});
  EXPECT_FALSE(summary.has_times());
  EXPECT_TRUE(summary.logs()[0].busy.empty());
}

// The lines of a black box's dump are a part only of what ran.
TEST(LogTimes, ABlackBoxHasNoBusyTimes) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  auto start = session("all");
  start.session.mode = "blackbox";
  summary.add(start);
  summary.add(kernel(1, 1'000, 2'000));
  summary.end_log({});
  EXPECT_EQ(summary.groups()[0].gpu.total_ns, 1'000);
  EXPECT_TRUE(summary.logs()[0].busy.empty());
}

}  // namespace
}  // namespace gpuflight::analysis
