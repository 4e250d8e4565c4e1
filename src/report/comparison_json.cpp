#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/comparison_report.h"
#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::ComparedKernel;
using analysis::Comparison;
using analysis::KernelSide;
using analysis::TimeChange;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

double rounded(double value) { return std::round(value * 1e6) / 1e6; }

template <class T>
Json range_json(const analysis::Range<T>& range) {
  if (!range.known) return nullptr;
  return Json{{"min", range.min}, {"max", range.max}};
}

Json whole(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) out.push_back(std::llround(value));
  return out;
}

const char* verdict_name(analysis::TimeVerdict verdict) { return analysis::kTimeVerdictNames[static_cast<int>(verdict)]; }
const char* outcome_name(analysis::Outcome outcome) { return analysis::kOutcomeNames[static_cast<int>(outcome)]; }

Json change_json(const TimeChange& change) {
  Json out{{"verdict", verdict_name(change.verdict)},
           {"reason", change.reason.empty() ? Json(nullptr) : Json(change.reason)},
           {"before_ns", change.before.empty() ? Json(nullptr) : Json(std::llround(change.before_ns))},
           {"after_ns", change.after.empty() ? Json(nullptr) : Json(std::llround(change.after_ns))},
           {"ratio", change.ratio ? Json(rounded(*change.ratio)) : Json(nullptr)}};
  out["interval"] = change.interval ? Json{{"low", rounded(change.interval->low)},
                                           {"high", rounded(change.interval->high)}}
                                    : Json(nullptr);
  out["p"] = change.p ? Json(rounded(*change.p)) : Json(nullptr);
  out["recordings_before_ns"] = whole(change.before);
  out["recordings_after_ns"] = whole(change.after);
  return out;
}

Json side_json(const std::optional<KernelSide>& side) {
  if (!side) return nullptr;
  const analysis::LaunchGroup& group = side->all;
  Json limiters = Json::array();
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if ((group.limiters & event::limiter_bit(static_cast<event::Limiter>(i))) != 0) {
      limiters.push_back(event::kLimiterNames[i]);
    }
  }
  const event::Dim3 &block = side->key.block, &cluster = side->key.cluster;
  return Json{{"recordings", side->recordings},
              {"share", rounded(side->share)},
              {"block", side->key.shape_known ? Json(fmt::format("({},{},{})", block.x, block.y, block.z))
                                              : Json(nullptr)},
              {"cluster", cluster.count() > 0 ? Json(fmt::format("({},{},{})", cluster.x, cluster.y, cluster.z))
                                              : Json(nullptr)},
              {"launches", range_json(side->launches)},
              {"grid_blocks", range_json(group.grid_blocks)},
              {"num_regs", range_json(group.num_regs)},
              {"static_shared_bytes", range_json(group.static_shared_bytes)},
              {"dyn_shared_bytes", range_json(group.dyn_shared_bytes)},
              {"local_bytes_per_thread", range_json(group.local_bytes_per_thread)},
              {"max_active_blocks", range_json(group.max_active_blocks)},
              {"occupancy", range_json(group.occupancy)},
              {"limiting_resources", std::move(limiters)}};
}

Json kernel_json(const ComparedKernel& kernel) {
  Json changes = Json::array();
  for (const analysis::FactChange& change : kernel.changes) {
    changes.push_back(Json{{"fact", analysis::kFactNames[static_cast<std::size_t>(change.fact)]},
                           {"before", fact_text(change.fact, *kernel.before)},
                           {"after", fact_text(change.fact, *kernel.after)},
                           {"worse", change.worse}});
  }
  const bool timed = kernel.verdict.has_value();
  return Json{{"label", kernel.name},
              {"name", demangled(kernel.name)},
              {"state", !kernel.before ? "added" : !kernel.after ? "removed" : "both"},
              {"verdict", timed ? Json(verdict_name(*kernel.verdict)) : Json(nullptr)},
              {"reason", kernel.reason.empty() ? Json(nullptr) : Json(kernel.reason)},
              {"outcome", outcome_name(kernel.outcome)},
              {"failed_by", kernel.failed_by.empty() ? Json(nullptr) : Json(kernel.failed_by)},
              {"counted", kernel.counted},
              {"median", timed ? change_json(kernel.median) : Json(nullptr)},
              {"p95", timed ? change_json(kernel.p95) : Json(nullptr)},
              {"changes", std::move(changes)},
              {"before", side_json(kernel.before)},
              {"after", side_json(kernel.after)}};
}

Json recordings_json(const std::vector<analysis::Recording>& side) {
  Json out = Json::array();
  for (const analysis::Recording& recording : side) {
    Json machine = Json::object();
    for (int i = 0; i < analysis::kMachineFactCount; ++i) {
      machine[analysis::kMachineFactNames[i]] = recording.machine[i];
    }
    out.push_back(Json{{"paths", recording.paths},
                       {"begin_unix_ns", or_null(recording.begin_unix_ns)},
                       {"end_unix_ns", or_null(recording.end_unix_ns)},
                       {"kernel_total_ns", std::llround(std::min(recording.kernel_total_ns, 9e18))},
                       {"missing_events", recording.missing_events},
                       {"without_end", recording.without_end},
                       {"complete", recording.complete},
                       {"machine", std::move(machine)}});
  }
  return out;
}

}  // namespace

std::string render_json(const Comparison& comparison) {
  const analysis::CompareOptions& options = comparison.options;
  Json out{{"diff_schema", kComparisonSchema}, {"outcome", outcome_name(comparison.outcome)}};
  Json fail_on = Json::array();
  for (std::size_t i = 0; i < analysis::kFailOnNames.size(); ++i) {
    if ((options.fail_on & fail_bit(static_cast<analysis::FailOn>(i))) != 0) {
      fail_on.push_back(analysis::kFailOnNames[i]);
    }
  }
  out["rule"] = Json{{"min_effect", options.rule.least_effect},
                     {"alpha", rounded(options.rule.alpha_for(comparison.before.size(), comparison.after.size()))},
                     {"min_share", options.least_share},
                     {"judge", analysis::kJudgeNames[static_cast<std::size_t>(options.judge)]},
                     {"facts_only", options.facts_only},
                     {"force", options.force},
                     {"fail_on", std::move(fail_on)}};
  out["before"] = recordings_json(comparison.before);
  out["after"] = recordings_json(comparison.after);
  out["differences"] = Json::array();
  for (const analysis::MachineDifference& difference : comparison.differences) {
    out["differences"].push_back(Json{{"what", analysis::kMachineFactNames[static_cast<std::size_t>(difference.fact)]},
                                      {"refuses_times", decides_times(difference.fact)},
                                      {"before", difference.before},
                                      {"after", difference.after}});
  }
  out["refused"] = comparison.refused;
  out["in_turns"] = comparison.in_turns;
  out["has_times"] = comparison.has_times;
  out["notes"] = comparison_notes(comparison);
  out["total"] = options.facts_only ? Json(nullptr) : change_json(comparison.total);
  out["counts"] = Json::object();
  for (int i = 0; i < 4; ++i) {
    out["counts"][analysis::kTimeVerdictNames[i]] = comparison.count(static_cast<analysis::TimeVerdict>(i));
  }
  out["kernels"] = Json::array();
  for (const ComparedKernel& kernel : comparison.kernels) out["kernels"].push_back(kernel_json(kernel));
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpuflight::report
