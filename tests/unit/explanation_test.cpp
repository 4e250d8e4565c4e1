// What a study of logs keeps of each configuration, and what is said of it.
#include "analysis/explanation.h"

#include <gtest/gtest.h>

#include <string>

#include "analysis/what_if.h"
#include "event/board.h"
#include "occupancy/occupancy_model.h"
#include "report/curve_plot.h"

namespace gpuflight::analysis {
namespace {

using event::Dim3;

log::DeviceInfoLine device_line(const char* board, std::int32_t ordinal = 0) {
  log::DeviceInfoLine line;
  line.device = *event::find_board(board);
  line.device.device = ordinal;
  return line;
}

// A launch of a kernel with 16 KiB of static shared memory on an sm_86, as its log has it.
log::KernelEventLine launch_line(const char* board, Dim3 grid, std::int32_t ordinal = 0) {
  static std::uint64_t counter = 0;
  log::KernelEventLine line;
  line.kernel.name = "_Z6reducePf";
  line.kernel.device = ordinal;
  line.kernel.num_regs = 16;
  line.kernel.static_shared_bytes = 16384;
  line.kernel.local_bytes_per_thread = 0;
  line.shape.block = {256, 1, 1};
  line.config_known = line.details = true;
  line.launch.seq = event::Seq(1, ++counter);
  line.launch.grid = grid;
  line.launch.launch_ns = static_cast<std::int64_t>(counter) * 1000;
  line.launch.call_ns = 100;
  line.launch.status = 0;
  line.occupancy = occupancy::compute_occupancy(*event::find_board(board), line.kernel, line.shape);
  line.occupancy.source = event::OccupancySource::kDriver;
  line.occupancy_ratio = occupancy::theoretical_occupancy(line.occupancy);
  return line;
}

log::KernelEventLine timed(log::KernelEventLine line, std::int64_t duration) {
  line.launch.start_ns = line.launch.launch_ns + 500;
  line.launch.end_ns = *line.launch.start_ns + duration;
  line.duration_ns = duration;
  return line;
}

TEST(KernelStudy, OneConfigurationOnTwoBoardsOfAKindIsOne) {
  KernelStudy study;
  study.begin_log("a");
  study.add(device_line("sm_86", 0));
  study.add(device_line("sm_86", 1));
  for (int i = 0; i < 3; ++i) study.add(launch_line("sm_86", {820, 1, 1}, 0));
  for (int i = 0; i < 4; ++i) study.add(launch_line("sm_86", {615, 1, 1}, 1));
  study.end_log({});
  const auto configs = study.configs();
  ASSERT_EQ(configs.size(), 1u);
  EXPECT_EQ(configs[0].launches, 7u);
  EXPECT_EQ(configs[0].grids.launches, 7u);
  EXPECT_EQ(configs[0].grids.tailed, 4u);
  EXPECT_DOUBLE_EQ(configs[0].share, 1);
  EXPECT_FALSE(study.by_gpu_time());
}

// Device 0 means another board in another log, even where the blocks on an SM are as many.
TEST(KernelStudy, BoardsOfTwoKindsAreApart) {
  KernelStudy study;
  for (const char* board : {"rtx3090", "a10"}) {
    study.begin_log(board);
    study.add(device_line(board));
    study.add(launch_line(board, {100, 1, 1}));
    study.end_log({});
  }
  const auto configs = study.configs();
  ASSERT_EQ(configs.size(), 2u);
  EXPECT_NE(configs[0].board->sm_count, configs[1].board->sm_count);
}

TEST(KernelStudy, OrderIsByGpuTime) {
  KernelStudy study;
  study.begin_log("a");
  study.add(device_line("sm_86"));
  for (int i = 0; i < 9; ++i) study.add(timed(launch_line("sm_86", {820, 1, 1}), 1'000));
  auto other = launch_line("sm_86", {820, 1, 1});
  other.kernel.name = "_Z4longv";
  study.add(timed(other, 91'000));
  study.end_log({});
  EXPECT_TRUE(study.by_gpu_time());
  const auto configs = study.configs();
  ASSERT_EQ(configs.size(), 2u);
  EXPECT_EQ(configs[0].kernel.name, "_Z4longv");
  EXPECT_DOUBLE_EQ(configs[0].share, 0.91);
}

TEST(KernelStudy, SummariesCountWithoutGrids) {
  KernelStudy study;
  study.begin_log("a");
  study.add(device_line("sm_86"));
  const auto launch = launch_line("sm_86", {820, 1, 1});
  log::KernelSummaryLine sum;
  sum.kernel = launch.kernel;
  sum.shape = launch.shape;
  sum.occupancy = launch.occupancy;
  sum.config_known = sum.details = true;
  sum.summary.count = 1000;
  study.add(sum);
  study.end_log({});
  const auto configs = study.configs();
  ASSERT_EQ(configs.size(), 1u);
  EXPECT_EQ(configs[0].launches, 1000u);
  EXPECT_EQ(configs[0].grids.launches, 0u);
  const Explanation said = explain(configs[0]);
  EXPECT_EQ(said.silence, Silence::kNone);
  EXPECT_EQ(said.advice->now.max_active_blocks, 5);
  EXPECT_EQ(said.doubt, Doubt::kHighOccupancy);
}

TEST(KernelStudy, CapturedAndRefusedLaunchesHaveNoGrids) {
  KernelStudy study;
  study.begin_log("a");
  study.add(device_line("sm_86"));
  auto captured = launch_line("sm_86", {10, 1, 1}), refused = captured;
  captured.launch.captured = true;
  study.add(captured);
  EXPECT_TRUE(study.configs().empty());
  refused.launch.status = 1;
  study.add(refused);
  study.end_log({});
  ASSERT_EQ(study.configs().size(), 1u);
  EXPECT_EQ(study.configs()[0].grids.launches, 0u);
  EXPECT_EQ(study.configs()[0].executed(), 0u);
}

TEST(GridFacts, TailAndSmallGridsAreBoundsOfTime) {
  event::Occupancy o;
  o.max_active_blocks = 5;
  const event::LaunchShape shape;
  GridFacts grids;
  grids.add({615, 1, 1}, o, shape, 82, 1000);  // 1.5 waves of 410
  EXPECT_EQ(grids.tailed, 1u);
  EXPECT_DOUBLE_EQ(grids.tail_ns, 250);
  grids.add({41, 1, 1}, o, shape, 82, 1000);
  EXPECT_EQ(grids.small, 1u);
  EXPECT_EQ(grids.resident, 1u);
  EXPECT_DOUBLE_EQ(grids.small_ns, 500);
  grids.add({410, 2, 1}, o, shape, 82, 1000);  // two whole waves
  grids.add({410, 1, 1}, o, shape, 82, 1000);  // one
  EXPECT_EQ(grids.tailed, 1u);
  EXPECT_EQ(grids.resident, 2u);
  EXPECT_EQ(grids.placed, 4u);
  grids.add({1, 1, 1}, o, shape, 0, 1000);  // no board
  EXPECT_EQ(grids.placed, 4u);
  EXPECT_EQ(grids.launches, 5u);
}

TEST(GridFacts, ClustersFillTheBoardAsTheDriverSays) {
  event::Occupancy o;
  o.max_active_blocks = 8;
  o.max_active_clusters = 100;
  event::LaunchShape shape;
  shape.cluster = {4, 1, 1};
  GridFacts grids;
  grids.add({800, 1, 1}, o, shape, 132, std::nullopt);
  EXPECT_DOUBLE_EQ(grids.waves.max, 2);
  EXPECT_EQ(grids.tailed, 0u);
}

TEST(Explanation, BarriersStayAndTheirAdviceIsGiven) {
  StudiedConfig config;
  config.details = config.config_known = true;
  config.board = *event::find_board("h200");
  config.kernel.num_regs = 16;
  config.kernel.static_shared_bytes = 0;
  config.shape.block = {64, 1, 1};
  config.occupancy = occupancy::compute_occupancy(*config.board, config.kernel, config.shape, {4, -1});
  const Explanation said = explain(config);
  ASSERT_EQ(said.silence, Silence::kNone);
  EXPECT_EQ(said.advice->now.limiter, event::Limiter::kBarriers);
  ASSERT_EQ(said.advice->advice.size(), 3u);  // fewer barriers, and larger blocks: the next one, the API's
  EXPECT_EQ(said.advice->advice[0].change, occupancy::Change::kBarriers);
  EXPECT_EQ(said.advice->advice[0].to, 12);
  EXPECT_NE(said.finding(Rule::kLowOccupancy), nullptr);
  // Elsewhere nobody knows them.
  const KernelWhatIf elsewhere = what_if_elsewhere(config, {event::find_board("sm_80")});
  EXPECT_TRUE(elsewhere.barriers_left_out);
  EXPECT_EQ(elsewhere.boards[0].advice.now.max_active_blocks, 32);
}

TEST(Explanation, RulesSayWhereTheyComeFrom) {
  for (int i = 0; i < kRuleCount; ++i) EXPECT_GT(std::string(rule_source(static_cast<Rule>(i))).size(), 20u);
  for (int i = 0; i < occupancy::kChangeCount; ++i) {
    EXPECT_GT(std::string(occupancy::rule_source(static_cast<occupancy::Change>(i))).size(), 20u);
  }
}

TEST(CurvePlot, FitsItsWidthAndMarksThePlace) {
  occupancy::Scenario s;
  s.device = *event::find_board("sm_86");
  s.kernel.num_regs = 40;
  s.kernel.static_shared_bytes = 16384;
  for (const std::uint32_t threads : {1u, 32u, 250u, 256u, 1024u}) {
    s.shape.block = {threads, 1, 1};
    for (const char* name : occupancy::kCurveNames) {
      const auto over = *occupancy::curve_over(name);
      for (const std::size_t width : {40u, 80u, 200u}) {
        const std::string plot = report::curve_plot(occupancy::occupancy_curve(s, over), width);
        std::size_t rows = 0;
        for (std::size_t at = 0; at < plot.size(); ++rows) {
          const std::size_t end = plot.find('\n', at);
          EXPECT_LE(end - at, std::max<std::size_t>(width, 48));
          at = end + 1;
        }
        EXPECT_GE(rows, 13u);
        EXPECT_NE(plot.find('^'), std::string::npos);
      }
    }
  }
  s.shape.block = {256, 1, 1};
  EXPECT_NE(report::curve_plot(occupancy::occupancy_curve(s, occupancy::CurveOver::kRegisters), 100)
                .find("^ 40: 83.3%, 5 blocks, limited by shared memory"),
            std::string::npos);
}

}  // namespace
}  // namespace gpuflight::analysis
