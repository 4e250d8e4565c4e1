#include "report/budget_report.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/kernel_name.h"
#include "report/markdown_table.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::BudgetFinding;
using analysis::BudgetQuantity;
using analysis::BudgetSubject;
using analysis::Outcome;

constexpr std::size_t kLeastNameWidth = 24;

const char* subject_kind(const BudgetFinding& finding) {
  return analysis::kBudgetSubjectNames[static_cast<int>(finding.rule->subject)];
}

bool is_kernel(const BudgetFinding& finding) {
  return finding.rule->subject == BudgetSubject::kKernel && finding.key != nullptr;
}

bool is_limiter(const BudgetFinding& finding) {
  return finding.key != nullptr && finding.key->quantity == BudgetQuantity::kLimiter;
}

std::vector<std::string> limiter_names(event::LimiterSet set) {
  std::vector<std::string> out;
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if ((set & event::limiter_bit(static_cast<event::Limiter>(i))) != 0) out.emplace_back(event::kLimiterNames[i]);
  }
  return out;
}

// As the key has it: a bare number, six decimals at most.
std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return count_text(static_cast<std::uint64_t>(value));
  std::string text = fmt::format("{:.{}f}", value, value < 10 ? 4 : 1);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::string value_text(const BudgetFinding& finding) {
  if (!finding.value) return "-";
  if (is_limiter(finding)) return fmt::format("{}", fmt::join(limiter_names(finding.limiters), ", "));
  return number_text(*finding.value);
}

std::string limit_text(const BudgetFinding& finding) {
  if (finding.key == nullptr) return "-";
  if (is_limiter(finding)) return fmt::format("{}", fmt::join(limiter_names(finding.allowed), ", "));
  return (finding.key->at_least ? ">= " : "<= ") + number_text(finding.limit);
}

const char* result_text(const BudgetFinding& finding) {
  constexpr const char* kWords[] = {"met", "UNSURE", "FAIL"};
  return kWords[static_cast<int>(finding.outcome)];
}

std::string subject_text(const BudgetFinding& finding, KernelNames& names) {
  if (finding.key == nullptr) return printable(finding.rule->pattern);
  if (is_kernel(finding)) return names.of(finding.subject);
  return finding.subject.empty() ? "program" : printable(finding.subject);
}

std::string note_of(const BudgetFinding& finding, const BudgetOptions& options) {
  if (!finding.reason.empty()) return finding.reason;
  return options.logs > 1 && finding.outcome == Outcome::kFail ? printable(finding.log) : std::string();
}

std::string summary_text(const std::vector<BudgetFinding>& findings) {
  std::size_t counts[3] = {};
  for (const BudgetFinding& finding : findings) ++counts[static_cast<int>(finding.outcome)];
  std::string out = analysis::kOutcomeNames[static_cast<int>(outcome_of(findings))];
  out += fmt::format(": {} of {} limits met", counts[0], findings.size());
  if (counts[2] > 0) out += fmt::format(", {} broken", counts[2]);
  if (counts[1] > 0) out += fmt::format(", {} unsure", counts[1]);
  return out;
}

Cells cells_of(const std::vector<BudgetFinding>& findings, const BudgetOptions& options, std::size_t name_width) {
  Cells cells;
  cells.headings = {{"result"}, {"limit"}, {"allowed", Align::kRight}, {"found", Align::kRight}, {"subject"}, {""}};
  KernelNames names(name_width, options.full_names);
  for (const bool met : {false, true}) {
    for (const BudgetFinding& finding : findings) {
      if ((finding.outcome == Outcome::kPass) != met || (met && !options.all)) continue;
      cells.rows.push_back({result_text(finding), finding.key == nullptr ? subject_kind(finding) : finding.key->name,
                            limit_text(finding), value_text(finding), subject_text(finding, names),
                            note_of(finding, options)});
    }
  }
  return cells;
}

std::string inputs_text(const BudgetOptions& options) {
  std::string out = fmt::format("{} log{}", options.logs, options.logs == 1 ? "" : "s");
  if (options.logs > 1) out += options.median ? ", the median of them" : ", each of them";
  return out;
}

Json finding_json(const BudgetFinding& finding) {
  Json out{{"outcome", analysis::kOutcomeNames[static_cast<int>(finding.outcome)]},
           {"subject_kind", subject_kind(finding)},
           {"pattern", finding.rule->pattern.empty() ? Json(nullptr) : Json(finding.rule->pattern)},
           {"subject", finding.subject.empty() ? Json(nullptr) : Json(finding.subject)},
           {"name", is_kernel(finding) ? Json(demangled(finding.subject)) : Json(nullptr)},
           {"key", finding.key == nullptr ? Json(nullptr) : Json(finding.key->name)}};
  const bool known = finding.value.has_value();
  if (is_limiter(finding)) {
    out["limit"] = limiter_names(finding.allowed);
    out["value"] = known ? Json(limiter_names(finding.limiters)) : Json(nullptr);
  } else {
    out["limit"] = finding.key == nullptr ? Json(nullptr) : Json(finding.limit);
    out["value"] = known ? Json(std::round(*finding.value * 1e6) / 1e6) : Json(nullptr);
  }
  out["log"] = finding.log.empty() ? Json(nullptr) : Json(finding.log);
  out["logs_with_value"] = finding.logs;
  out["reason"] = finding.reason.empty() ? Json(nullptr) : Json(finding.reason);
  out["line"] = finding.rule->line;
  return out;
}

}  // namespace

