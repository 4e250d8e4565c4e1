#include "analysis/analyzer.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "event/plausible_time.h"

namespace gpuflight::analysis {
namespace {

using rules::Finding;

// "rank 3" where the environment of the program said so, else what tells it from the others.
std::string name_of_rank(const AnalyzedLog& log, std::size_t number) {
  if (!log.session) return "log " + std::to_string(number);
  for (const char* const variable : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "LOCAL_RANK"}) {
    for (const auto& [name, value] : log.session->rank) {
      if (name == variable) return "rank " + value;
    }
  }
  return "process " + std::to_string(log.session->pid);
}

// Of one boot of one host the monotonic clock is the same; else the time of day has to do.
std::int64_t offset_between(const event::SessionStart& log, const event::SessionStart& first) {
  const bool same_clock = !log.boot_id.empty() && log.boot_id == first.boot_id && log.t0_monotonic_ns != 0 &&
                          first.t0_monotonic_ns != 0;
  std::int64_t ns = 0;
  const bool lies = same_clock ? __builtin_sub_overflow(log.t0_monotonic_ns, first.t0_monotonic_ns, &ns)
                               : __builtin_sub_overflow(log.t0_unix_ns, first.t0_unix_ns, &ns);
  return lies || !event::plausible(ns) ? 0 : ns;
}

void lay_on_one_axis(std::vector<AnalyzedLog>& logs) {
  const event::SessionStart* first = nullptr;
  for (const AnalyzedLog& log : logs) {
    if (log.session && (first == nullptr || log.session->t0_unix_ns < first->t0_unix_ns)) first = &*log.session;
  }
  for (AnalyzedLog& log : logs) {
    if (log.session) log.offset_ns = offset_between(*log.session, *first);
  }
}

bool explained_by(const Finding& general, const Finding& special) {
  constexpr std::int64_t kMost = 2;  // costs are reckoned in different ways
  if (&general == &special || general.log != special.log) return false;
  if (general.device && special.device && *general.device != *special.device) return false;
  if (general.cost_kind != rules::CostKind::kNone && general.cost_ns / kMost > special.cost_ns) return false;
  const rules::RuleInfo* const rule = rules::find_rule(special.rule);
  return rule != nullptr && std::any_of(rule->explains.begin(), rule->explains.end(),
                                        [&](const char* name) { return general.rule == name; });
}

// What has a more special cause among the findings is named under it instead of standing for itself.
void fold(std::vector<Finding>& findings) {
  constexpr std::size_t kItself = SIZE_MAX;
  std::vector<std::size_t> under(findings.size(), kItself);
  const auto top = [&](std::size_t i) {
    while (under[i] != kItself) i = under[i];
    return i;
  };
  // Of several the one whose cost is nearest.
  const auto distance = [&](std::size_t i, std::size_t j) {
    return std::abs(findings[i].cost_ns - findings[j].cost_ns);
  };
  for (std::size_t i = 0; i < findings.size(); ++i) {
    for (std::size_t j = 0; j < findings.size(); ++j) {
      if (!explained_by(findings[i], findings[j]) || top(j) == i) continue;
      if (under[i] == kItself || distance(i, j) < distance(i, under[i])) under[i] = j;
    }
  }
  std::vector<Finding> kept;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (under[i] == kItself) continue;
    auto& also = findings[top(i)].also;
    if (std::find(also.begin(), also.end(), findings[i].rule) == also.end()) also.push_back(findings[i].rule);
  }
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (under[i] == kItself) kept.push_back(std::move(findings[i]));
  }
  findings = std::move(kept);
}

}  // namespace

Analyzer::Analyzer(std::vector<rules::ChosenRule> chosen) : chosen_(std::move(chosen)) {}

void Analyzer::begin_log(const std::string& path) {
  std::vector<std::unique_ptr<rules::Rule>> made;
  for (const rules::ChosenRule& rule : chosen_) made.push_back(rule.info->make(rule.settings));
  pass_ = std::make_unique<rules::TimelinePass>(std::move(made));
  analysis_.logs.emplace_back();
  analysis_.logs.back().path = path;
}

void Analyzer::at(const std::string& file, std::uint64_t line) {
  line_ = line;
  std::vector<std::string>& files = analysis_.files;
  if (file_ < files.size() && files[file_] == file) return;
  const auto found = std::find(files.begin(), files.end(), file);
  file_ = static_cast<std::uint32_t>(found - files.begin());
  if (found == files.end()) files.push_back(file);
}

void Analyzer::add(const log::LogEvent& event) {
  AnalyzedLog& log = analysis_.logs.back();
  if (const auto* start = std::get_if<log::SessionStartLine>(&event)) {
    if (!log.session) log.session = start->session;
  } else if (const auto* device = std::get_if<log::DeviceInfoLine>(&event)) {
    log.device_names[device->device.device] = device->device.name;
  } else if (const auto* summary = std::get_if<log::KernelSummaryLine>(&event)) {
    if (!summary->summary.session) ++log.summary_lines;
  } else if (const auto* loss = std::get_if<event::LossEvent>(&event)) {
    log.lost = loss->ledger.lost_total();
  } else if (const auto* end = std::get_if<event::SessionEnd>(&event)) {
    log.ended = true;
    log.lost = end->ledger.lost_total();
  }
  pass_->add(event, file_, line_);
}

void Analyzer::end_log(const log::ReadStats& stats) {
  AnalyzedLog& log = analysis_.logs.back();
  const auto number = static_cast<std::uint32_t>(analysis_.logs.size() - 1);
  log.lines = stats.lines;
  log.broken_lines = stats.trouble_total();
  std::vector<Finding> found;
  pass_->finish(found);
  const bool whole = pass_->totals().whole();
  for (Finding& finding : found) {
    const rules::RuleInfo* const rule = rules::find_rule(finding.rule);
    if (!whole && rule != nullptr && rule->needs == rules::RuleInfo::Needs::kTimeline) continue;
    finding.log = number;
    analysis_.findings.push_back(std::move(finding));
  }
  log.totals = pass_->totals();
  ranks_.push_back({number, name_of_rank(log, number + 1), log.totals, 0, pass_->collectives(), pass_->longest()});
  pass_.reset();
}

Analysis Analyzer::finish() {
  lay_on_one_axis(analysis_.logs);
  for (rules::RankTotals& rank : ranks_) rank.offset_ns = analysis_.logs[rank.log].offset_ns;
  if (ranks_.size() > 1 &&
      std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.totals.whole(); })) {
    for (const rules::ChosenRule& rule : chosen_) {
      if (rule.info->across != nullptr) rule.info->across(ranks_, rule.settings, analysis_.findings);
    }
  }
  std::vector<Finding>& findings = analysis_.findings;
  fold(findings);
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    return a.cost_ns > b.cost_ns;
  });
  return std::move(analysis_);
}

}  // namespace gpuflight::analysis
