// What is allocated, against a simple account of the same calls.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "recorder/memory_ledger.h"

namespace gpuflight::recorder {
namespace {

using event::AllocationKind;
using Change = MemoryLedger::Change;

Change alloc(std::int64_t ns, std::uint64_t address, std::uint64_t bytes, AllocationKind kind = AllocationKind::kDevice,
             std::int32_t device = 0, std::uint64_t owner = 0) {
  return {ns, kind, true, true, address, bytes, owner, device};
}
Change free(std::int64_t ns, std::uint64_t address, AllocationKind kind = event::kUnknownAllocation) {
  return {ns, kind, false, true, address, 0, 0, -1};
}

TEST(MemoryLedger, TotalsAndPeakByKindDeviceAndPool) {
  MemoryLedger ledger;
  EXPECT_EQ(ledger.apply(alloc(1, 0x100, 10)).total_bytes, 10u);
  EXPECT_EQ(ledger.apply(alloc(2, 0x200, 20, AllocationKind::kDevice, 1)).total_bytes, 20u);
  EXPECT_EQ(ledger.apply(alloc(3, 0x300, 30, AllocationKind::kPool, 0, 0xA)).total_bytes, 30u);
  EXPECT_EQ(ledger.apply(alloc(4, 0x400, 40, AllocationKind::kPool, 0, 0xB)).total_bytes, 40u);
  EXPECT_EQ(ledger.apply(alloc(5, 0x500, 5)).total_bytes, 15u);
  const auto freed = ledger.apply(free(6, 0x100));
  EXPECT_EQ(freed.kind, AllocationKind::kDevice);
  EXPECT_EQ(freed.bytes, 10u);
  EXPECT_EQ(freed.total_bytes, 5u);
  EXPECT_EQ(freed.peak_bytes, 15u);
  // Memory of a pool goes by cuMemFree too.
  const auto pooled = ledger.apply(free(7, 0x400));
  EXPECT_EQ(pooled.kind, AllocationKind::kPool);
  EXPECT_EQ(pooled.pool, 0xBu);
  EXPECT_EQ(pooled.total_bytes, 0u);
  EXPECT_EQ(ledger.live(), 3u);
}

TEST(MemoryLedger, WhatWasNotSeenIsNotKnown) {
  MemoryLedger ledger;
  const auto freed = ledger.apply(free(1, 0x100));
  EXPECT_EQ(freed.kind, event::kUnknownAllocation);
  EXPECT_EQ(freed.bytes, std::nullopt);
  EXPECT_EQ(freed.total_bytes, std::nullopt);
  Change refused = alloc(2, 0, 99);
  refused.happened = false;
  EXPECT_EQ(ledger.apply(refused).bytes, 99u);
  EXPECT_EQ(ledger.live(), 0u);
  ledger.apply(alloc(3, 0x200, 7));
  Change failed = free(4, 0x200);
  failed.happened = false;
  EXPECT_EQ(ledger.apply(failed).bytes, 7u);
  EXPECT_EQ(ledger.live(), 1u);
}

// Told of after its free, since it stood in another thread's ring.
TEST(MemoryLedger, AFreeBeforeItsAllocation) {
  MemoryLedger ledger;
  ledger.apply(alloc(1, 0x100, 10));
  ledger.apply(free(5, 0x200));
  const auto late = ledger.apply(alloc(4, 0x200, 20));
  EXPECT_EQ(late.total_bytes, 30u);
  EXPECT_EQ(late.peak_bytes, 30u);
  EXPECT_EQ(ledger.live(), 1u);
  EXPECT_EQ(ledger.apply(alloc(6, 0x300, 1)).total_bytes, 11u);
  // The address used again is another allocation.
  ledger.apply(free(7, 0x400));
  EXPECT_EQ(ledger.apply(alloc(8, 0x400, 2)).total_bytes, 13u);
  EXPECT_EQ(ledger.live(), 3u);
}

TEST(MemoryLedger, AnAddressGivenOutTwiceLostItsFirst) {
  MemoryLedger ledger;
  ledger.apply(alloc(1, 0x100, 10));
  EXPECT_EQ(ledger.apply(alloc(2, 0x100, 4)).total_bytes, 4u);
  EXPECT_EQ(ledger.live(), 1u);
}

TEST(MemoryLedger, MappingsLieWhereTheirMemoryIs) {
  MemoryLedger ledger;
  ledger.apply(alloc(1, 7, 100, AllocationKind::kVirtual, 2));
  ledger.apply(alloc(1, 8, 100, AllocationKind::kVirtual, 3));
  EXPECT_EQ(ledger.apply(alloc(2, 0x1000, 100, AllocationKind::kMapping, -1, 7)).device, 2);
  EXPECT_EQ(ledger.apply(alloc(3, 0x1064, 100, AllocationKind::kMapping, -1, 7)).total_bytes, 200u);
  EXPECT_EQ(ledger.apply(alloc(3, 0x10C8, 100, AllocationKind::kMapping, -1, 8)).device, 3);
  Change two = free(4, 0x1000, AllocationKind::kMapping);
  two.bytes = 200;
  const auto unmapped = ledger.apply(two);
  EXPECT_EQ(unmapped.device, 2);
  EXPECT_EQ(unmapped.total_bytes, 0u);
  EXPECT_EQ(ledger.apply(free(5, 7, AllocationKind::kVirtual)).bytes, 100u);
  EXPECT_EQ(ledger.live(), 2u);
}

// A handle of physical memory and an address may be the same number.
TEST(MemoryLedger, NumbersOfDifferentKindsDoNotMeet) {
  MemoryLedger ledger;
  ledger.apply(alloc(1, 0x100, 1));
  ledger.apply(alloc(2, 0x100, 2, AllocationKind::kVirtual));
  ledger.apply(alloc(3, 0x100, 3, AllocationKind::kRegistered, -1));
  EXPECT_EQ(ledger.live(), 3u);
  EXPECT_EQ(ledger.apply(free(4, 0x100, AllocationKind::kRegistered)).bytes, 3u);
  EXPECT_EQ(ledger.apply(free(5, 0x100, AllocationKind::kVirtual)).bytes, 2u);
  EXPECT_EQ(ledger.apply(free(6, 0x100)).bytes, 1u);
}

TEST(MemoryLedger, BeyondItsRoomItCounts) {
  MemoryLedger ledger;
  for (std::uint64_t i = 0; i < MemoryLedger::kMaxLive; ++i) ledger.apply(alloc(1, (i + 1) * 256, 1));
  EXPECT_EQ(ledger.untracked(), 0u);
  EXPECT_EQ(ledger.apply(alloc(2, 0xFFFF'FFFF'FF00, 1)).total_bytes, std::nullopt);
  EXPECT_EQ(ledger.untracked(), 1u);
  EXPECT_EQ(ledger.apply(free(3, 256)).total_bytes, MemoryLedger::kMaxLive - 1);
  EXPECT_EQ(ledger.apply(alloc(4, 256, 1)).total_bytes, MemoryLedger::kMaxLive);
}

TEST(MemoryLedger, RandomCallsAgainstASimpleAccount) {
  MemoryLedger ledger;
  std::mt19937 rng(1);
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t total = 0, peak = 0;
  for (std::int64_t t = 1; t < 100'000; ++t) {
    const std::uint64_t address = (rng() % 500 + 1) * 256;
    const auto found = live.find(address);
    MemoryLedger::Result result;
    if (found == live.end()) {
      const std::uint64_t bytes = rng() % 10'000 + 1;
      live[address] = bytes;
      peak = std::max(peak, total += bytes);
      result = ledger.apply(alloc(t, address, bytes));
    } else {
      total -= found->second;
      live.erase(found);
      result = ledger.apply(free(t, address));
    }
    ASSERT_EQ(result.total_bytes, total) << t;
    ASSERT_EQ(result.peak_bytes, peak) << t;
    ASSERT_EQ(ledger.live(), live.size());
  }
}

}  // namespace
}  // namespace gpuflight::recorder
