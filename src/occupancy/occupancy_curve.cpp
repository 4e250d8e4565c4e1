#include "occupancy/occupancy_curve.h"

#include <algorithm>

#include "occupancy/occupancy_model.h"

namespace gpuflight::occupancy {
namespace {

constexpr std::int32_t kMostRegisters = 255;  // of a thread, on every architecture since 3.5

Scenario moved(const Scenario& scenario, CurveOver over, std::int32_t x) {
  switch (over) {
    case CurveOver::kBlock: return with_block(scenario, x);
    case CurveOver::kRegisters: return with_registers(scenario, x);
    case CurveOver::kShared: return with_shared_bytes(scenario, x);
  }
  return scenario;
}

}  // namespace

std::optional<CurveOver> curve_over(std::string_view name) {
  const auto found = std::find(kCurveNames.begin(), kCurveNames.end(), name);
  if (found == kCurveNames.end()) return std::nullopt;
  return static_cast<CurveOver>(found - kCurveNames.begin());
}

const CurvePoint* OccupancyCurve::at(std::int32_t x) const {
  if (x < least || x > most) return nullptr;
  const auto found =
      std::lower_bound(points.begin(), points.end(), x, [](const CurvePoint& p, std::int32_t v) { return p.x < v; });
  return found == points.end() ? nullptr : &*found;
}

OccupancyCurve occupancy_curve(const Scenario& scenario, CurveOver over) {
  OccupancyCurve curve;
  curve.over = over;
  curve.max_warps = scenario.device.max_warps_per_sm();
  std::int32_t step = 1;
  switch (over) {
    case CurveOver::kBlock:
      curve.least = 1;
      step = std::max(scenario.device.warp_size, 1);
      curve.most = scenario.device.max_threads_per_block;
      curve.now = scenario.threads();
      break;
    case CurveOver::kRegisters:
      curve.least = 1;
      curve.most = kMostRegisters;
      curve.now = scenario.kernel.num_regs;
      break;
    case CurveOver::kShared:
      step = std::max(shared_unit_bytes(scenario.device), 1);
      curve.most = scenario.device.shared_bytes_per_block_optin;
      curve.now = scenario.shared_bytes();
      break;
  }
  const std::int32_t first = over == CurveOver::kBlock ? step : curve.least;
  for (std::int32_t x = first; x <= curve.most; x += step) {
    const event::Occupancy o = what_if(moved(scenario, over, x));
    const CurvePoint point{x, o.max_active_blocks, o.max_active_blocks * o.warps_per_block, o.limiters};
    const bool same = over != CurveOver::kBlock && !curve.points.empty() &&
                      curve.points.back().blocks == point.blocks && curve.points.back().limiters == point.limiters;
    if (same) {
      curve.points.back().x = x;
    } else {
      curve.points.push_back(point);
    }
  }
  return curve;
}

}  // namespace gpuflight::occupancy
