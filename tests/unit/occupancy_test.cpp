#include "occupancy/occupancy_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <string>

#include "occupancy_fixture.h"

namespace {
thread_local long g_allocations = 0;
}
// Counts what a call inside somebody else's process must not do. Not inlined: the compiler would call malloc and delete
// a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace gpuflight::occupancy {
namespace {

void expect_limits(const Occupancy& o, int registers, int shared, int warps, int blocks) {
  EXPECT_EQ(limit(o, Limiter::kRegisters), registers);
  EXPECT_EQ(limit(o, Limiter::kSharedMem), shared);
  EXPECT_EQ(limit(o, Limiter::kWarps), warps);
  EXPECT_EQ(limit(o, Limiter::kBlocks), blocks);
}

// ---- reference values -------------------------------------------------------------------------------------------

TEST(OccupancyReference, NaiveBlockReductionOnSm86) {
  const Occupancy o = compute_occupancy(board("sm_86"), kernel(16, 16384), shape(256));
  EXPECT_EQ(o.max_active_blocks, 5);
  EXPECT_EQ(occupancy_ratio(o), (Ratio{40, 48}));
  EXPECT_NEAR(theoretical_occupancy(o), 0.833333, 1e-6);
  expect_limits(o, 16, 5, 6, 16);
  EXPECT_EQ(o.limiter, Limiter::kSharedMem);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kSharedMem));
  EXPECT_EQ(resource_ratio(o, Limiter::kRegisters), (Ratio{48, 48}));
  EXPECT_EQ(resource_ratio(o, Limiter::kSharedMem), (Ratio{40, 48}));
  EXPECT_EQ(resource_ratio(o, Limiter::kWarps), (Ratio{48, 48}));
  EXPECT_EQ(resource_ratio(o, Limiter::kBlocks), (Ratio{48, 48}));
  EXPECT_FALSE(resource_ratio(o, Limiter::kBarriers).known());
  EXPECT_TRUE(std::isnan(resource_occupancy(o, Limiter::kCluster)));
  EXPECT_EQ(o.source, OccupancySource::kModel);
}

TEST(OccupancyReference, OneKilobyteFreesIt) {
  const std::pair<KernelInfo, LaunchShape> both[] = {{kernel(16, 1024), shape(256)}, {kernel(16), shape(256, 1024)}};
  for (const auto& [info, launch] : both) {
    const Occupancy o = compute_occupancy(board("sm_86"), info, launch);
    EXPECT_EQ(o.max_active_blocks, 6);
    EXPECT_DOUBLE_EQ(theoretical_occupancy(o), 1.0);
    EXPECT_EQ(o.limiter, Limiter::kWarps);
    EXPECT_EQ(o.limiters, limiter_bit(Limiter::kWarps));
  }
}

TEST(OccupancyReference, NaiveBlockReductionOnSm90) {
  const Occupancy o = compute_occupancy(board("sm_90"), kernel(16, 16384), shape(256), {8, -1});
  EXPECT_EQ(o.max_active_blocks, 8);
  expect_limits(o, 16, 13, 8, 32);
  EXPECT_DOUBLE_EQ(theoretical_occupancy(o), 1.0);
  EXPECT_EQ(o.limiter, Limiter::kWarps);
  EXPECT_EQ(o.source, OccupancySource::kDriver);
  EXPECT_FALSE(o.model_disagrees);
}

// 25 warps of 33 (allocated as 40) registers would fit twice in the register file, but not in its four quarters.
TEST(OccupancyReference, WarpAllocationGranularity) {
  const Occupancy o = compute_occupancy(board("sm_90"), kernel(33), shape(800));
  EXPECT_EQ(o.max_active_blocks, 1);
  EXPECT_EQ(o.limiter, Limiter::kRegisters);
  EXPECT_EQ(limit(o, Limiter::kWarps), 2);
}

// ---- shared memory ----------------------------------------------------------------------------------------------

