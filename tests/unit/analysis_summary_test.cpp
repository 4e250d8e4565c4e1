#include "analysis/log_summary.h"

#include <gtest/gtest.h>

namespace gpuflight::analysis {
namespace {

log::KernelEventLine kernel(const std::string& name, std::uint32_t block = 256) {
  log::KernelEventLine line;
  line.kernel.name = name;
  line.kernel.num_regs = 16;
  line.kernel.static_shared_bytes = 16384;
  line.shape.block = {block, 1, 1};
  line.config_known = true;
  line.details = true;
  line.occupancy.source = event::OccupancySource::kDriver;
  line.occupancy.max_active_blocks = 5;
  line.occupancy.limiter = event::Limiter::kSharedMem;
  line.occupancy.limiters = event::limiter_bit(event::Limiter::kSharedMem);
  line.occupancy_ratio = 0.833333;
  line.launch.stream = event::StreamId(1);
  line.launch.thread = 7;
  line.launch.status = 0;
  line.launch.call_ns = 1000;
  return line;
}

log::KernelSummaryLine summary_of(const log::KernelEventLine& kernel, std::uint64_t count, bool session) {
  log::KernelSummaryLine line;
  line.kernel = kernel.kernel;
  line.shape = kernel.shape;
  line.occupancy = kernel.occupancy;
  line.config_known = line.details = true;
  line.occupancy_ratio = kernel.occupancy_ratio;
  line.summary.count = count;
  line.summary.session = session;
  line.summary.call_total_ns = count * 1000;
  line.summary.call_min_ns = 900;
  line.summary.call_max_ns = 1100;
  return line;
}

TEST(LogSummary, KernelsAreOneGroupConfigurationsAreTold) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(kernel("f", 256));
  summary.add(kernel("f", 256));
  summary.add(kernel("f", 128));
  summary.add(kernel("g"));
  summary.end_log({});
  ASSERT_EQ(summary.groups().size(), 2u);
  const LaunchGroup& f = summary.groups()[0];
  EXPECT_EQ(f.label, "f");
  EXPECT_EQ(f.launches, 3u);
  EXPECT_EQ(f.configs, 2u);
  EXPECT_TRUE(f.several_blocks);
  EXPECT_EQ(f.block_threads.min, 128u);
  EXPECT_EQ(f.block_threads.max, 256u);
  EXPECT_EQ(f.call.total_ns, 3000);
  EXPECT_EQ(summary.kernels(), 2u);
  EXPECT_EQ(summary.totals().launches, 4u);
  EXPECT_EQ(summary.totals().configs, 3u);
}

TEST(LogSummary, ByConfigKeepsThemApart) {
  LogSummary summary(GroupBy::kConfig);
  summary.begin_log("a");
  summary.add(kernel("f", 256));
  summary.add(kernel("f", 128));
  EXPECT_EQ(summary.groups().size(), 2u);
  EXPECT_EQ(summary.groups()[1].label, "f");
}

// A dump writes lines of launches that a summary of a second tells of too, before that or after.
TEST(LogSummary, LaunchesOfABlackBoxAreCountedOnce) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("box");
  log::SessionStartLine start;
  start.session.mode = "blackbox";
  summary.add(start);
  auto line = kernel("f");
  const auto launch_at = [&](std::int64_t ns) {
    line.launch.launch_ns = ns;
    summary.add(line);
  };
  const auto second_until = [&](std::int64_t ns, std::uint64_t count) {
    auto second = summary_of(line, count, false);
    second.summary.to_ns = ns;
    summary.add(second);
  };
  launch_at(10);  // dumped, then summed up with eight others
  launch_at(20);
  second_until(100, 10);
  EXPECT_EQ(summary.totals().launches, 10u);
  launch_at(90);  // dumped after it was summed up
  EXPECT_EQ(summary.totals().launches, 10u);
  launch_at(150);  // recovered: no summary came any more
  EXPECT_EQ(summary.totals().launches, 11u);
  EXPECT_EQ(summary.logs().front().launches, 11u);
  EXPECT_EQ(summary.totals().call.total_ns, 11'000);
  // The next log is another recording, and a stream.
  summary.begin_log("stream");
  summary.add(log::SessionStartLine{});
  launch_at(50);
  EXPECT_EQ(summary.totals().launches, 12u);
}

TEST(LogSummary, CapturedLaunchesAreNotExecuted) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  auto captured = kernel("f");
  captured.launch.captured = true;
  auto refused = kernel("f");
  refused.launch.status = 701;
  summary.add(captured);
  summary.add(refused);
  summary.add(kernel("f"));
  const LaunchGroup& f = summary.groups()[0];
  EXPECT_EQ(f.launches, 2u);
  EXPECT_EQ(f.captured, 1u);
  EXPECT_EQ(f.failed, 1u);
  EXPECT_EQ(summary.logs()[0].captured, 1u);
}

