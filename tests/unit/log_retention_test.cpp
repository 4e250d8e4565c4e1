#include "log/retention.h"

#include <gtest/gtest.h>

namespace gpuflight::log {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

RetentionOptions bound(std::uint64_t max_bytes, std::int64_t keep_ns) { return {max_bytes, 100, keep_ns}; }

TEST(LogRetention, WithoutBoundNothingIsKeptOrDeleted) {
  Retention r(bound(0, kSecond));
  for (std::uint32_t i = 1; i <= 1000; ++i) r.add({i, 100, 10, 0});
  EXPECT_EQ(r.closed_count(), 0u);
  EXPECT_FALSE(r.take_oldest_if_over(1ull << 50));
  EXPECT_FALSE(r.must_summarise(1ull << 50, 0));
}

TEST(LogRetention, OldestGoFirstUntilItFits) {
  Retention r(bound(350, 0));
  for (std::uint32_t i = 1; i <= 3; ++i) r.add({i, 100, i * 10, 0});
  EXPECT_FALSE(r.take_oldest_if_over(50));  // exactly full
  const auto first = r.take_oldest_if_over(51);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->number, 1u);
  EXPECT_EQ(first->events, 10u);
  EXPECT_FALSE(r.take_oldest_if_over(51));
  EXPECT_EQ(r.take_oldest_if_over(1000)->number, 2u);
  EXPECT_EQ(r.take_oldest_if_over(1000)->number, 3u);
  EXPECT_FALSE(r.take_oldest_if_over(1000));  // nothing left
  EXPECT_FALSE(r.fits(1000));
  EXPECT_EQ(r.closed_bytes(), 0u);
}

TEST(LogRetention, CompressionMakesRoom) {
  Retention r(bound(350, 0));
  for (std::uint32_t i = 1; i <= 3; ++i) r.add({i, 100, 10, 0});
  EXPECT_FALSE(r.fits(100));
  r.resize(2, 5);
  EXPECT_EQ(r.closed_bytes(), 205u);
  EXPECT_TRUE(r.fits(100));
  r.resize(99, 5);  // deleted meanwhile
  EXPECT_EQ(r.closed_bytes(), 205u);
}

TEST(LogRetention, SummariesWhileYoungEventsFillTheBound) {
  Retention r(bound(800, 10 * kSecond));
  for (std::uint32_t i = 1; i <= 6; ++i) {
    EXPECT_FALSE(r.must_summarise(0, kSecond)) << i;
    r.add({i, 100, 10, static_cast<std::int64_t>(i) * kSecond});
  }
  EXPECT_FALSE(r.must_summarise(100, 6 * kSecond));  // the live one and one more fit
  EXPECT_TRUE(r.must_summarise(101, 6 * kSecond));
  EXPECT_TRUE(r.must_summarise(0, 6 * kSecond));     // there is no going back at the brink
  EXPECT_TRUE(r.must_summarise(0, 10 * kSecond));
  EXPECT_FALSE(r.must_summarise(0, 11 * kSecond));   // the oldest has had its time
  EXPECT_FALSE(r.must_summarise(100, 11 * kSecond));
}

TEST(LogRetention, WithoutKeepTimeOldEventsMakeWayForNew) {
  Retention r(bound(300, 0));
  for (std::uint32_t i = 1; i <= 9; ++i) r.add({i, 100, 10, kSecond});
  EXPECT_FALSE(r.must_summarise(100, kSecond));
}

}  // namespace
}  // namespace gpuflight::log
