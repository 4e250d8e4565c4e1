#include "analysis/rules/rule_table.h"

#include <algorithm>

namespace gpuflight::analysis::rules {

void Rule::on_gap(const Gap&, const GpuWork&) {}

void Evidence::give(Finding& finding) const {
  auto sorted = kept_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [weight, ref] : sorted) finding.evidence.push_back(ref);
  finding.evidence_total += total_;
}

std::int64_t LogTotals::span_ns() const {
  std::int64_t first = kNoTime, last = kNoTime;
  for (const auto& [number, device] : devices) {
    if (device.first_ns == kNoTime) continue;
    first = first == kNoTime ? device.first_ns : std::min(first, device.first_ns);
    last = std::max(last, device.last_ns);
  }
  if (first == kNoTime) {
    first = first_call_ns;
    last = last_call_ns;
  }
  return first == kNoTime ? 0 : last - first;
}

std::int64_t LogTotals::span_ns(std::int32_t device) const {
  const auto found = devices.find(device);
  return found == devices.end() ? span_ns() : found->second.span_ns();
}

std::int64_t LogTotals::kernel_ns() const {
  std::int64_t sum = 0;
  for (const auto& [number, device] : devices) sum += device.kernel_ns;
  return sum;
}

Finding costed(const char* rule, CostKind kind, std::int64_t cost_ns, std::int64_t span_ns) {
  constexpr double kCritical = 0.2, kWarning = 0.05;
  Finding finding;
  finding.rule = rule;
  finding.cost_kind = kind;
  finding.cost_ns = cost_ns;
  finding.cost_share = share(cost_ns, span_ns);
  if (kind == CostKind::kNone || finding.cost_share < kWarning) return finding;
  const bool critical = finding.cost_share >= kCritical && kind != CostKind::kAtStake;
  finding.severity = critical ? Severity::kCritical : Severity::kWarning;
  return finding;
}

const std::vector<RuleInfo>& all_rules() {
  static const std::vector<RuleInfo> rules = [] {
    std::vector<RuleInfo> all;
    for (const auto& family :
         {copy_rules(), sync_rules(), idle_rules(), stream_rules(), overlap_rules(), launch_rules(), sequence_rules(),
          memory_rules(), kernel_rules(), burst_rules(), imbalance_rules()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return rules;
}

const RuleInfo* find_rule(std::string_view name) {
  for (const RuleInfo& rule : all_rules()) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

std::vector<ChosenRule> default_rules() {
  std::vector<ChosenRule> chosen;
  for (const RuleInfo& rule : all_rules()) chosen.push_back({&rule, RuleSettings(rule.thresholds)});
  return chosen;
}

}  // namespace gpuflight::analysis::rules