TEST(OccupancyShared, AboveTheDefaultLimitBlocksAreCounted) {
  KernelInfo opted_in = kernel(32);
  opted_in.max_dyn_shared_bytes = 100 * 1024;
  const Occupancy o = compute_occupancy(board("h200"), opted_in, shape(256, 100 * 1024));
  EXPECT_EQ(o.max_active_blocks, 2);  // 2 * (100 + 1) of 228 KiB
  EXPECT_EQ(o.limiter, Limiter::kSharedMem);

  opted_in.max_dyn_shared_bytes = board("h200").shared_bytes_per_block_optin;
  EXPECT_EQ(compute_occupancy(board("h200"), opted_in, shape(256, 227 * 1024)).max_active_blocks, 1);

  // Kernel's own limit not known: taken as opted in, since the launch did happen.
  EXPECT_EQ(compute_occupancy(board("h200"), kernel(32), shape(256, 100 * 1024)).max_active_blocks, 2);
}

TEST(OccupancyShared, MoreThanTheKernelMayHaveIsZeroBlocks) {
  KernelInfo not_opted_in = kernel(32);
  not_opted_in.max_dyn_shared_bytes = 48 * 1024;
  const Occupancy o = compute_occupancy(board("h200"), not_opted_in, shape(256, 48 * 1024 + 1));
  EXPECT_EQ(o.max_active_blocks, 0);
  EXPECT_EQ(o.limiter, Limiter::kSharedMem);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kSharedMem));
  EXPECT_DOUBLE_EQ(resource_occupancy(o, Limiter::kSharedMem), 0.0);
}

TEST(OccupancyShared, ReservedKilobyteCounts) {
  // 100 KiB an SM: 4 blocks of 24 KiB and 1 KiB reserved; 24 KiB and a byte rounds up to 128 more, and 3 remain.
  EXPECT_EQ(limit(compute_occupancy(board("sm_86"), kernel(16, 24 * 1024), shape(32)), Limiter::kSharedMem), 4);
  EXPECT_EQ(limit(compute_occupancy(board("sm_86"), kernel(16, 24 * 1024 + 1), shape(32)), Limiter::kSharedMem), 3);
  // Nothing is reserved on Turing, whose granularity is 256.
  EXPECT_EQ(limit(compute_occupancy(board("sm_75"), kernel(16, 16 * 1024), shape(32)), Limiter::kSharedMem), 4);
  EXPECT_EQ(limit(compute_occupancy(board("sm_75"), kernel(16, 16 * 1024 + 1), shape(32)), Limiter::kSharedMem), 3);
}

TEST(OccupancyShared, NoneUsedIsNoLimit) {
  const Occupancy o = compute_occupancy(board("sm_75"), kernel(16), shape(256));
  EXPECT_EQ(limit(o, Limiter::kSharedMem), kUnlimitedBlocks);
  EXPECT_DOUBLE_EQ(resource_occupancy(o, Limiter::kSharedMem), 1.0);
  const Occupancy no_registers = compute_occupancy(board("sm_75"), kernel(0), shape(256));
  EXPECT_DOUBLE_EQ(resource_occupancy(no_registers, Limiter::kRegisters), 1.0);
}

TEST(OccupancyShared, CarveOutLimits) {
  LaunchShape launch = shape(256, 16 * 1024);
  const auto blocks_at = [&](int percent) {
    launch.carveout = percent;
    return limit(compute_occupancy(board("h200"), kernel(16), launch), Limiter::kSharedMem);
  };
  EXPECT_EQ(blocks_at(-1), 13);   // 228 KiB / 17
  EXPECT_EQ(blocks_at(100), 13);
  EXPECT_EQ(blocks_at(50), 7);    // 114 KiB: the next size the SM has is 132
  EXPECT_EQ(blocks_at(25), 3);    // 57 KiB: 64
  EXPECT_EQ(blocks_at(0), 1);     // less than a block needs is not given
  EXPECT_EQ(blocks_at(101), 13);  // no percentage: as if not set
  EXPECT_EQ(blocks_at(-7), 13);
  launch.carveout = 25;
  const Occupancy o = compute_occupancy(board("h200"), kernel(16), launch);
  EXPECT_EQ(o.max_active_blocks, 3);
  EXPECT_EQ(o.limiter, Limiter::kSharedMem);
}

