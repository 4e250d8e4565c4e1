#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/advice_json.h"
#include "report/kernel_name.h"
#include "report/occupancy_report.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::KernelWhatIf;
using analysis::WhatIf;

std::string dumped(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json with_curves(const WhatIf& what_if) {
  Json out = what_if_json(what_if);
  out["curves"] = Json::array();
  for (const auto over :
       {occupancy::CurveOver::kBlock, occupancy::CurveOver::kRegisters, occupancy::CurveOver::kShared}) {
    out["curves"].push_back(curve_json(occupancy::occupancy_curve(what_if.scenario, over)));
  }
  return out;
}

}  // namespace

std::string calculation_json(const std::vector<WhatIf>& boards) {
  Json out{{"occupancy_schema", kOccupancySchema}};
  if (!boards.empty()) out["launch"] = launch_json(boards.front().scenario.kernel, boards.front().scenario.shape);
  out["boards"] = Json::array();
  for (const WhatIf& board : boards) out["boards"].push_back(with_curves(board));
  return dumped(out);
}

std::string elsewhere_json(const std::vector<KernelWhatIf>& kernels, bool by_gpu_time) {
  Json out{{"occupancy_schema", kOccupancySchema},
           {"share_of", by_gpu_time ? "gpu_time" : "launches"},
           {"assumed", Json::array({"registers_as_recorded", "static_shared_memory_as_recorded", "same_block",
                                    "same_dynamic_shared_memory", "spills_unknown"})}};
  out["kernels"] = Json::array();
  for (const KernelWhatIf& kernel : kernels) {
    const analysis::StudiedConfig& config = kernel.config;
    Json one{{"label", config.kernel.name},
             {"name", demangled(config.kernel.name)},
             {"share", config.share},
             {"launches", config.launches},
             {"launch", launch_json(config.kernel, config.shape)},
             {"recorded", occupancy_json(config.occupancy)},
             {"recorded_board", config.board ? Json(config.board->name) : Json(nullptr)},
             {"barriers_left_out", kernel.barriers_left_out},
             {"boards", Json::array()}};
    for (const WhatIf& board : kernel.boards) one["boards"].push_back(with_curves(board));
    out["kernels"].push_back(std::move(one));
  }
  return dumped(out);
}

std::string architectures_json() {
  Json out{{"occupancy_schema", kOccupancySchema}};
  out["architectures"] = Json::array();
  for (const occupancy::Architecture& arch : occupancy::architectures()) {
    const event::DeviceInfo& b = *arch.board;
    out["architectures"].push_back(Json{{"arch", arch.name},
                                        {"board", b.name},
                                        {"sm_count", b.sm_count},
                                        {"max_warps_per_sm", b.max_warps_per_sm()},
                                        {"max_blocks_per_sm", b.max_blocks_per_sm},
                                        {"max_threads_per_block", b.max_threads_per_block},
                                        {"regs_per_sm", b.regs_per_sm},
                                        {"regs_per_block", b.regs_per_block},
                                        {"shared_bytes_per_sm", b.shared_bytes_per_sm},
                                        {"shared_bytes_per_block", b.shared_bytes_per_block},
                                        {"shared_bytes_per_block_optin", b.shared_bytes_per_block_optin},
                                        {"reserved_shared_bytes_per_block", b.reserved_shared_bytes_per_block},
                                        {"shared_unit_bytes", arch.shared_unit_bytes}});
  }
  out["sources"] = Json::array();
  for (const occupancy::NumberSource& source : occupancy::number_sources()) {
    out["sources"].push_back(Json{{"numbers", source.numbers}, {"source", source.source}});
  }
  return dumped(out);
}

}  // namespace gpuflight::report
