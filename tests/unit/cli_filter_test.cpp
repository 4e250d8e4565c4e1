#include <gtest/gtest.h>

#include "event_filter.h"
#include "failure.h"
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

TEST(Verbs, NearestWord) {
  const std::vector<std::string> known = {"run", "tail", "report", "doctor"};
  EXPECT_EQ(nearest_word("rn", known), "run");
  EXPECT_EQ(nearest_word("reprot", known), "report");
  EXPECT_EQ(nearest_word("rep", known), "report");
  EXPECT_EQ(nearest_word("xyzzy", known), "");
}

}  // namespace
}  // namespace gpuflight::cli
