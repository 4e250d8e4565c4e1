#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "report/advice_json.h"
#include "report/advice_text.h"
#include "report/explain_report.h"
#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::Explanation;
using analysis::StudiedConfig;

constexpr std::array kSilences = {"", "no_details", "no_device", "unknown_facts", "model_disagrees"};
constexpr std::array kDoubts = {"", "grid_fits", "high_occupancy"};

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json word(const char* text) { return *text == '\0' ? Json(nullptr) : Json(text); }

Json durations_json(const analysis::Durations& durations) {
  if (durations.count == 0) return nullptr;
  return Json{{"count", durations.count}, {"total_ns", durations.total_ns}, {"mean_ns", *durations.mean_ns()}};
}

template <class T>
Json range_json(const analysis::Range<T>& range) {
  if (!range.known) return nullptr;
  return Json{{"min", range.min}, {"max", range.max}};
}

Json grids_json(const analysis::GridFacts& grids) {
  return Json{{"launches", grids.launches},
              {"blocks", range_json(grids.blocks)},
              {"waves", range_json(grids.waves)},
              {"resident", grids.resident},
              {"small", grids.small},
              {"tailed", grids.tailed}};
}

Json findings_json(const Explanation& kernel) {
  Json out = Json::array();
  for (const analysis::Finding& finding : kernel.findings) {
    out.push_back(Json{{"finding", analysis::rule_name(finding.rule)},
                       {"launches", finding.launches},
                       {"value", finding.value},
                       {"bound_share", or_null(finding.bound_share)},
                       {"bound_ns", or_null(finding.bound_ns)},
                       {"rule", analysis::rule_source(finding.rule)}});
  }
  return out;
}

Json device_json(const StudiedConfig& config) {
  if (!config.board) return nullptr;
  const event::DeviceInfo& board = *config.board;
  return Json{{"name", board.name},
              {"arch", fmt::format("sm_{}{}", board.compute_major, board.compute_minor)},
              {"sm_count", board.sm_count}};
}

Json kernel_json(const Explanation& kernel) {
  const StudiedConfig& config = kernel.config;
  Json best = nullptr;
  if (kernel.advice && kernel.advice->at_best_block) {
    best = occupancy_json(*kernel.advice->at_best_block);
    best["block_threads"] = kernel.advice->best_block;
  }
  return Json{{"label", config.kernel.name},
              {"name", demangled(config.kernel.name)},
              {"share", config.share},
              {"launches", config.launches},
              {"failed", config.failed},
              {"captured", config.captured},
              {"gpu", durations_json(config.gpu)},
              {"call", durations_json(config.call)},
              {"queue", durations_json(config.queue)},
              {"launch", launch_json(config.kernel, config.shape)},
              {"device", device_json(config)},
              {"grids", grids_json(config.grids)},
              {"now", occupancy_json(kernel.advice ? kernel.advice->now : config.occupancy)},
              {"max_potential_block_size", std::move(best)},
              {"findings", findings_json(kernel)},
              {"no_advice", word(kSilences[static_cast<std::size_t>(kernel.silence)])},
              {"may_not_help", word(kDoubts[static_cast<std::size_t>(kernel.doubt)])},
              {"advice", kernel.advice ? advice_list_json(*kernel.advice) : Json::array()}};
}

}  // namespace

std::string explain_json(const ExplainedKernels& explained, const analysis::LogSummary& logs) {
  Json out{{"explain_schema", kExplainSchema}, {"share_of", explained.by_gpu_time ? "gpu_time" : "launches"}};
  out["logs"] = Json::array();
  for (const analysis::LogFacts& log : logs.logs()) {
    out["logs"].push_back(Json{{"path", log.path},
                               {"pid", log.start ? Json(log.start->pid) : Json(nullptr)},
                               {"broken_lines", log.broken_lines()},
                               {"lost", log.lost()}});
  }
  out["kernels"] = Json::array();
  for (const Explanation& kernel : explained.kernels) out["kernels"].push_back(kernel_json(kernel));
  out["configs_complete"] = !logs.groups_full();
  out["left_out"] = Json{{"configs", explained.left_out}, {"share", explained.left_out_share}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpuflight::report
