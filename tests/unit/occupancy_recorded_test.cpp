// The model, the what-ifs and the advice against what a real driver (580.159.04) and a real Nsight Compute said on an
// H200, recorded by tests/gpu in occupancy_h200.csv: random configurations, families in which one limit alone binds, and
// kernels with named barriers.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "occupancy/advice.h"
#include "occupancy/architectures.h"
#include "occupancy_fixture.h"

namespace gpuflight::occupancy {
namespace {

struct Recorded {
  Scenario scenario;
  bool carveout_at_launch = false;  // the driver's call cannot be told of it
  int driver_blocks = -1;
  std::vector<int> ncu;             // limits by warps, blocks, registers, shared memory, barriers; empty: not profiled
};

std::vector<Recorded> read_table() {
  std::ifstream file(GPUFLIGHT_SOURCE_DIR "/tests/unit/occupancy_h200.csv");
  std::vector<Recorded> out;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::vector<int> values;
    std::stringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) values.push_back(cell.empty() ? -1 : std::stoi(cell));
    if (values.size() < 10) break;
    Recorded row;
    row.scenario.device = *find_architecture("h200");
    row.scenario.kernel = kernel(values[0], values[1]);
    row.scenario.shape = shape(static_cast<std::uint32_t>(values[3]), static_cast<std::uint32_t>(values[2]));
    row.scenario.shape.carveout = values[5];
    row.carveout_at_launch = values[6] != 0;
    if (values[7] > 0) row.scenario.barrier_blocks = 64 / values[7];
    row.driver_blocks = values[8];
    if (values.size() >= 15 && values[10] >= 0) row.ncu.assign(values.begin() + 10, values.end());
    out.push_back(std::move(row));
  }
  return out;
}

const std::vector<Recorded>& table() {
  static const std::vector<Recorded> rows = read_table();
  return rows;
}

TEST(OccupancyRecorded, WhatIfSaysWhatTheDriverSaid) {
  ASSERT_GT(table().size(), 400u);
  int compared = 0;
  for (const Recorded& row : table()) {
    if (row.carveout_at_launch) continue;
    const Occupancy o = what_if(row.scenario);
    ASSERT_EQ(o.max_active_blocks, row.driver_blocks)
        << row.scenario.kernel.num_regs << " registers, " << row.scenario.threads() << " threads, "
        << row.scenario.shared_bytes() << " bytes, carve-out " << row.scenario.shape.carveout;
    ++compared;
  }
  EXPECT_GT(compared, 300);
}

// Where Nsight Compute's rows differ from ours they do not bind: its shared memory row is about the carve-out that the
// driver chose for that launch, its register row knows no fewer than 16.
TEST(OccupancyRecorded, TheBlockLimitsOfNsightCompute) {
  constexpr Limiter kRows[] = {Limiter::kWarps, Limiter::kBlocks, Limiter::kRegisters, Limiter::kSharedMem,
                               Limiter::kBarriers};
  int profiled = 0, barriers_bind = 0;
  for (const Recorded& row : table()) {
    if (row.ncu.empty() || row.carveout_at_launch) continue;
    ++profiled;
    const Occupancy o = what_if(row.scenario);
    const int least = *std::min_element(row.ncu.begin(), row.ncu.end());
    EXPECT_EQ(o.max_active_blocks, least);
    EXPECT_EQ(limit(o, Limiter::kWarps), row.ncu[0]);
    EXPECT_EQ(limit(o, Limiter::kBlocks), row.ncu[1]);
    for (std::size_t i = 0; i < std::size(kRows); ++i) {
      if ((o.limiters & limiter_bit(kRows[i])) != 0) {
        EXPECT_EQ(row.ncu[i], least) << event::kLimiterNames[static_cast<int>(kRows[i])];
      }
    }
    barriers_bind += row.ncu[4] == least;
  }
  EXPECT_GT(profiled, 25);
  EXPECT_GT(barriers_bind, 5);
}

// Two recorded configurations that differ in one resource only: the advice for the one is borne out by the driver's
// answer for the other.
TEST(OccupancyRecorded, AdviceIsBorneOutByTheDriver) {
  using Rest = std::tuple<int, int, int, int, int>;
  std::map<Rest, std::vector<const Recorded*>> by_registers, by_shared;
  for (const Recorded& row : table()) {
    if (row.carveout_at_launch) continue;
    const Scenario& s = row.scenario;
    by_registers[{0, s.threads(), s.shared_bytes(), s.shape.carveout, s.barrier_blocks}].push_back(&row);
    by_shared[{1, s.threads(), s.kernel.num_regs, s.shape.carveout, s.barrier_blocks}].push_back(&row);
  }
  int borne_out = 0;
  const auto check = [&](const auto& groups, Change change, auto value_of) {
    for (const auto& [rest, rows] : groups) {
      for (const Recorded* before : rows) {
        const AdviceList list = advise(before->scenario);
        for (const Advice& advice : list.advice) {
          if (advice.change != change || !advice.gains) continue;
          for (const Recorded* after : rows) {
            const int value = value_of(after->scenario);
            if (value >= advice.from) continue;
            EXPECT_EQ(after->driver_blocks > before->driver_blocks, value <= advice.to)
                << change_name(change) << ' ' << advice.from << " to " << advice.to << ", recorded at " << value;
            ++borne_out;
          }
        }
      }
    }
  };
  check(by_registers, Change::kRegisters, [](const Scenario& s) { return s.kernel.num_regs; });
  check(by_shared, Change::kSharedBytes, [](const Scenario& s) { return s.shared_bytes(); });
  EXPECT_GT(borne_out, 20);
}

}  // namespace
}  // namespace gpuflight::occupancy
