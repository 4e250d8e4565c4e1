#include "report/advice_json.h"

#include <fmt/format.h>

#include <cmath>

#include "report/advice_text.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using event::Limiter;

Json known(std::int32_t value) { return value < 0 ? Json(nullptr) : Json(value); }

Json ratio_json(double value) { return std::isnan(value) ? Json(nullptr) : Json(std::round(value * 1e6) / 1e6); }

std::string dim(const event::Dim3& d) { return fmt::format("({},{},{})", d.x, d.y, d.z); }

}  // namespace

Json limiters_json(event::LimiterSet limiters) {
  Json out = Json::array();
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if ((limiters & event::limiter_bit(static_cast<Limiter>(i))) != 0) out.push_back(event::kLimiterNames[i]);
  }
  return out;
}

Json occupancy_json(const event::Occupancy& o) {
  Json limits = Json::object();
  for (int i = 0; i < event::kLimiterCount; ++i) {
    const std::int32_t blocks = o.limit_blocks[i];
    limits[event::kLimiterNames[i]] = blocks < 0 || blocks == event::kUnlimitedBlocks ? Json(nullptr) : Json(blocks);
  }
  return Json{{"max_active_blocks", known(o.max_active_blocks)}, {"warps_per_block", o.warps_per_block},
              {"max_warps_per_sm", o.max_warps_per_sm},          {"occupancy", ratio_json(occupancy_value(o))},
              {"limiting_resources", limiters_json(o.limiters)}, {"limit_blocks", std::move(limits)}};
}

Json advice_list_json(const occupancy::AdviceList& list) {
  Json out = Json::array();
  for (const occupancy::Advice& advice : list.advice) {
    out.push_back(Json{{"change", occupancy::change_name(advice.change)},
                       {"from", known(advice.from)},
                       {"to", advice.to},
                       {"occupancy_before", ratio_json(occupancy_value(list.now))},
                       {"gains", advice.gains},
                       {"after", occupancy_json(advice.after)},
                       {"also", limiters_json(advice.also)},
                       {"together", advice.together ? occupancy_json(*advice.together) : Json(nullptr)},
                       {"max_potential_block_size", advice.best},
                       {"rule", occupancy::rule_source(advice.change)}});
    if (advice.change != occupancy::Change::kRegisters) continue;
    out.back()["min_blocks"] = list.now.max_active_blocks + 1;
  }
  return out;
}

Json launch_json(const event::KernelInfo& kernel, const event::LaunchShape& shape) {
  return Json{{"num_regs", known(kernel.num_regs)},
              {"static_shared_bytes", known(kernel.static_shared_bytes)},
              {"dyn_shared_bytes", shape.dyn_shared_bytes},
              {"local_bytes_per_thread", known(kernel.local_bytes_per_thread)},
              {"max_threads_per_block", known(kernel.max_threads_per_block)},
              {"block", dim(shape.block)},
              {"cluster", shape.cluster.count() > 0 ? Json(dim(shape.cluster)) : Json(nullptr)},
              {"carveout", known(shape.carveout)}};
}

Json curve_json(const occupancy::OccupancyCurve& curve) {
  Json points = Json::array();
  for (const occupancy::CurvePoint& point : curve.points) {
    const double value = curve.max_warps > 0 ? static_cast<double>(point.warps) / curve.max_warps : NAN;
    points.push_back(Json{{"x", point.x},
                          {"max_active_blocks", point.blocks},
                          {"occupancy", ratio_json(value)},
                          {"limiting_resources", limiters_json(point.limiters)}});
  }
  return Json{{"over", occupancy::kCurveNames[static_cast<std::size_t>(curve.over)]},
              {"least", curve.least},
              {"most", curve.most},
              {"now", curve.now},
              {"points", std::move(points)}};
}

Json what_if_json(const analysis::WhatIf& what_if) {
  const event::DeviceInfo& board = what_if.scenario.device;
  Json obstacles = Json::array();
  for (const analysis::Obstacle obstacle : what_if.obstacles) obstacles.push_back(analysis::obstacle_name(obstacle));
  Json best = nullptr;
  if (what_if.advice.at_best_block) {
    best = occupancy_json(*what_if.advice.at_best_block);
    best["block_threads"] = what_if.advice.best_block;
  }
  return Json{{"arch", what_if.arch},
              {"board", board.name},
              {"sm_count", board.sm_count},
              {"now", occupancy_json(what_if.advice.now)},
              {"obstacles", std::move(obstacles)},
              {"clusters_at_most", what_if.clusters_at_most ? Json(*what_if.clusters_at_most) : Json(nullptr)},
              {"max_potential_block_size", std::move(best)},
              {"advice", advice_list_json(what_if.advice)}};
}

}  // namespace gpuflight::report
