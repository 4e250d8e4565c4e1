#include <algorithm>

#include <nlohmann/json.hpp>

#include "report/findings_report.h"
#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

using analysis::AnalyzedLog;
using analysis::Analysis;
using analysis::rules::CostKind;
using analysis::rules::Fact;
using analysis::rules::Finding;
using analysis::rules::Unit;
using Json = nlohmann::ordered_json;

Json fact_json(const Fact& fact) {
  switch (fact.unit) {
    case Unit::kCount:
    case Unit::kNs:
    case Unit::kBytes: return static_cast<std::int64_t>(std::clamp(fact.value, -1e18, 1e18));
    case Unit::kRatio:
    case Unit::kNumber: return fact.value;
    case Unit::kKernel: return fact.text.empty() ? Json(nullptr) : Json(printable(demangled(fact.text)));
    case Unit::kText: break;
  }
  return printable(fact.text);
}

Json log_json(const AnalyzedLog& log) {
  Json rank = Json::object();
  if (log.session) {
    for (const auto& [name, value] : log.session->rank) rank[printable(name)] = printable(value);
  }
  Json devices = Json::array();
  for (const auto& [number, device] : log.totals.devices) {
    const auto name = log.device_names.find(number);
    devices.push_back({{"device", number < 0 ? Json(nullptr) : Json(number)},
                       {"name", name == log.device_names.end() ? Json(nullptr) : Json(printable(name->second))},
                       {"first_ns", device.first_ns},
                       {"last_ns", device.last_ns},
                       {"span_ns", device.span_ns()},
                       {"busy_ns", device.busy_ns},
                       {"host_wait_ns", device.host_wait_ns},
                       {"kernel_wait_ns", device.kernel_wait_ns},
                       {"other_idle_ns", device.other_idle_ns},
                       {"unknown_ns", device.unknown_ns},
                       {"kernel_total_ns", device.kernel_ns},
                       {"copy_total_ns", device.copy_ns},
                       {"works", device.works}});
  }
  return {{"path", printable(log.path)},
          {"program", log.session ? Json(printable(log.session->program)) : Json(nullptr)},
          {"pid", log.session ? Json(log.session->pid) : Json(nullptr)},
          {"host", log.session ? Json(printable(log.session->host)) : Json(nullptr)},
          {"rank", std::move(rank)},
          {"offset_ns", log.offset_ns},
          {"ended", log.ended},
          {"lines", log.lines},
          {"broken_lines", log.broken_lines},
          {"summary_lines", log.summary_lines},
          {"lost", log.lost},
          {"launches", log.totals.launches},
          {"calls", log.totals.calls},
          {"works", log.totals.works},
          {"untimed_kernels", log.totals.untimed},
          {"sync_ns", log.totals.sync_ns},
          {"devices", std::move(devices)}};
}

Json finding_json(const Analysis& analysis, const Finding& finding, KernelNames& names) {
  Json facts = Json::object();
  for (const Fact& fact : finding.facts) facts[fact.key] = fact_json(fact);
  Json evidence = Json::array();
  for (const auto& ref : finding.evidence) {
    evidence.push_back(
        {{"file", ref.file < analysis.files.size() ? Json(printable(analysis.files[ref.file])) : Json(nullptr)},
         {"line", ref.line},
         {"seq", ref.seq},
         {"at_ns", ref.at_ns}});
  }
  const auto* const rule = analysis::rules::find_rule(finding.rule);
  const bool timed = finding.cost_kind != CostKind::kNone;
  return {{"rule", finding.rule},
          {"severity", analysis::rules::kSeverityNames[static_cast<std::size_t>(finding.severity)]},
          {"log", finding.log},
          {"device", finding.device && *finding.device >= 0 ? Json(*finding.device) : Json(nullptr)},
          {"message", filled_in(finding.message, finding.facts, names)},
          {"cost_ns", timed ? Json(finding.cost_ns) : Json(nullptr)},
          {"cost_kind", analysis::rules::kCostKindNames[static_cast<std::size_t>(finding.cost_kind)]},
          {"cost_share", timed ? Json(finding.cost_share) : Json(nullptr)},
          {"cost_how", filled_in(finding.cost_how, finding.facts, names)},
          {"remedy", filled_in(finding.remedy, finding.facts, names)},
          {"source", rule == nullptr ? Json(nullptr) : Json(rule->source)},
          {"facts", std::move(facts)},
          {"evidence", std::move(evidence)},
          {"evidence_total", finding.evidence_total},
          {"explains", finding.also}};
}

}  // namespace

std::string findings_json(const Analysis& analysis, const FindingsOptions& options) {
  KernelNames names(options.width, true);
  Json logs = Json::array(), findings = Json::array();
  for (const AnalyzedLog& log : analysis.logs) logs.push_back(log_json(log));
  for (const Finding& finding : analysis.findings) findings.push_back(finding_json(analysis, finding, names));
  const Json whole = {{"analyze_schema", kAnalyzeSchema},
                      {"rules", options.rules},
                      {"logs", std::move(logs)},
                      {"findings", std::move(findings)}};
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string rules_json(const std::vector<analysis::rules::RuleInfo>& rules) {
  Json list = Json::array();
  for (const auto& rule : rules) {
    Json thresholds = Json::array();
    for (const auto& t : rule.thresholds) {
      thresholds.push_back({{"name", t.name}, {"default", t.value}, {"what", t.what}});
    }
    list.push_back(
        {{"name", rule.name}, {"what", rule.what}, {"source", rule.source}, {"thresholds", std::move(thresholds)}});
  }
  return Json{{"analyze_schema", kAnalyzeSchema}, {"rules", std::move(list)}}.dump(2) + "\n";
}

}  // namespace gpuflight::report