TEST(OccupancyShared, CarveOutAsLaunchAttributeIsTheModels) {
  LaunchShape launch = shape(256, 16 * 1024);
  launch.carveout = 25;
  launch.carveout_from_launch = true;
  const Occupancy o = compute_occupancy(board("h200"), kernel(16), launch, {8, -1});
  EXPECT_EQ(o.source, OccupancySource::kModel);
  EXPECT_EQ(o.max_active_blocks, 3);
  EXPECT_FALSE(o.model_disagrees);
}

// ---- the driver's answer ----------------------------------------------------------------------------------------

TEST(OccupancyDriver, BarriersAreNamedByTheDriversNumber) {
  const struct {
    int barriers, driver;
  } cases[] = {{5, 12}, {9, 7}, {16, 4}};
  for (const auto& c : cases) {
    const Occupancy o = compute_occupancy(board("h200"), kernel(16), shape(64), {c.driver, -1});
    EXPECT_EQ(o.max_active_blocks, c.driver);
    EXPECT_EQ(o.limiter, Limiter::kBarriers) << c.barriers;
    EXPECT_EQ(o.limiters, limiter_bit(Limiter::kBarriers));
    EXPECT_EQ(limit(o, Limiter::kBarriers), c.driver);
    EXPECT_FALSE(o.model_disagrees);
    EXPECT_EQ(o.model_blocks, 32);
    EXPECT_DOUBLE_EQ(resource_occupancy(o, Limiter::kBarriers), theoretical_occupancy(o));
  }
}

TEST(OccupancyDriver, OnlyBarrierCountsAreBarriers) {
  for (int driver = 0; driver <= 40; ++driver) {
    const Occupancy o = compute_occupancy(board("h200"), kernel(16), shape(64), {driver, -1});
    bool quotient = false;
    for (int k = 1; k <= 16; ++k) quotient |= driver == 64 / k;
    const bool barriers = quotient && driver < 32;
    EXPECT_EQ(o.max_active_blocks, driver);
    EXPECT_EQ(o.limiter == Limiter::kBarriers, barriers) << driver;
    EXPECT_EQ(o.model_disagrees, !barriers && driver != 32) << driver;
    EXPECT_EQ(limit(o, Limiter::kBarriers), barriers ? driver : -1);
    EXPECT_EQ(o.model_blocks, 32);
  }
}

TEST(OccupancyDriver, AHigherAnswerIsKeptAndShown) {
  const Occupancy o = compute_occupancy(board("sm_86"), kernel(16, 16384), shape(256), {6, -1});
  EXPECT_EQ(o.max_active_blocks, 6);
  EXPECT_TRUE(o.model_disagrees);
  EXPECT_EQ(o.model_blocks, 5);
  EXPECT_EQ(o.source, OccupancySource::kDriver);
}

TEST(OccupancyDriver, AnUnknownArchitectureKeepsItsOwnBlockLimit) {
  DeviceInfo future = board("h200");
  future.compute_major = 99;
  future.max_blocks_per_sm = 20;
  const Occupancy o = compute_occupancy(future, kernel(16), shape(32));
  EXPECT_EQ(limit(o, Limiter::kBlocks), 20);
  EXPECT_EQ(o.max_active_blocks, 20);
  EXPECT_EQ(o.limiter, Limiter::kBlocks);
}

TEST(OccupancyDriver, WithoutDeviceFactsTheDriverAloneSpeaks) {
  DeviceInfo blank;
  const Occupancy known = compute_occupancy(blank, kernel(16), shape(256), {8, -1});
  EXPECT_EQ(known.source, OccupancySource::kDriver);
  EXPECT_EQ(known.max_active_blocks, 8);
  EXPECT_EQ(known.limiters, 0);
  EXPECT_FALSE(known.model_disagrees);
  EXPECT_FALSE(occupancy_ratio(known).known());
  EXPECT_EQ(compute_occupancy(blank, kernel(16), shape(256)).source, OccupancySource::kNone);
}

