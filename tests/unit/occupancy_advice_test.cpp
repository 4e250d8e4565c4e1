#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "occupancy/advice.h"
#include "occupancy/architectures.h"
#include "occupancy/occupancy_curve.h"
#include "occupancy/occupancy_model.h"
#include "occupancy_fixture.h"

namespace gpuflight::occupancy {
namespace {

Scenario scenario_of(const char* arch, int regs, std::uint32_t threads, int static_bytes = 0,
                     std::uint32_t dynamic_bytes = 0) {
  Scenario scenario;
  scenario.device = *find_architecture(arch);
  scenario.kernel = kernel(regs, static_bytes);
  scenario.shape = shape(threads, dynamic_bytes);
  return scenario;
}

const Advice* find(const AdviceList& list, Change change, int to = -1) {
  for (const Advice& advice : list.advice) {
    if (advice.change == change && (to < 0 || advice.to == to)) return &advice;
  }
  return nullptr;
}

int warps(const Occupancy& o) { return o.max_active_blocks * o.warps_per_block; }

// ---- by hand ------------------------------------------------------------------------------------------------------

TEST(Advice, TheNaiveReduction) {
  const AdviceList list = advise(scenario_of("sm_86", 16, 256, 16384));
  EXPECT_EQ(list.now.max_active_blocks, 5);
  const Advice* shared = find(list, Change::kSharedBytes);
  ASSERT_NE(shared, nullptr);
  // 100 KiB over 6 is 17,066, down to a multiple of 128 and less the driver's 1,024.
  EXPECT_EQ(shared->from, 16384);
  EXPECT_EQ(shared->to, 16000);
  EXPECT_TRUE(shared->gains);
  EXPECT_EQ(shared->also, 0);
  EXPECT_EQ(shared->after.max_active_blocks, 6);
  const Advice* dynamic = find(list, Change::kStaticToDynamic);
  ASSERT_NE(dynamic, nullptr);
  EXPECT_EQ(dynamic->to, 1024);
  EXPECT_EQ(dynamic->after.max_active_blocks, 6);
  EXPECT_EQ(dynamic->after.limiter, Limiter::kWarps);
  EXPECT_EQ(find(list, Change::kRegisters), nullptr);
  EXPECT_EQ(find(list, Change::kCarveout), nullptr);
}

TEST(Advice, AFullSmHasNone) {
  EXPECT_TRUE(advise(scenario_of("sm_86", 16, 256, 0, 1024)).advice.empty());
  EXPECT_TRUE(advise(scenario_of("sm_90", 32, 256)).advice.empty());
}

TEST(Advice, RegistersGoDownByTheirUnit) {
  // 48 registers: 1,536 for a warp, 10 warps in a quarter of 16,384; 40: 1,280 and 12.
  const AdviceList list = advise(scenario_of("sm_86", 48, 256));
  EXPECT_EQ(list.now.max_active_blocks, 5);
  const Advice* registers = find(list, Change::kRegisters);
  ASSERT_NE(registers, nullptr);
  EXPECT_EQ(registers->from, 48);
  EXPECT_EQ(registers->to, 40);
  EXPECT_TRUE(registers->gains);
  EXPECT_EQ(registers->after.max_active_blocks, 6);
}

TEST(Advice, TiedLimitsMustGiveWayTogether) {
  // 64 registers: 4 blocks of 8 warps; 24 KiB and 1 KiB of 100: 4 blocks.
  const AdviceList list = advise(scenario_of("sm_86", 64, 256, 24 * 1024));
  EXPECT_EQ(list.now.max_active_blocks, 4);
  const Advice* registers = find(list, Change::kRegisters);
  ASSERT_NE(registers, nullptr);
  EXPECT_FALSE(registers->gains);
  EXPECT_EQ(registers->also, limiter_bit(Limiter::kSharedMem));
  ASSERT_TRUE(registers->together.has_value());
  EXPECT_EQ(registers->together->max_active_blocks, 5);
}

TEST(Advice, TheLeastCarveOut) {
  Scenario scenario = scenario_of("h200", 16, 256, 0, 16 * 1024);
  scenario.shape.carveout = 25;  // 57 KiB, so 64: 3 blocks of 17
  const AdviceList list = advise(scenario);
  const Advice* carveout = find(list, Change::kCarveout);
  ASSERT_NE(carveout, nullptr);
  EXPECT_EQ(carveout->to, 29);  // 66.1 KiB: the next size is 100
  EXPECT_EQ(carveout->after.max_active_blocks, 5);
}

TEST(Advice, BarriersByTheirCount) {
  Scenario scenario = scenario_of("h200", 16, 64);
  scenario.barrier_blocks = 4;  // 16 of them
  const AdviceList list = advise(scenario);
  EXPECT_EQ(list.now.max_active_blocks, 4);
  EXPECT_EQ(list.now.limiter, Limiter::kBarriers);
  const Advice* barriers = find(list, Change::kBarriers);
  ASSERT_NE(barriers, nullptr);
  EXPECT_EQ(barriers->to, 12);
  EXPECT_EQ(barriers->after.max_active_blocks, 5);
}

TEST(Advice, BlockSizes) {
  const AdviceList list = advise(scenario_of("sm_90", 32, 800));  // 2 blocks of 25 warps of 64
  EXPECT_EQ(list.now.max_active_blocks, 2);
  const Advice* best = find(list, Change::kBlockSize, list.best_block);
  ASSERT_NE(best, nullptr);
  EXPECT_TRUE(best->best);
  EXPECT_EQ(list.best_block, 1024);
  EXPECT_EQ(warps(best->after), 64);
  const Advice* smaller = find(list, Change::kBlockSize, 672);  // 3 of 21 warps
  ASSERT_NE(smaller, nullptr);
  EXPECT_EQ(warps(smaller->after), 63);
  EXPECT_NE(find(list, Change::kBlockSize, 832), nullptr);  // 2 of 26 warps
}

// A log may hold anything.
TEST(Advice, AbsurdNumbersAreSurvived) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::uint32_t threads : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
    for (const int value : {-1, 0, kMost}) {
      Scenario s = scenario_of("h200", value, threads, value, static_cast<std::uint32_t>(value));
      s.shape.block.y = threads;
      s.kernel.max_threads_per_block = value;
      s.shape.carveout = value;
      s.barrier_blocks = value;
      const AdviceList list = advise(s);
      EXPECT_LE(list.now.max_active_blocks, 32);
      for (const char* curve : kCurveNames) EXPECT_FALSE(occupancy_curve(s, *curve_over(curve)).points.empty());
    }
  }
  EXPECT_EQ(advise(Scenario()).advice.size(), 0u);
}

