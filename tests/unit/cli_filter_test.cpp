#include <gtest/gtest.h>

#include "event_filter.h"
#include "failure.h"
#include "kernel_line.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

log::KernelEventLine line(const char* name = "_ZN2at6native4gemmIfEEvPT_") {
  log::KernelEventLine line;
  line.kernel.name = name;
  line.launch.stream = event::StreamId(2);
  line.launch.status = 0;
  line.occupancy_ratio = 0.5;
  line.occupancy.limiters = event::limiter_bit(event::Limiter::kRegisters) | event::limiter_bit(event::Limiter::kWarps);
  return line;
}

bool named(const char* pattern, const char* name = "_ZN2at6native4gemmIfEEvPT_") {
  EventFilter filter;
  filter.add_name(pattern);
  return filter.passes(line(name));
}

TEST(EventFilter, Names) {
  EXPECT_TRUE(named("gemm"));
  EXPECT_TRUE(named("native::ge"));
  EXPECT_TRUE(named("at::native::gemm*"));
  EXPECT_TRUE(named("_ZN2at*"));
  EXPECT_FALSE(named("gemm*"));  // a glob means the whole name
  EXPECT_TRUE(named("/gemm<(float|half)>/"));
  EXPECT_FALSE(named("/^gemm/"));
  EXPECT_TRUE(named("triton_*", "triton_poi"));
  EXPECT_THROW(named("/(/"), UsageError);
}

TEST(EventFilter, SeveralNamesAreAlternatives) {
  EventFilter filter;
  filter.add_name("nothing");
  filter.add_name("gemm");
  EXPECT_TRUE(filter.passes(line()));
}

TEST(EventFilter, LimitersIncludeTies) {
  EventFilter filter;
  filter.add_limiter("warps");
  EXPECT_TRUE(filter.passes(line()));
  EventFilter other;
  other.add_limiter("shared_mem");
  EXPECT_FALSE(other.passes(line()));
  EXPECT_THROW(other.add_limiter("smem"), UsageError);
}

TEST(EventFilter, Occupancy) {
  const auto below = [](const char* text) {
    EventFilter filter;
    filter.set_occupancy_below(text);
    return filter.passes(line());
  };
  EXPECT_FALSE(below("0.5"));
  EXPECT_TRUE(below("0.51"));
  EXPECT_TRUE(below("51%"));
  EXPECT_THROW(below("51"), UsageError);
  EXPECT_THROW(below("half"), UsageError);
  EXPECT_THROW(below(""), UsageError);
  EventFilter filter;
  filter.set_occupancy_below("100%");
  log::KernelEventLine unknown;
  EXPECT_FALSE(filter.passes(unknown));
}

TEST(EventFilter, StreamAndFailure) {
  EventFilter filter;
  filter.add_stream(3);
  EXPECT_FALSE(filter.passes(line()));
  filter.add_stream(2);
  EXPECT_TRUE(filter.passes(line()));
  filter.set_failed_only();
  EXPECT_FALSE(filter.passes(line()));
  auto refused = line();
  refused.launch.status = 701;
  EXPECT_TRUE(filter.passes(refused));
}

TEST(KernelLine, ErrorsAndHangsAreLinesCallsOnlyWhenAskedFor) {
  event::ErrorEvent error;
  error.time_ns = 1'500'000'000;
  error.code = 700;
  error.call = "cuCtxSynchronize";
  event::HangEvent hang;
  hang.time_ns = 31'000'000'000;
  hang.stream.stream = event::StreamId{2};
  event::HangEvent over = hang;
  over.phase = event::HangEvent::Phase::kEnd;
  log::SyncLine sync;
  sync.name = "cuStreamSynchronize";
  sync.call.stream = event::StreamId{2};
  sync.call.status = 700;
  KernelLine plain(200, false, false), with_calls(200, false, false, true);
  EXPECT_EQ(plain.render(error),
            "    1.500000  error: CUDA_ERROR_ILLEGAL_ADDRESS (700, illegal memory access) returned by "
            "cuCtxSynchronize\n");
  EXPECT_EQ(plain.render(hang).find("   31.000000  hang: stream 2 hangs"), 0u);
  EXPECT_EQ(plain.render(over), "   31.000000  hang over: stream 2 goes on after 31.0 s\n");
  EXPECT_EQ(plain.render(sync), "");
  EXPECT_EQ(plain.render(log::ApiLine{}), "");
  const std::string line = with_calls.render(sync);
  EXPECT_NE(line.find("s2"), std::string::npos) << line;
  EXPECT_NE(line.find("cuStreamSynchronize  [failed: 700]\n"), std::string::npos) << line;
}

TEST(Verbs, NearestWord) {
  const std::vector<std::string> known = {"run", "tail", "report", "doctor"};
  EXPECT_EQ(nearest_word("rn", known), "run");
  EXPECT_EQ(nearest_word("reprot", known), "report");
  EXPECT_EQ(nearest_word("rep", known), "report");
  EXPECT_EQ(nearest_word("xyzzy", known), "");
}

}  // namespace
}  // namespace gpuflight::cli