TEST(OccupancyDriver, UnknownKernelFactsAreNotGuessed) {
  const Occupancy o = compute_occupancy(board("h200"), KernelInfo{}, shape(256), {8, -1});
  EXPECT_EQ(limit(o, Limiter::kRegisters), -1);
  EXPECT_EQ(limit(o, Limiter::kSharedMem), -1);
  EXPECT_FALSE(resource_ratio(o, Limiter::kRegisters).known());
  EXPECT_EQ(o.limiter, Limiter::kWarps);
}

// ---- which limit is named ---------------------------------------------------------------------------------------

TEST(OccupancyLimiter, EachAlone) {
  const DeviceInfo& device = board("h200");
  EXPECT_EQ(compute_occupancy(device, kernel(16), shape(96)).limiters, limiter_bit(Limiter::kWarps));      // 21 of 3
  EXPECT_EQ(compute_occupancy(device, kernel(16), shape(32)).limiters, limiter_bit(Limiter::kBlocks));
  EXPECT_EQ(compute_occupancy(device, kernel(64), shape(256)).limiters, limiter_bit(Limiter::kRegisters));
  EXPECT_EQ(compute_occupancy(device, kernel(16, 40000), shape(256)).limiters, limiter_bit(Limiter::kSharedMem));
}

TEST(OccupancyLimiter, TiesAreAllNamedInOrder) {
  // 64 registers: 4 blocks of 8 warps; 24 KiB and 1 reserved of 100: 4 blocks.
  const Occupancy o = compute_occupancy(board("sm_86"), kernel(64, 24 * 1024), shape(256));
  EXPECT_EQ(o.max_active_blocks, 4);
  EXPECT_EQ(o.limiter, Limiter::kRegisters);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kRegisters) | limiter_bit(Limiter::kSharedMem));
}

TEST(OccupancyLimiter, FullIsWarpsEvenWhenTied) {
  // 32 registers fill the register file with 2,048 threads, 64 threads a block fill 32 block slots.
  const Occupancy o = compute_occupancy(board("h200"), kernel(32), shape(64), {32, -1});
  EXPECT_DOUBLE_EQ(theoretical_occupancy(o), 1.0);
  EXPECT_EQ(o.limiter, Limiter::kWarps);
  EXPECT_EQ(o.limiters,
            limiter_bit(Limiter::kWarps) | limiter_bit(Limiter::kBlocks) | limiter_bit(Limiter::kRegisters));
}

TEST(OccupancyLimiter, ImpossibleLaunchesNameWhy) {
  const DeviceInfo& device = board("h200");
  const Occupancy too_big = compute_occupancy(device, kernel(16), shape(1025));
  EXPECT_EQ(too_big.max_active_blocks, 0);
  EXPECT_EQ(too_big.limiters, limiter_bit(Limiter::kWarps));

  const Occupancy too_many_registers = compute_occupancy(device, kernel(128), shape(1024));
  EXPECT_EQ(too_many_registers.max_active_blocks, 0);
  EXPECT_EQ(too_many_registers.limiters, limiter_bit(Limiter::kRegisters));

  const Occupancy too_much_shared = compute_occupancy(device, kernel(16), shape(256, 227 * 1024 + 1));
  EXPECT_EQ(too_much_shared.max_active_blocks, 0);
  EXPECT_EQ(too_much_shared.limiters, limiter_bit(Limiter::kSharedMem));

  const Occupancy all = compute_occupancy(device, kernel(255), shape(2048, 1u << 31));
  EXPECT_EQ(all.max_active_blocks, 0);
  EXPECT_EQ(all.limiter, Limiter::kWarps);
  EXPECT_EQ(all.limiters, limiter_bit(Limiter::kWarps) | limiter_bit(Limiter::kRegisters) |
                              limiter_bit(Limiter::kSharedMem));
  EXPECT_FALSE(waves_ratio(10, all, 132).known());
}

