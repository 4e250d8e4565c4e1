// What a page's timeline is drawn of.
#include "analysis/work_sample.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "event/plausible_time.h"
#include "report/html_report.h"

namespace gpuflight {
namespace {

using analysis::DrawnKind;
using analysis::DrawnTrack;
using analysis::DrawnWork;
using analysis::WorkSample;

log::LogEvent kernel(const char* name, std::uint32_t stream, std::int64_t start, std::int64_t end,
                     std::int32_t device = 0) {
  log::KernelEventLine line;
  line.kernel.name = name;
  line.kernel.device = device;
  line.launch.stream = event::StreamId(stream);
  line.launch.launch_ns = start - 100;
  line.launch.start_ns = start;
  line.launch.end_ns = end;
  line.launch.grid = {7, 1, 1};
  return line;
}

log::LogEvent copy(event::CopyKind kind, std::uint32_t stream, std::int64_t start, std::int64_t end,
                   std::uint64_t bytes) {
  log::MemcpyLine line;
  line.copy.kind = kind;
  line.copy.stream = event::StreamId(stream);
  line.copy.start_ns = start;
  line.copy.end_ns = end;
  line.copy.bytes = bytes;
  line.device = 0;
  return line;
}

std::uint64_t pieces(const WorkSample& works) {
  std::uint64_t sum = 0;
  for (const DrawnTrack& track : works.tracks()) {
    for (const DrawnWork& work : track.works) sum += work.pieces;
  }
  return sum;
}

std::int64_t busy(const WorkSample& works) {
  std::int64_t sum = 0;
  for (const DrawnTrack& track : works.tracks()) {
    for (const DrawnWork& work : track.works) sum += work.busy_ns;
  }
  return sum;
}

TEST(WorkSample, KeepsAllThatFitsAsItWas) {
  WorkSample works;
  works.begin_log();
  works.add(copy(event::CopyKind::kHtoD, 3, 500, 900, 4096));
  works.add(kernel("b", 2, 2000, 3000));
  works.add(kernel("a", 2, 1000, 1500));
  works.finish();
  ASSERT_EQ(works.tracks().size(), 2u);
  const DrawnTrack& kernels = works.tracks()[0];
  EXPECT_EQ(kernels.number, 2u);
  ASSERT_EQ(kernels.works.size(), 2u);
  EXPECT_EQ(kernels.works[0].start_ns, 1000);  // by start, however they came
  EXPECT_EQ(kernels.works[0].end_ns, 1500);
  EXPECT_EQ(kernels.works[0].queue_ns, 100);
  EXPECT_EQ(kernels.works[0].amount, 7u);
  EXPECT_EQ(works.names()[kernels.works[0].name].text, "a");
  const DrawnWork& copied = works.tracks()[1].works[0];
  EXPECT_EQ(copied.kind, DrawnKind::kCopyIn);
  EXPECT_EQ(copied.amount, 4096u);
  EXPECT_EQ(works.merged_below_ns(), 0);
  EXPECT_EQ(works.seen(), 3u);
}

TEST(WorkSample, WorkBesideOtherWorkOfItsStreamStandsInAFurtherLane) {
  WorkSample works;
  works.begin_log();
  works.add(kernel("a", 2, 0, 100));
  works.add(kernel("b", 2, 50, 150));
  works.add(kernel("c", 2, 100, 200));
  works.finish();
  ASSERT_EQ(works.tracks().size(), 2u);
  EXPECT_EQ(works.tracks()[0].works.size(), 2u);
  EXPECT_EQ(works.tracks()[1].lane, 1u);
  ASSERT_EQ(works.tracks()[1].works.size(), 1u);
  EXPECT_EQ(works.tracks()[1].works[0].start_ns, 50);
}

TEST(WorkSample, BeyondTheBoundNeighboursAreOnePieceAndNothingIsForgotten) {
  constexpr std::size_t kMost = 500;
  WorkSample works(kMost);
  works.begin_log();
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < 20'000; ++i) {
    const std::int64_t start = i * 1000, length = i == 9000 ? 600'000'000 : 300 + i % 7;
    works.add(kernel(i % 3 == 0 ? "a" : "b", 1 + static_cast<std::uint32_t>(i % 2), start, start + length));
    total += length;
  }
  works.finish();
  EXPECT_LE(works.drawn(), kMost);
  EXPECT_GT(works.drawn(), kMost / 4);  // no coarser than it must be
  EXPECT_EQ(works.seen(), 20'000u);
  EXPECT_EQ(pieces(works), 20'000u);
  EXPECT_EQ(busy(works), total);
  EXPECT_GT(works.merged_below_ns(), 0);
  std::size_t whole = 0;
  for (const DrawnTrack& track : works.tracks()) {
    for (const DrawnWork& work : track.works) {
      const bool is_long = work.end_ns - work.start_ns > works.merged_below_ns();
      whole += is_long;
      if (is_long) {
        EXPECT_EQ(work.pieces, 1u);
        EXPECT_EQ(work.end_ns - work.start_ns, 600'000'000);
      }
    }
  }
  EXPECT_EQ(whole, 1u);
}

TEST(WorkSample, OfSeveralKindsTheLongestNamesThePiece) {
  WorkSample works(1);
  works.begin_log();
  works.add(copy(event::CopyKind::kDtoH, 2, 0, 10, 1));
  works.add(kernel("k", 2, 20, 90));
  works.add(copy(event::CopyKind::kHtoD, 2, 100, 130, 1));
  works.finish();
  ASSERT_EQ(works.drawn(), 1u);
  const DrawnWork& work = works.tracks()[0].works[0];
  EXPECT_EQ(work.kind, DrawnKind::kMixed);
  EXPECT_EQ(works.names()[work.name].text, "k");
  EXPECT_EQ(work.start_ns, 0);
  EXPECT_EQ(work.end_ns, 130);
  EXPECT_EQ(work.busy_ns, 110);
}

TEST(WorkSample, HostileLogsStayWithinTheBounds) {
  WorkSample works(100);
  for (int log = 0; log < 3; ++log) {
    works.begin_log();
    for (std::uint32_t i = 0; i < 5000; ++i) {
      works.add(kernel(std::to_string(i).c_str(), i, INT64_MAX - 5, INT64_MAX));      // no time of a recording
      works.add(kernel("backwards", i, 500, 100));
      const auto device = static_cast<std::int32_t>(i);
      works.add(kernel(std::to_string(i % 4).c_str(), i, -event::kMostNs, event::kMostNs, device));
    }
  }
  works.finish();
  EXPECT_EQ(works.seen(), 15'000u);
  EXPECT_EQ(works.tracks().size(), 256u);
  EXPECT_EQ(works.left_out(), 15'000u - pieces(works));
}

TEST(WorkSample, ScriptsCannotBeLeft) {
  EXPECT_EQ(report::script_safe("{\"a\":\"</script><!--<script>\"}"),
            "{\"a\":\"\\u003c/script>\\u003c!--\\u003cscript>\"}");
}

}  // namespace
}  // namespace gpuflight