TEST(LogSummary, SecondsAddUpTheSessionDoesNot) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(kernel("f"));
  summary.add(summary_of(kernel("f"), 10, false));
  summary.add(summary_of(kernel("f"), 10, false));
  summary.add(summary_of(kernel("f"), 21, true));
  EXPECT_EQ(summary.groups()[0].launches, 21u);
  EXPECT_EQ(summary.groups()[0].call.total_ns, 21000);
  EXPECT_EQ(summary.logs()[0].summarised, 20u);
}

TEST(LogSummary, TheSessionTellsOfDeletedSegments) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(kernel("f"));
  summary.add(summary_of(kernel("f"), 100, true));
  summary.add(summary_of(kernel("gone"), 5, true));
  EXPECT_EQ(summary.groups()[0].launches, 100u);
  EXPECT_EQ(summary.groups()[1].launches, 5u);
  EXPECT_EQ(summary.totals().launches, 105u);
}

// A log that was damaged while it was written, with the events that its flight file still had behind its end.
TEST(LogSummary, WhatIsRecoveredBehindTheEndIsInTheSessionsSum) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(kernel("f"));
  summary.add(summary_of(kernel("f"), 3, true));
  for (int i = 0; i < 2; ++i) summary.add(kernel("f"));
  EXPECT_EQ(summary.totals().launches, 3u);
  EXPECT_EQ(summary.logs()[0].launches, 3u);
  summary.add(kernel("f"));  // launched behind the end of the recording
  EXPECT_EQ(summary.totals().launches, 4u);
  summary.begin_log("b");
  summary.add(kernel("f"));
  EXPECT_EQ(summary.totals().launches, 5u);
}

// Contents `number`: each name so many times.
void add_contents(LogSummary& summary, std::uint32_t number,
                  const std::vector<std::pair<std::string, std::uint64_t>>& kernels) {
  event::GraphInfo info;
  info.contents = event::ContentsId{number};
  info.kernels = kernels.size();
  summary.add(info);
  for (const auto& [name, count] : kernels) {
    const log::KernelEventLine like = kernel(name);
    log::GraphKernelLine line;
    line.kernel = like.kernel;
    line.shape = like.shape;
    line.occupancy = like.occupancy;
    line.config_known = like.config_known;
    line.details = like.details;
    line.occupancy_ratio = like.occupancy_ratio;
    line.info.contents = info.contents;
    line.info.kernel = {event::ConfigId{1}, {4, 1, 1}, count};
    summary.add(line);
  }
}

log::GraphLaunchLine graph_launch(std::uint32_t contents, std::optional<bool> node_events, std::int32_t status = 0) {
  log::GraphLaunchLine line;
  line.launch.contents = event::ContentsId{contents};
  line.launch.node_events = node_events;
  line.launch.status = status;
  return line;
}

