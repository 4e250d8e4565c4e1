// PendingTable against a container that is surely right.
#include "recorder/pending_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gpuflight::recorder {
namespace {

using Kind = PendingWork::Kind;

PendingWork work(std::uint32_t correlation, std::uint64_t counter, Kind kind = Kind::kKernel, std::int16_t device = 0) {
  PendingWork w;
  w.correlation = correlation;
  w.state = PendingWork::State::kHeld;
  w.kind = kind;
  w.device = device;
  w.seq = event::Seq(1, counter);
  return w;
}

TEST(PendingTable, FindsByKindAndDevice) {
  PendingTable table;
  EXPECT_EQ(table.find(7, Kind::kKernel, 0), nullptr);
  ASSERT_TRUE(table.add(work(7, 1, Kind::kCopy)));
  ASSERT_TRUE(table.add(work(7, 2, Kind::kKernel, 0)));
  ASSERT_TRUE(table.add(work(7, 3, Kind::kKernel, 1)));  // one call that launched on two devices
  EXPECT_EQ(table.find(7, Kind::kKernel, 1)->seq.counter(), 3u);
  EXPECT_EQ(table.find(7, Kind::kKernel, 0)->seq.counter(), 2u);
  EXPECT_EQ(table.find(7, Kind::kCopy, 5)->seq.counter(), 1u);  // another device is better than none
  EXPECT_EQ(table.find(7, Kind::kFill, 0), nullptr);
  EXPECT_EQ(table.find(8, Kind::kKernel, 0), nullptr);
  table.erase(table.find(7, Kind::kKernel, 0));
  EXPECT_EQ(table.find(7, event::Seq(1, 2)), nullptr);
  EXPECT_NE(table.find(7, event::Seq(1, 3)), nullptr);
  EXPECT_EQ(table.size(), 2u);
}

TEST(PendingTable, IsTheSameAsAMapUnderAnyOrderOfCalls) {
  std::mt19937 random(1);
  PendingTable table;
  std::map<std::uint64_t, std::uint32_t> present;  // counter to correlation
  std::uint64_t counter = 0;
  for (int i = 0; i < 200'000; ++i) {
    // Correlation ids of a few threads, close together and now and then twice.
    const bool grow = present.size() < 1000 || (present.size() < 5000 && random() % 2 == 0);
    if (grow) {
      const std::uint32_t correlation = 1 + static_cast<std::uint32_t>(counter / 2 + random() % 3);
      ASSERT_TRUE(table.add(work(correlation, counter)));
      present.emplace(counter++, correlation);
    } else {
      auto it = present.begin();
      std::advance(it, random() % std::min<std::size_t>(present.size(), 50));
      PendingWork* const found = table.find(it->second, event::Seq(1, it->first));
      ASSERT_NE(found, nullptr);
      table.erase(found);
      ASSERT_EQ(table.find(it->second, event::Seq(1, it->first)), nullptr);
      present.erase(it);
    }
    ASSERT_EQ(table.size(), present.size());
  }
  for (const auto& [seq, correlation] : present) {
    ASSERT_NE(table.find(correlation, event::Seq(1, seq)), nullptr);
  }
}

TEST(PendingTable, IsBounded) {
  PendingTable table;
  for (std::size_t i = 0; i < PendingTable::kMostEntries; ++i) {
    ASSERT_TRUE(table.add(work(static_cast<std::uint32_t>(i + 1), i)));
  }
  EXPECT_FALSE(table.add(work(1, PendingTable::kMostEntries)));
  EXPECT_LE(table.bytes(), std::size_t{48} << 20);
  table.erase(table.find(5, Kind::kKernel, 0));
  EXPECT_TRUE(table.add(work(5, 1u << 30)));
}

}  // namespace
}  // namespace gpuflight::recorder