Outcome outcome_of(const std::vector<BudgetFinding>& findings) {
  Outcome outcome = Outcome::kPass;
  for (const BudgetFinding& finding : findings) outcome = worse(outcome, finding.outcome);
  return outcome;
}

std::string render_text(const std::vector<BudgetFinding>& findings, const BudgetOptions& options) {
  Cells narrow = cells_of(findings, options, kLeastNameWidth);
  for (auto& row : narrow.rows) row[4].clear();
  std::size_t notes = 0;
  for (const auto& row : narrow.rows) notes = std::max(notes, display_width(row[5]));
  const std::size_t used = text_table(narrow).width_before_last() + notes;
  const std::size_t left = options.width > used + kLeastNameWidth ? options.width - used : kLeastNameWidth;
  const Cells cells = cells_of(findings, options, left);
  const char *const bold = options.colour ? "\033[1m" : "", *const off = options.colour ? "\033[0m" : "";
  const Outcome outcome = outcome_of(findings);
  const char* const colour = !options.colour                ? ""
                             : outcome == Outcome::kFail   ? "\033[31m"
                             : outcome == Outcome::kUnsure ? "\033[33m"
                                                           : "\033[32m";
  std::string out = fmt::format("budget     {} against {}\n", printable(options.budget), inputs_text(options));
  if (!cells.rows.empty()) out += "\n" + text_table(cells).render(bold, off) + "\n";
  return out + fmt::format("{}{}{}\n", colour, summary_text(findings), off);
}

std::string render_markdown(const std::vector<BudgetFinding>& findings, const BudgetOptions& options) {
  std::string out = "### gpuflight check: " + summary_text(findings) + "\n\n";
  out += fmt::format("- budget: {} against {}\n", markdown_text(printable(options.budget)), inputs_text(options));
  const Cells cells = cells_of(findings, options, 60);
  if (!cells.rows.empty()) out += "\n" + markdown_table(cells);
  return out;
}

std::string render_json(const std::vector<BudgetFinding>& findings, const BudgetOptions& options) {
  Json out{{"check_schema", kBudgetSchema},
           {"outcome", analysis::kOutcomeNames[static_cast<int>(outcome_of(findings))]},
           {"budget", options.budget},
           {"logs", options.logs},
           {"over", options.median ? "median" : "each"}};
  out["findings"] = Json::array();
  for (const BudgetFinding& finding : findings) out["findings"].push_back(finding_json(finding));
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

const std::vector<CiRule>& budget_rules() {
  static const std::vector<CiRule> kRules = [] {
    std::vector<CiRule> rules;
    for (const analysis::BudgetKey& key : analysis::budget_keys()) {
      const std::string subject = analysis::kBudgetSubjectNames[static_cast<int>(key.subject)];
      rules.push_back({fmt::format("budget/{}/{}", subject, key.name),
                       fmt::format("Budget of a {}: {}", subject, key.text)});
    }
    rules.push_back({"budget/nothing-matched", "A pattern of the budget matches nothing in the logs"});
    return rules;
  }();
  return kRules;
}

std::vector<CiResult> budget_results(const std::vector<BudgetFinding>& findings, const BudgetOptions& options) {
  std::vector<CiResult> out;
  for (const BudgetFinding& finding : findings) {
    CiResult result;
    result.outcome = finding.outcome;
    result.file = options.budget;
    result.line = finding.rule->line;
    const std::string kind = subject_kind(finding);
    if (finding.key == nullptr) {
      result.rule = "budget/nothing-matched";
      result.subject = printable(finding.rule->pattern.empty() ? kind : finding.rule->pattern);
      result.name = kind + " " + result.subject;
      result.message = finding.reason;
    } else {
      result.rule = fmt::format("budget/{}/{}", kind, finding.key->name);
      const std::string whole = is_kernel(finding) ? demangled(finding.subject) : finding.subject;
      result.subject = finding.subject.empty() ? kind : printable(is_kernel(finding) ? without_signature(whole) : whole);
      result.name = fmt::format("{} {}", finding.subject.empty() ? kind : printable(whole), finding.key->name);
      result.message = finding.outcome == Outcome::kUnsure && !finding.value
                           ? fmt::format("{}: {}", finding.key->name, finding.reason)
                           : fmt::format("{} {}, allowed {}{}{}", finding.key->name, value_text(finding),
                                         limit_text(finding), finding.reason.empty() ? "" : "; ", finding.reason);
      if (options.logs > 1 && !finding.log.empty()) result.message += " in " + printable(finding.log);
    }
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace gpuflight::report