TEST(LogSummary, KernelsOfGraphLaunchesAreCountedByWhatTheseRun) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  add_contents(summary, 1, {{"f", 3}, {"g", 1}});
  add_contents(summary, 2, {{"g", 10}});
  add_contents(summary, 1, {{"f", 3}, {"g", 1}});  // again, in the next segment
  summary.add(kernel("f"));
  for (int i = 0; i < 5; ++i) summary.add(graph_launch(1, false));
  summary.add(graph_launch(2, false));
  summary.add(graph_launch(2, true));          // its nodes have lines of their own
  summary.add(graph_launch(2, std::nullopt));  // it may be so
  summary.add(graph_launch(2, false, 719));
  summary.add(graph_launch(0, false));
  summary.add(graph_launch(7, false));  // the log does not say
  summary.end_log({});
  ASSERT_EQ(summary.groups().size(), 2u);
  EXPECT_EQ(summary.groups()[0].launches, 16u);
  EXPECT_EQ(summary.groups()[0].replayed, 15u);
  EXPECT_EQ(summary.groups()[1].launches, 15u);
  EXPECT_EQ(summary.logs()[0].launches, 1u);
  EXPECT_EQ(summary.logs()[0].gpu_kernels, 30u);
  EXPECT_EQ(summary.logs()[0].replayed_kernels, 30u);
  EXPECT_EQ(summary.logs()[0].unknown_replays, 3u);
  EXPECT_EQ(summary.totals().launches, 31u);
  summary.begin_log("b");  // with numbers of its own
  summary.add(graph_launch(1, false));
  summary.end_log({});
  EXPECT_EQ(summary.logs()[1].unknown_replays, 1u);
}

TEST(LogSummary, TheSumOfTheSessionTellsOfReplaysOnce) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  add_contents(summary, 1, {{"f", 3}});
  summary.add(kernel("f"));
  for (int i = 0; i < 5; ++i) summary.add(graph_launch(1, false));
  log::KernelSummaryLine all = summary_of(kernel("f"), 31, true);  // two more calls, and 13 kernels of graphs
  all.summary.replayed = 28;
  summary.add(all);
  summary.end_log({});
  EXPECT_EQ(summary.groups()[0].launches, 31u);
  EXPECT_EQ(summary.groups()[0].replayed, 28u);
  EXPECT_EQ(summary.logs()[0].launches, 3u);
  EXPECT_EQ(summary.logs()[0].gpu_kernels, 28u);
}

TEST(LogSummary, TheEndTellsOfGraphLaunchesWhoseLinesAreGone) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(log::GraphLaunchLine{});
  event::SessionEnd end;
  end.graph_launches = 40;
  summary.add(end);
  summary.end_log({});
  EXPECT_EQ(summary.logs()[0].graph_launches, 40u);
  summary.begin_log("recovered");  // lines that came behind the end
  summary.add(log::GraphLaunchLine{});
  summary.add(log::GraphLaunchLine{});
  end.graph_launches = 1;
  summary.add(end);
  summary.end_log({});
  EXPECT_EQ(summary.logs()[1].graph_launches, 2u);
}

TEST(LogSummary, EventsThatALogHasLostAreMissing) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  for (int i = 0; i < 3; ++i) summary.add(kernel("f"));
  summary.add(log::GraphLaunchLine{});
  summary.add(log::ScopeLine{});
  EXPECT_EQ(summary.logs()[0].missing_events(), 0u);  // it has no end
  event::SessionEnd end;
  end.ledger.written = 105;
  end.ledger.rotated_away = 90;  // of the recorder's own accord
  summary.add(end);
  EXPECT_EQ(summary.logs()[0].missing_events(), 10u);
  end.ledger.rotated_away = 200;  // nonsense
  summary.add(end);
  EXPECT_EQ(summary.logs()[0].missing_events(), 0u);
}

TEST(LogSummary, LogsAreMergedByContents) {
  LogSummary summary(GroupBy::kKernel);
  for (const char* path : {"a", "b"}) {
    summary.begin_log(path);
    summary.add(kernel("f"));
    summary.add(summary_of(kernel("f"), 1, true));  // each log's own
    summary.end_log({});
  }
  ASSERT_EQ(summary.groups().size(), 1u);
  EXPECT_EQ(summary.groups()[0].launches, 2u);
  EXPECT_EQ(summary.groups()[0].configs, 1u);
  EXPECT_EQ(summary.logs().size(), 2u);
}

