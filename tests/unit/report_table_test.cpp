// The rendered report, compared with files that have been read by a person: tests/unit/report_table_*.txt
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/kernel_report.h"
#include "report/text_table.h"

namespace gpuflight::report {
namespace {

using analysis::GroupBy;
using analysis::LogSummary;

log::KernelEventLine kernel(const std::string& name, std::int32_t regs, std::int32_t shared, std::uint32_t block,
                            double occupancy, event::Limiter limiter) {
  log::KernelEventLine line;
  line.kernel.name = name;
  line.kernel.num_regs = regs;
  line.kernel.static_shared_bytes = shared;
  line.kernel.local_bytes_per_thread = 0;
  line.shape.block = {block, 1, 1};
  line.config_known = line.details = true;
  line.occupancy.source = event::OccupancySource::kDriver;
  line.occupancy.max_active_blocks = 5;
  line.occupancy.limiter = limiter;
  line.occupancy.limiters = event::limiter_bit(limiter);
  line.occupancy_ratio = occupancy;
  line.limit_occupancy[static_cast<std::size_t>(limiter)] = occupancy;
  line.launch.launch_ns = 1'000'000;
  line.launch.stream = event::StreamId(1);
  line.launch.call_ns = 5130;
  line.launch.status = 0;
  return line;
}

void add_log(LogSummary& summary, bool ends) {
  summary.begin_log("run/trainer.4711.ndjson");
  log::SessionStartLine start;
  start.session.program = "/opt/app/trainer";
  start.session.args = {"trainer", "--epochs", "3"};
  start.session.pid = 4711;
  start.session.host = "node1";
  start.session.t0_unix_ns = 1'767'225'600'000'000'000;
  start.session.rank = {{"RANK", "2"}};
  summary.add(start);
  log::DeviceInfoLine device;
  device.device.name = "NVIDIA RTX A2000";
  device.device.compute_major = 8;
  device.device.compute_minor = 6;
  device.device.sm_count = 26;
  summary.add(device);
  for (int i = 0; i < 1500; ++i) {
    auto naive = kernel("_Z18block_reduce_naivePKfPfi", 16, 16384, 256, 0.833333, event::Limiter::kSharedMem);
    if (i % 100 == 0) naive.launch.status = 701;
    summary.add(naive);
  }
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t block = i % 2 == 0 ? 128 : 1024;
    summary.add(kernel("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
                       i % 2 == 0 ? 24 : 32, 0, block, i % 2 == 0 ? 1.0 : 0.666667,
                       i % 2 == 0 ? event::Limiter::kWarps : event::Limiter::kBlocks));
  }
  auto captured = kernel("=cmd,\"quoted\"", 8, 0, 32, 0.5, event::Limiter::kBlocks);
  captured.launch.captured = true;
  summary.add(captured);
  summary.add(kernel("=cmd,\"quoted\"", 8, 0, 32, 0.5, event::Limiter::kBlocks));
  log::GraphLaunchLine graph;
  graph.launch.launch_ns = 2'000'000;
  summary.add(graph);
  event::Notice notice;
  notice.severity = event::Severity::kWarning;
  notice.code = "clock";
  notice.message = "the clock \033[1mjumped";
  summary.add(notice);
  if (ends) {
    event::SessionEnd end;
    end.time_ns = 12'300'000'000;
    end.reason = "exit";
    end.ledger.seen = 2014;
    end.ledger.written = 2002;
    end.ledger.lost[0] = 12;
    summary.add(end);
  }
  log::ReadStats stats;
  stats.lines = 2010;
  stats.bytes = 1'000'000;
  auto& broken = stats.troubles[static_cast<std::size_t>(log::Trouble::kInvalidJson)];
  broken.count = 2;
  broken.first_line = 12;
  broken.first_file = "run/trainer.4711.ndjson";
  broken.first_detail = "what the parser said";
  summary.end_log(stats);
}

// With GPUFLIGHT_TEST_WRITE_GOLDEN set the files are written instead: look at the difference before committing it.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(GPUFLIGHT_SOURCE_DIR) + "/tests/unit/report_table_" + name;
  if (std::getenv("GPUFLIGHT_TEST_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

struct Rendering : ::testing::Test {
  ReportOptions options;
  Rendering() { options.width = 120; }
  static LogSummary summary(GroupBy by, bool ends = true) {
    LogSummary summary(by);
    add_log(summary, ends);
    return summary;
  }
};

TEST_F(Rendering, TextIsAsLookedAt) { expect_golden("kernel.txt", render_text(summary(GroupBy::kKernel), options)); }

TEST_F(Rendering, NarrowTextIsAsLookedAt) {
  options.width = 90;
  expect_golden("narrow.txt", render_text(summary(GroupBy::kConfig, false), options));
}

TEST_F(Rendering, JsonIsAsLookedAt) { expect_golden("kernel.json", render_json(summary(GroupBy::kKernel), options)); }

TEST_F(Rendering, CsvIsAsLookedAt) { expect_golden("kernel.csv", render_csv(summary(GroupBy::kKernel), options)); }

TEST_F(Rendering, TheLastLineIsTheLoss) {
  const std::string text = render_text(summary(GroupBy::kKernel), options);
  EXPECT_NE(text.find("\nevents seen 2,014 = written 2,002 + summarised 0 + pending 0 + lost 12 (pool_empty 12)\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("(pool_empty 12)\n"));
}

TEST_F(Rendering, ALogWithoutEndIsSaidToHaveNone) {
  EXPECT_EQ(render_text(summary(GroupBy::kKernel), options).find("has no end"), std::string::npos);
  EXPECT_NE(render_text(summary(GroupBy::kKernel, false), options).find("has no end"), std::string::npos);
  const auto json = nlohmann::json::parse(render_json(summary(GroupBy::kKernel, false), options));
  EXPECT_EQ(json["logs"][0]["ended"], false);
  EXPECT_TRUE(json["logs"][0]["ledger"].is_null());
}

TEST_F(Rendering, ErrorsAndHangsStandInTheHead) {
  LogSummary incidents(GroupBy::kKernel);
  incidents.begin_log("a.ndjson");
  event::SuspectLaunch suspect;
  suspect.name = "_Z18block_reduce_naivePKfPfi";
  suspect.grid = {64, 1, 1};
  suspect.block = {256, 1, 1};
  event::ErrorEvent error;
  error.time_ns = 2'000'000'000;
  error.code = 700;
  error.name = "CUDA_ERROR_ILLEGAL_ADDRESS";
  error.call = "cuCtxSynchronize\033[2J";
  error.thread = 7;
  error.culprit = suspect;
  error.confidence = "exact";
  incidents.add(error);
  event::HangEvent hang;
  hang.since_ns = 1'000'000'000;
  hang.time_ns = 31'000'000'000;
  hang.stream.stream = event::StreamId(3);
  hang.stream.count = 2;
  hang.stream.launches = {suspect};
  hang.blocked = {{7, "cuStreamSynchronize", 1'500'000'000}};
  incidents.add(hang);
  hang.phase = event::HangEvent::Phase::kEnd;
  hang.time_ns = 41'000'000'000;
  incidents.add(hang);
  hang.phase = event::HangEvent::Phase::kBegin;
  incidents.add(hang);
  log::SyncLine sync;
  incidents.add(sync);
  incidents.add(log::ApiLine{});
  incidents.add(log::ApiLine{});
  incidents.add(event::ForkEvent{});
  incidents.end_log({});
  const std::string text = render_text(incidents, options);
  const std::string head = text.substr(0, text.find("no kernel launches"));
  EXPECT_NE(head.find("error      after 2.00 s: CUDA_ERROR_ILLEGAL_ADDRESS (700, illegal memory access) returned by "
                      "cuCtxSynchronize?[2J in thread 7; likely cause: block_reduce_naive (64,1,1) x (256,1,1), the "
                      "only launch it can be"), std::string::npos) << head;
  EXPECT_NE(head.find("hang       after 31.0 s: stream 3 hangs: nothing of its work was done for 30.0 s; 2 launches "
                      "not known to have finished, first block_reduce_naive (64,1,1) x (256,1,1); thread 7 waits in "
                      "cuStreamSynchronize; went on after 40.0 s"), std::string::npos) << head;
  EXPECT_NE(head.find("; never went on"), std::string::npos) << head;
  const auto json = nlohmann::json::parse(render_json(incidents, options));
  const auto& log = json["logs"][0];
  EXPECT_EQ(log["errors_total"], 1);
  EXPECT_EQ(log["errors"][0]["code"], 700);
  EXPECT_EQ(log["errors"][0]["culprit"]["name"], suspect.name);
  EXPECT_EQ(log["hangs_total"], 2);
  EXPECT_EQ(log["hangs"][0]["end_ns"], 41'000'000'000);
  EXPECT_TRUE(log["hangs"][1]["end_ns"].is_null());
  EXPECT_EQ(log["sync_calls"], 1);
  EXPECT_EQ(log["api_calls"], 2);
}

TEST_F(Rendering, ColoursOnlyWhenAskedFor) {
  EXPECT_EQ(render_text(summary(GroupBy::kKernel), options).find('\033'), std::string::npos);
  options.colour = true;
  EXPECT_NE(render_text(summary(GroupBy::kKernel), options).find('\033'), std::string::npos);
}

TEST_F(Rendering, TopAndSort) {
  options.top = 1;
  options.sort = SortBy::kOccupancy;
  const auto json = nlohmann::json::parse(render_json(summary(GroupBy::kConfig), options));
  ASSERT_EQ(json["groups"].size(), 1u);
  EXPECT_EQ(json["groups_total"], 4);
  EXPECT_EQ(json["groups"][0]["occupancy"], 0.5);
  EXPECT_NE(render_text(summary(GroupBy::kConfig), options).find("... and 3 more"), std::string::npos);
}

TEST_F(Rendering, ShareIsOfGpuTimeWhereAllHaveOne) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("a");
  auto slow = kernel("slow", 16, 0, 256, 1.0, event::Limiter::kWarps);
  slow.duration_ns = 900;
  auto fast = kernel("fast", 16, 0, 256, 1.0, event::Limiter::kWarps);
  fast.duration_ns = 50;
  for (const auto& line : {fast, fast, slow}) summary.add(line);
  EXPECT_TRUE(shares_of(summary).of_gpu_time);
  EXPECT_EQ(ranked(summary, SortBy::kShare)[0]->label, "slow");
  EXPECT_EQ(ranked(summary, SortBy::kCount)[0]->label, "fast");
  EXPECT_NE(render_text(summary, options).find("90.0%"), std::string::npos);
  fast.duration_ns.reset();
  summary.add(fast);
  EXPECT_FALSE(shares_of(summary).of_gpu_time);  // a share of times some of which are missing would mislead
}

TEST_F(Rendering, InvalidUtf8StaysValidJson) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("\xff.ndjson");
  summary.add(kernel("k\xff\xc3", 16, 0, 256, 1.0, event::Limiter::kWarps));
  EXPECT_FALSE(nlohmann::json::parse(render_json(summary, options), nullptr, false).is_discarded());
}

TEST_F(Rendering, NothingRecorded) {
  LogSummary summary(GroupBy::kKernel);
  EXPECT_NE(render_text(summary, options).find("no kernel launches"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(render_json(summary, options), nullptr, false).is_discarded());
}

// A program that was killed at its second level: the time there goes to the last that is known.
TEST(KernelReport, TimeAtTheLevelsOfABudget) {
  LogSummary summary(GroupBy::kKernel);
  summary.begin_log("killed.ndjson");
  log::SessionStartLine start;
  start.session.configuration = {{"budget", "0.5%"}};
  summary.add(start);
  event::LevelEvent change;
  change.time_ns = 42'000'000'000;
  change.to = event::RecordLevel::kSampled;
  change.budget_percent = 0.5;
  change.app_percent = 1.5;
  change.recorder_percent = 0.25;
  summary.add(change);
  event::Notice notice;
  notice.time_ns = 60'000'000'000;
  summary.add(notice);
  summary.end_log({});
  const std::string text = render_text(summary, {});
  EXPECT_NE(text.find("budget     0.5 %: 1 change, 42.0 s at events, 18.0 s at sampled\n"), std::string::npos) << text;
  const auto budget = nlohmann::json::parse(render_json(summary, {}))["logs"][0]["budget"];
  EXPECT_EQ(budget["time_ns"]["events"], 42'000'000'000);
  EXPECT_EQ(budget["time_ns"]["sampled"], 18'000'000'000);
  EXPECT_EQ(budget["level"], "sampled");
  EXPECT_TRUE(budget["mean"].is_null());
  EXPECT_EQ(budget["events"][0]["share_percent"], 1.75);
}

TEST(TextTable, AlignsByCodePointsAndLeavesNoBlanksBehind) {
  TextTable table;
  table.add_column("n", Align::kRight);
  table.add_column("name", Align::kLeft);
  table.add_row({"10", "\xc3\xa4"});
  table.add_row({"\xc3\xbc", "b"});
  EXPECT_EQ(table.render("<", ">"), "< n  name>\n10  \xc3\xa4\n \xc3\xbc  b\n");
  EXPECT_EQ(table.width_before_last(), 4u);
}

}  // namespace
}  // namespace gpuflight::report
