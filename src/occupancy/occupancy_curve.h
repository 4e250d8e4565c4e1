// Occupancy as one thing about a kernel changes and all else stays: data for a plot, as text or in a page.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "occupancy/scenario.h"

namespace gpuflight::occupancy {

enum class CurveOver : std::uint8_t { kBlock, kRegisters, kShared };
inline constexpr std::array<const char*, 3> kCurveNames = {"block", "regs", "smem"};
std::optional<CurveOver> curve_over(std::string_view name);

struct CurvePoint {
  std::int32_t x = 0;       // threads per block, registers per thread, bytes of shared memory per block
  std::int32_t blocks = 0;  // on an SM
  std::int32_t warps = 0;
  event::LimiterSet limiters = 0;
};

// A staircase: what a point says holds from the point before (not included) to its x. Ascending in x.
struct OccupancyCurve {
  CurveOver over = CurveOver::kBlock;
  std::int32_t least = 0, most = 0;  // of x
  std::int32_t now = 0;              // where the scenario stands
  std::int32_t max_warps = 0;        // of an SM: warps / max_warps is the occupancy
  std::vector<CurvePoint> points;

  const CurvePoint* at(std::int32_t x) const;  // nullptr: outside
};

// Block: every number of warps up to the device's largest block. Registers: 1 to 255. Shared memory: 0 to the most a
// block can opt in to, static and dynamic together.
OccupancyCurve occupancy_curve(const Scenario& scenario, CurveOver over);

}  // namespace gpuflight::occupancy