TEST(LogSummary, StreamsOfDifferentProcessesAreDifferent) {
  LogSummary summary(GroupBy::kStream);
  for (const std::int64_t pid : {10, 20}) {
    summary.begin_log("x");
    log::SessionStartLine start;
    start.session.pid = pid;
    summary.add(start);
    event::StreamInfo info;
    info.stream = event::StreamId(1);
    info.kind = event::StreamInfo::Kind::kLegacyDefault;
    summary.add(info);
    summary.add(kernel("f"));
    summary.add(kernel("g"));
  }
  ASSERT_EQ(summary.groups().size(), 2u);
  EXPECT_EQ(summary.groups()[0].label, "stream 1 (default) of process 10");
  EXPECT_EQ(summary.groups()[1].label, "stream 1 (default) of process 20");
  EXPECT_EQ(summary.groups()[1].configs, 2u);
}

TEST(LogSummary, ScopesAndThreadsAndDevices) {
  auto scoped = kernel("f");
  scoped.scope = "step/forward";
  LogSummary scopes(GroupBy::kScope), threads(GroupBy::kThread), devices(GroupBy::kDevice);
  for (LogSummary* summary : {&scopes, &threads, &devices}) {
    summary->begin_log("a");
    log::DeviceInfoLine device;
    device.device.name = "Board";
    device.device.uuid = "GPU-1";
    summary->add(device);
    summary->add(scoped);
    summary->add(kernel("f"));
  }
  ASSERT_EQ(scopes.groups().size(), 2u);
  EXPECT_EQ(scopes.groups()[0].label, "step/forward");
  EXPECT_EQ(scopes.groups()[1].label, kNoScope);
  ASSERT_EQ(threads.groups().size(), 1u);
  EXPECT_EQ(threads.groups()[0].label, "thread 7 of log 1");
  ASSERT_EQ(devices.groups().size(), 1u);
  EXPECT_EQ(devices.groups()[0].label, "device 0: Board GPU-1");
}

TEST(LogSummary, MemoryIsBoundedAndSaysSo) {
  LogSummary summary(GroupBy::kKernel, {.groups = 10, .configs = 15});
  summary.begin_log("a");
  for (int i = 0; i < 1000; ++i) summary.add(kernel("k" + std::to_string(i)));
  EXPECT_EQ(summary.groups().size(), 11u);
  EXPECT_TRUE(summary.groups_full());
  EXPECT_EQ(summary.groups().back().label, kOtherGroups);
  EXPECT_EQ(summary.groups().back().launches, 990u);
  EXPECT_EQ(summary.totals().launches, 1000u);
}

TEST(LogSummary, UnknownFactsStayUnknown) {
  log::KernelEventLine line;  // the table was full: nothing known
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(line);
  const LaunchGroup& group = summary.groups()[0];
  EXPECT_EQ(group.label, kUnknownKernel);
  EXPECT_FALSE(group.num_regs.known);
  EXPECT_FALSE(group.block_threads.known);
  EXPECT_FALSE(group.mean_occupancy());
  EXPECT_FALSE(group.main_limiter());
  EXPECT_FALSE(group.call.mean_ns());
}

TEST(LogSummary, OccupancyIsWeightedByLaunches) {
  auto low = kernel("f", 128);
  low.occupancy_ratio = 0.5;
  low.occupancy.limiter = event::Limiter::kRegisters;
  auto high = kernel("f", 256);
  high.occupancy_ratio = 1.0;
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  summary.add(low);
  for (int i = 0; i < 3; ++i) summary.add(high);
  const LaunchGroup& f = summary.groups()[0];
  EXPECT_DOUBLE_EQ(*f.mean_occupancy(), 0.875);
  EXPECT_EQ(*f.main_limiter(), event::Limiter::kSharedMem);
  EXPECT_EQ(f.limited_by[static_cast<int>(event::Limiter::kRegisters)], 1u);
}

TEST(LogSummary, EndAndLossesAreKept) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  event::LossEvent loss;
  loss.ledger.lost[0] = 3;
  loss.time_ns = 10;
  summary.add(loss);
  EXPECT_FALSE(summary.logs()[0].end);
  EXPECT_EQ(summary.logs()[0].lost(), 3u);
  event::SessionEnd end;
  end.time_ns = 50;
  end.ledger.lost[0] = 5;
  summary.add(end);
  EXPECT_EQ(summary.logs()[0].lost(), 5u);
  EXPECT_EQ(summary.logs()[0].duration_ns(), 50);
}

}  // namespace
}  // namespace gpuflight::analysis