TEST(OccupancyLimiter, AbsurdNumbersAreSurvived) {
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  LaunchShape launch;
  launch.block = {most, most, most};
  launch.dyn_shared_bytes = most;
  launch.cluster = {most, most, most};
  KernelInfo info = kernel(std::numeric_limits<int>::max(), std::numeric_limits<int>::max());
  info.max_dyn_shared_bytes = std::numeric_limits<int>::max();
  for (const DeviceInfo& device : event::boards()) {
    const Occupancy o = compute_occupancy(device, info, launch, {-1, std::numeric_limits<int>::max()});
    EXPECT_EQ(o.max_active_blocks, 0);
    EXPECT_EQ(o.limiter, Limiter::kWarps);
  }
  launch.block = {1u << 31, 1u << 31, 4};  // 2^64 threads are not none
  EXPECT_EQ(compute_occupancy(board("h200"), info, launch).limiter, Limiter::kWarps);
  EXPECT_EQ(compute_occupancy(board("h200"), info, launch).max_active_blocks, 0);
  launch.block = {0, 1, 1};
  EXPECT_EQ(compute_occupancy(board("h200"), info, launch, {3, -1}).source, OccupancySource::kNone);
}

TEST(OccupancyLimiter, ThreeDimensionalBlocksCountTheirThreads) {
  LaunchShape launch;
  launch.block = {8, 8, 4};
  EXPECT_EQ(compute_occupancy(board("h200"), kernel(16), launch).warps_per_block, 8);
  launch.block = {33, 1, 1};
  EXPECT_EQ(compute_occupancy(board("h200"), kernel(16), launch).warps_per_block, 2);
}

// ---- clusters ---------------------------------------------------------------------------------------------------

Occupancy with_clusters(Dim3 cluster, std::uint32_t threads, int clusters, int driver) {
  LaunchShape launch = shape(threads);
  launch.cluster = cluster;
  return compute_occupancy(board("h200"), kernel(16), launch, {driver, clusters});
}

TEST(OccupancyCluster, NotANeedWhenEverySmIsFull) {
  const Occupancy o = with_clusters({2, 1, 1}, 96, 21 * 132 / 2, 21);
  EXPECT_EQ(limit(o, Limiter::kCluster), 21);
  EXPECT_EQ(o.max_active_clusters, 1386);
  EXPECT_EQ(o.limiter, Limiter::kWarps);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kWarps) | limiter_bit(Limiter::kCluster));
}

TEST(OccupancyCluster, LeftOverSmsAreNotALimit) {
  // 8 clusters of 16 leave 4 of the 132 SMs idle: still one block per SM where there is one.
  LaunchShape launch = shape(256, 150 * 1024);
  launch.cluster = {16, 1, 1};
  const Occupancy o = compute_occupancy(board("h200"), kernel(16), launch, {1, 8});
  EXPECT_EQ(limit(o, Limiter::kCluster), 1);
  EXPECT_EQ(o.limiter, Limiter::kSharedMem);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kSharedMem) | limiter_bit(Limiter::kCluster));
}

TEST(OccupancyCluster, AWholeBlockLessIsNamed) {
  const Occupancy o = with_clusters({4, 4, 1}, 96, 100, 21);  // 1,600 blocks on 132 SMs
  EXPECT_EQ(limit(o, Limiter::kCluster), 13);
  EXPECT_EQ(o.limiter, Limiter::kCluster);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kCluster));
  EXPECT_EQ(o.max_active_blocks, 21);  // the driver's own answer, which knows nothing of clusters
}

TEST(OccupancyCluster, FullSmsStayWarps) {
  const Occupancy o = with_clusters({16, 1, 1}, 1024, 8, 2);
  EXPECT_DOUBLE_EQ(theoretical_occupancy(o), 1.0);
  EXPECT_EQ(o.limiter, Limiter::kWarps);
  EXPECT_EQ(o.limiters, limiter_bit(Limiter::kWarps) | limiter_bit(Limiter::kCluster));
}