TEST(Advice, LaunchBoundsBoundTheBlock) {
  Scenario scenario = scenario_of("sm_90", 32, 800);
  scenario.kernel.max_threads_per_block = 800;
  const AdviceList list = advise(scenario);
  EXPECT_LE(list.best_block, 800);
  for (const Advice& advice : list.advice) EXPECT_LE(advice.to, 800);
}

// ---- all architectures --------------------------------------------------------------------------------------------

TEST(Architectures, EachIsWhatTheHeaderKnows) {
  std::set<std::string> names;
  for (const Architecture& arch : architectures()) {
    SCOPED_TRACE(arch.name);
    EXPECT_TRUE(names.insert(arch.name).second);
    EXPECT_EQ(find_architecture(arch.name), arch.board);
    Scenario scenario;
    scenario.device = *arch.board;
    scenario.kernel = kernel(16, 1);
    scenario.shape = shape(32);
    const Occupancy o = what_if(scenario);
    EXPECT_EQ(limit(o, Limiter::kBlocks), arch.board->max_blocks_per_sm);
    EXPECT_GT(shared_unit_bytes(*arch.board), 0);
    // The most that a block can ask for fits, a byte more does not.
    EXPECT_GE(what_if(with_shared_bytes(scenario, arch.board->shared_bytes_per_block_optin)).max_active_blocks, 1);
    EXPECT_EQ(what_if(with_shared_bytes(scenario, arch.board->shared_bytes_per_block_optin + 1)).max_active_blocks, 0);
    // The largest size of shared memory is one that the header's table has: full carve-out and none differ in nothing.
    EXPECT_EQ(limit(what_if(with_carveout(scenario, 100)), Limiter::kSharedMem), limit(o, Limiter::kSharedMem));
  }
  for (const char* name :
       {"sm_50", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_110", "sm_121"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(Architectures, ByAnyName) {
  EXPECT_EQ(find_architecture("sm_90a"), find_architecture("9.0"));
  EXPECT_EQ(find_architecture("compute_86"), find_architecture("sm_86"));
  EXPECT_EQ(find_architecture("sm_100f"), find_architecture("SM_100"));
  EXPECT_NE(find_architecture("h200"), nullptr);
  for (const char* name : {"", "sm_a", "sm_9", "sm_130", "a", "f"}) EXPECT_EQ(find_architecture(name), nullptr) << name;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRounds = 2'000;
#else
constexpr int kRounds = 50'000;  // over 20 architectures
#endif

Scenario random_scenario(std::mt19937& rng, const DeviceInfo& device) {
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(rng); };
  Scenario s;
  s.device = device;
  s.kernel = kernel(pick(0, 255), pick(0, 2) == 0 ? 0 : pick(0, 48 * 1024));
  const int threads = pick(0, 1) != 0 ? 32 * pick(1, 32) : pick(1, 1024);
  s.shape = shape(static_cast<std::uint32_t>(threads),
                  pick(0, 1) != 0 ? 0u : static_cast<std::uint32_t>(pick(0, device.shared_bytes_per_block_optin)));
  if (pick(0, 3) == 0) s.shape.carveout = pick(-1, 100);
  if (pick(0, 7) == 0) s.barrier_blocks = 64 / pick(1, 16);
  if (pick(0, 7) == 0) s.kernel.max_threads_per_block = pick(threads, 1024);
  return s;
}

// The suggested change gains the block; one unit less does not.
class Inversion : public testing::TestWithParam<std::string> {
 protected:
  // As advised, but for `value` in place of the advised one; other tied limits moved as `together` says.
  static Scenario changed(const Scenario& s, const AdviceList& list, const Advice& advice, int value) {
    const int target = list.now.max_active_blocks + 1;
    Scenario out = s;
    if (!advice.gains) {
      if ((advice.also & limiter_bit(Limiter::kRegisters)) != 0) out = with_registers(out, *fewer_registers(s, target));
      if ((advice.also & limiter_bit(Limiter::kSharedMem)) != 0) {
        out = with_shared_bytes(out, *fewer_shared_bytes(s, target));
      }
    }
    switch (advice.change) {
      case Change::kRegisters: return with_registers(out, value);
      case Change::kSharedBytes: return with_shared_bytes(out, value);
      case Change::kCarveout: return with_carveout(out, value);
      case Change::kBlockSize: return with_block(out, value);
      default: return out;
    }
  }

  static void check(const Scenario& s, const AdviceList& list, const Advice& advice, bool every_step) {
    const int before = list.now.max_active_blocks;
    if (advice.change == Change::kBlockSize) {
      ASSERT_GT(warps(what_if(with_block(s, advice.to))), warps(list.now));
      if (advice.best) return;
      for (int size = advice.to; size / 32 != advice.from / 32;) {  // nothing nearer does
        size += advice.to > advice.from ? -32 : 32;
        if ((size - advice.from) * (advice.to - advice.from) <= 0) break;
        ASSERT_LE(warps(what_if(with_block(s, size))), warps(list.now)) << size;
      }
      return;
    }
    if (advice.change == Change::kStaticToDynamic || advice.change == Change::kBarriers) {
      ASSERT_EQ(advice.gains, advice.after.max_active_blocks > before);
      return;
    }
    if (!advice.gains && !advice.together) {  // a limit that no number moves holds it
      ASSERT_NE(advice.also, 0);
      return;
    }
    ASSERT_GT(what_if(changed(s, list, advice, advice.to)).max_active_blocks, before);
    if (!advice.gains) {
      ASSERT_EQ(advice.after.max_active_blocks, before);
    }
    const int less = advice.to > advice.from ? -1 : 1;
    for (int value = advice.to + less; value != advice.from + less; value += less) {
      ASSERT_LE(what_if(changed(s, list, advice, value)).max_active_blocks, before) << value;
      if (!every_step) break;
    }
  }
};

TEST_P(Inversion, OneUnitLessDoesNotGain) {
  const DeviceInfo& device = *find_architecture(GetParam());
  std::mt19937 rng(20260101);
  int advised = 0, tied = 0;
  std::array<int, kChangeCount> seen{};
  for (int i = 0; i < kRounds; ++i) {
    const Scenario s = random_scenario(rng, device);
    const AdviceList list = advise(s);
    const bool full = warps(list.now) == device.max_warps_per_sm();
    if (full) {
      ASSERT_TRUE(list.advice.empty());
    }
    for (const Advice& advice : list.advice) {
      ASSERT_NO_FATAL_FAILURE(check(s, list, advice, i % 500 == 0))
          << change_name(advice.change) << ' ' << advice.from << " to " << advice.to << ": " << s.kernel.num_regs
          << " registers, " << s.threads() << " threads, " << s.kernel.static_shared_bytes << "+"
          << s.shape.dyn_shared_bytes << " bytes, carve-out " << s.shape.carveout << ", barriers " << s.barrier_blocks;
      ++advised;
    }
    for (const Advice& advice : list.advice) {
      ++seen[static_cast<std::size_t>(advice.change)];
      tied += advice.together.has_value();
    }
    // What binds alone and is not named in any advice cannot be moved.
    if (!full && list.now.limiters == limiter_bit(Limiter::kRegisters) && find(list, Change::kRegisters) == nullptr) {
      ASSERT_LE(limit(what_if(with_registers(s, std::min(kLeastRegisters, s.kernel.num_regs))), Limiter::kRegisters),
                list.now.max_active_blocks);
    }
  }
  EXPECT_GT(advised, kRounds / 4);
  EXPECT_GT(tied, 0);
  for (int change = 0; change < kChangeCount; ++change) {
    const bool none = static_cast<Change>(change) == Change::kCarveout && device.compute_major < 7;
    EXPECT_EQ(seen[change] > 0, !none) << change_name(static_cast<Change>(change));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Inversion, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Architecture& arch : architectures()) names.push_back(arch.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

// ---- curves -------------------------------------------------------------------------------------------------------

TEST(Curve, SaysWhatTheModelSays) {
  std::mt19937 rng(5);
  for (const Architecture& arch : architectures()) {
    for (int i = 0; i < 20; ++i) {
      const Scenario s = random_scenario(rng, *arch.board);
      for (const CurveOver over : {CurveOver::kBlock, CurveOver::kRegisters, CurveOver::kShared}) {
        const OccupancyCurve curve = occupancy_curve(s, over);
        ASSERT_EQ(curve.max_warps, arch.board->max_warps_per_sm());
        for (int k = 0; k < 50; ++k) {
          const int x = std::uniform_int_distribution<int>(curve.least, curve.most)(rng);
          const CurvePoint* point = curve.at(x);
          ASSERT_NE(point, nullptr);
          const Scenario there = over == CurveOver::kBlock       ? with_block(s, x)
                                 : over == CurveOver::kRegisters ? with_registers(s, x)
                                                                 : with_shared_bytes(s, x);
          const Occupancy o = what_if(there);
          ASSERT_EQ(point->blocks, o.max_active_blocks) << arch.name << ' ' << kCurveNames[static_cast<int>(over)] << x;
          ASSERT_EQ(point->warps, warps(o));
          ASSERT_EQ(point->limiters, o.limiters);
        }
      }
    }
  }
}

TEST(Curve, Bounds) {
  const Scenario s = scenario_of("sm_86", 40, 256, 16384);
  const OccupancyCurve block = occupancy_curve(s, CurveOver::kBlock);
  EXPECT_EQ(block.points.size(), 32u);
  EXPECT_EQ(block.at(0), nullptr);
  EXPECT_EQ(block.at(1), block.at(32));  // a warp is the least there is
  EXPECT_EQ(block.at(1025), nullptr);
  EXPECT_EQ(block.now, 256);
  EXPECT_EQ(block.at(256)->blocks, 5);
  const OccupancyCurve shared = occupancy_curve(s, CurveOver::kShared);
  EXPECT_EQ(shared.at(16000)->blocks, 6);
  EXPECT_EQ(shared.at(16001)->blocks, 5);
  EXPECT_EQ(shared.most, 99 * 1024);
  EXPECT_EQ(curve_over("smem"), CurveOver::kShared);
  EXPECT_EQ(curve_over("colour"), std::nullopt);
}

}  // namespace
}  // namespace gpuflight::occupancy