TEST(OccupancyCluster, OneThatFitsNowhereIsTheLimit) {
  const Occupancy o = with_clusters({16, 1, 1}, 1024, 0, 2);
  EXPECT_EQ(limit(o, Limiter::kCluster), 0);
  EXPECT_EQ(o.limiter, Limiter::kCluster);
  EXPECT_EQ(o.max_active_clusters, 0);
}

TEST(OccupancyCluster, NoClusterNoLimit) {
  const Occupancy o = with_clusters({0, 0, 0}, 96, 77, 21);
  EXPECT_EQ(limit(o, Limiter::kCluster), -1);
  EXPECT_EQ(o.max_active_clusters, -1);
  EXPECT_EQ(limit(with_clusters({2, 1, 1}, 96, -1, 21), Limiter::kCluster), -1);
}

// ---- waves ------------------------------------------------------------------------------------------------------

TEST(OccupancyWaves, GridOverWhatFits) {
  const Occupancy o = compute_occupancy(board("rtx3090"), kernel(16, 16384), shape(256));
  EXPECT_EQ(waves_ratio(16384, o, 82), (Ratio{16384, 410}));
  EXPECT_DOUBLE_EQ(waves(205, o, 82), 0.5);
  EXPECT_FALSE(waves_ratio(1, o, 0).known());
  EXPECT_FALSE(waves_ratio(1, Occupancy{}, 82).known());
  EXPECT_TRUE(std::isnan(waves(1, Occupancy{}, 82)));
}

// ---- properties over all boards ---------------------------------------------------------------------------------

struct RandomConfig {
  KernelInfo info;
  LaunchShape launch;
};

RandomConfig random_config(std::mt19937& rng, const DeviceInfo& device) {
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(rng); };
  RandomConfig c;
  c.info = kernel(pick(0, 255), pick(0, 3) == 0 ? 0 : pick(0, 48 * 1024));
  c.launch = shape(static_cast<std::uint32_t>(pick(1, device.max_threads_per_block)),
                   pick(0, 1) ? 0u : static_cast<std::uint32_t>(pick(0, device.shared_bytes_per_block_optin)));
  if (pick(0, 3) == 0) c.launch.carveout = pick(-1, 100);
  return c;
}

class OccupancyProperty : public testing::TestWithParam<std::string> {};

TEST_P(OccupancyProperty, BreakdownHoldsTogether) {
  const DeviceInfo& device = board(GetParam());
  std::mt19937 rng(20240601);
  for (int i = 0; i < 20000; ++i) {
    const RandomConfig c = random_config(rng, device);
    const Occupancy o = compute_occupancy(device, c.info, c.launch);
    ASSERT_EQ(o.source, OccupancySource::kModel);
    std::int32_t smallest = kUnlimitedBlocks;
    for (const Limiter l : {Limiter::kWarps, Limiter::kBlocks, Limiter::kRegisters, Limiter::kSharedMem}) {
      ASSERT_GE(limit(o, l), 0);
      smallest = std::min(smallest, limit(o, l));
      ASSERT_GE(resource_occupancy(o, l), theoretical_occupancy(o));
      ASSERT_EQ((o.limiters & limiter_bit(l)) != 0, limit(o, l) == o.max_active_blocks);
    }
    ASSERT_EQ(smallest, o.max_active_blocks);
    ASSERT_EQ(limit(o, o.limiter), o.max_active_blocks);
    ASSERT_LE(theoretical_occupancy(o), 1.0);
    ASSERT_EQ(limit(o, Limiter::kBlocks), device.max_blocks_per_sm);
    const int warps = static_cast<int>(c.launch.block.x + 31) / 32;
    ASSERT_EQ(o.warps_per_block, warps);
    ASSERT_EQ(limit(o, Limiter::kWarps), device.max_warps_per_sm() / warps);
    if (theoretical_occupancy(o) == 1.0) {
      ASSERT_EQ(o.limiter, Limiter::kWarps);
    }
  }
}

TEST_P(OccupancyProperty, MoreOfAResourceNeverHelps) {
  const DeviceInfo& device = board(GetParam());
  std::mt19937 rng(7);
  for (int i = 0; i < 5000; ++i) {
    RandomConfig c = random_config(rng, device);
    // With a carve-out the SM grows with the need of one block, so fewer bytes can mean fewer blocks there.
    c.launch.carveout = -1;
    const int before = compute_occupancy(device, c.info, c.launch).max_active_blocks;
    RandomConfig more = c;
    more.info.num_regs += std::uniform_int_distribution<int>(1, 40)(rng);
    ASSERT_LE(compute_occupancy(device, more.info, more.launch).max_active_blocks, before);
    more = c;
    more.info.static_shared_bytes += std::uniform_int_distribution<int>(1, 4096)(rng);
    ASSERT_LE(compute_occupancy(device, more.info, more.launch).max_active_blocks, before);
    more = c;
    more.launch.dyn_shared_bytes += std::uniform_int_distribution<std::uint32_t>(1, 4096)(rng);
    ASSERT_LE(compute_occupancy(device, more.info, more.launch).max_active_blocks, before);
    more = c;
    more.launch.block.x += 32;
    ASSERT_LE(compute_occupancy(device, more.info, more.launch).max_active_blocks, before);
  }
}

TEST_P(OccupancyProperty, AnAgreeingDriverChangesOnlyTheSource) {
  const DeviceInfo& device = board(GetParam());
  std::mt19937 rng(11);
  for (int i = 0; i < 5000; ++i) {
    const RandomConfig c = random_config(rng, device);
    const Occupancy model = compute_occupancy(device, c.info, c.launch);
    const Occupancy driver = compute_occupancy(device, c.info, c.launch, {model.max_active_blocks, -1});
    ASSERT_EQ(driver.source, OccupancySource::kDriver);
    ASSERT_FALSE(driver.model_disagrees);
    ASSERT_EQ(driver.limit_blocks, model.limit_blocks);
    ASSERT_EQ(driver.limiters, model.limiters);
    ASSERT_EQ(driver.limiter, model.limiter);
  }
}

TEST_P(OccupancyProperty, NoAllocation) {
  const DeviceInfo& device = board(GetParam());
  std::mt19937 rng(13);
  for (int i = 0; i < 100; ++i) {
    const RandomConfig c = random_config(rng, device);
    const long before = g_allocations;
    const Occupancy o = compute_occupancy(device, c.info, c.launch, {3, 5});
    const double value = theoretical_occupancy(o);
    ASSERT_EQ(g_allocations, before);
    ASSERT_GE(value, 0.0);
  }
}

// The register limit, written down again from the programming guide: registers go to warps in units of 256, and each
// of the four quarters of an SM hands out its own.
TEST_P(OccupancyProperty, RegisterLimitIsTheGuides) {
  const DeviceInfo& device = board(GetParam());
  for (int regs = 1; regs <= 255; ++regs) {
    for (const int threads : {32, 96, 256, 800, 1024}) {
      const int warps = threads / 32;
      const int per_warp = (regs * 32 + 255) / 256 * 256;
      const int warps_that_fit = device.regs_per_sm / 4 / per_warp * 4;
      const int quarters = (warps + 3) / 4 * 4;
      const int expected = per_warp * quarters > device.regs_per_block ? 0 : warps_that_fit / warps;
      const Occupancy o = compute_occupancy(device, kernel(regs), shape(static_cast<std::uint32_t>(threads)));
      ASSERT_EQ(limit(o, Limiter::kRegisters), expected) << regs << " registers, " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Boards, OccupancyProperty,
                         testing::Values("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "h100", "h200", "sm_100",
                                         "sm_103", "sm_120"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gpuflight::occupancy
