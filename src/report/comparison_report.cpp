#include "report/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/kernel_name.h"
#include "report/markdown_table.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using analysis::ComparedKernel;
using analysis::Comparison;
using analysis::Outcome;
using analysis::TimeChange;
using analysis::TimeVerdict;

constexpr const char* kUnknown = "-";
constexpr std::size_t kLeastNameWidth = 24;
constexpr std::size_t kMostPaths = 4;

std::string side_line(const std::vector<analysis::Recording>& side, bool markdown) {
  std::vector<std::string> paths;
  for (const analysis::Recording& recording : side) {
    for (const std::string& path : recording.paths) paths.push_back(printable(path));
  }
  const std::size_t all = paths.size();
  if (all > kMostPaths) paths.resize(kMostPaths);
  std::string list = fmt::format("{}", fmt::join(paths, ", "));
  if (all > kMostPaths) list += fmt::format(" and {} more", all - kMostPaths);
  if (markdown) list = markdown_text(list);
  return fmt::format("{} recording{}: {}", side.size(), side.size() == 1 ? "" : "s", list);
}

std::string ratio_text(const TimeChange& change) {
  return change.ratio ? fmt::format("{:+.1f}%", (*change.ratio - 1) * 100) : kUnknown;
}

std::string interval_text(const TimeChange& change) {
  if (!change.interval) return kUnknown;
  return fmt::format("{:+.1f}..{:+.1f}%", (change.interval->low - 1) * 100, (change.interval->high - 1) * 100);
}

std::string ns_text(double ns) { return ns > 0 ? duration_text(ns) : kUnknown; }

const char* verdict_text(const ComparedKernel& kernel) {
  if (!kernel.before) return "added";
  if (!kernel.after) return "removed";
  return kernel.verdict ? analysis::kTimeVerdictNames[static_cast<int>(*kernel.verdict)] : kUnknown;
}

bool worth_a_line(const ComparedKernel& kernel) {
  if (kernel.outcome == Outcome::kFail || !kernel.before || !kernel.after || !kernel.changes.empty()) return true;
  return kernel.verdict && kernel.verdict != TimeVerdict::kSame && kernel.counted;
}

struct Tables {
  Cells times, facts;
  std::size_t left_out = 0;
};

// `name` turns a mangled name into what stands in the last column.
template <class Name>
Tables tables_of(const Comparison& comparison, bool all, Name name) {
  Tables tables;
  tables.times.headings = {{"verdict"}, {"before", Align::kRight}, {"after", Align::kRight}, {"median", Align::kRight},
                           {"interval", Align::kRight}, {"p95", Align::kRight}, {"p", Align::kRight},
                           {"share", Align::kRight}, {"block", Align::kRight}, {"kernel"}};
  tables.facts.headings = {{"fact"}, {"before", Align::kRight}, {"after", Align::kRight}, {""}, {"kernel"}};
  for (const ComparedKernel& kernel : comparison.kernels) {
    if (!all && !worth_a_line(kernel)) {
      ++tables.left_out;
      continue;
    }
    const auto& side = kernel.after ? *kernel.after : *kernel.before;
    const std::string shown = name(kernel.name);
    if (!comparison.options.facts_only || !kernel.before || !kernel.after) {
      const TimeChange& median = kernel.median;
      const double before = kernel.before ? median.before_ns : 0, after = kernel.after ? median.after_ns : 0;
      tables.times.rows.push_back({verdict_text(kernel), ns_text(before), ns_text(after), ratio_text(median),
                                   interval_text(median), ratio_text(kernel.p95),
                                   median.p ? fmt::format("{:.2g}", *median.p) : kUnknown,
                                   percent_text(kernel.share(), 1), config_text(side.key), shown});
    }
    for (const analysis::FactChange& change : kernel.changes) {
      tables.facts.rows.push_back({analysis::kFactNames[static_cast<std::size_t>(change.fact)],
                                   fact_text(change.fact, *kernel.before), fact_text(change.fact, *kernel.after),
                                   change.worse ? "worse" : "", shown});
    }
  }
  return tables;
}

std::vector<std::string> reasons_of(const Comparison& comparison) {
  std::vector<std::pair<std::string, std::size_t>> counted;
  for (const ComparedKernel& kernel : comparison.kernels) {
    if (kernel.verdict != TimeVerdict::kUnsure || kernel.reason.empty()) continue;
    const auto found = std::find_if(counted.begin(), counted.end(),
                                    [&](const auto& entry) { return entry.first == kernel.reason; });
    if (found == counted.end()) {
      counted.emplace_back(kernel.reason, 1);
    } else {
      ++found->second;
    }
  }
  std::vector<std::string> out;
  for (const auto& [reason, count] : counted) out.push_back(fmt::format("UNSURE {}: {}", count, reason));
  return out;
}

std::string total_text(const Comparison& comparison) {
  const TimeChange& total = comparison.total;
  if (total.before.empty() || total.after.empty()) return {};
  return fmt::format("{} -> {} ({}, {})", ns_text(total.before_ns), ns_text(total.after_ns), ratio_text(total),
                     analysis::kTimeVerdictNames[static_cast<int>(total.verdict)]);
}

std::string rule_text(const Comparison& comparison) {
  const analysis::CompareOptions& options = comparison.options;
  return fmt::format("SLOWER and FASTER from {} on, with p <= {:.2g}; judged by {}; kernels of {} of the time or more",
                     percent_text(options.rule.least_effect, 1),
                     options.rule.alpha_for(comparison.before.size(), comparison.after.size()),
                     analysis::kJudgeNames[static_cast<std::size_t>(options.judge)],
                     percent_text(options.least_share, 1));
}

const char* colour_of(Outcome outcome) {
  return outcome == Outcome::kFail ? "\033[31m" : outcome == Outcome::kUnsure ? "\033[33m" : "\033[32m";
}

std::size_t width_before_names(Cells cells) {
  for (auto& row : cells.rows) row.back().clear();
  return text_table(cells).width_before_last();
}

}  // namespace

std::string render_text(const Comparison& comparison, const ComparisonOptions& options) {
  const auto same = [](const std::string& name) { return name; };
  Tables tables = tables_of(comparison, options.all, same);
  const auto fit = [&](Cells& cells) {
    const std::size_t used = width_before_names(cells);
    KernelNames names(options.width > used + kLeastNameWidth ? options.width - used : kLeastNameWidth,
                      options.full_names);
    for (auto& row : cells.rows) row.back() = names.of(row.back());
  };
  fit(tables.times);
  fit(tables.facts);
  const char *const bold = options.colour ? "\033[1m" : "", *const off = options.colour ? "\033[0m" : "";
  std::string out = "before     " + side_line(comparison.before, false) + "\n";
  out += "after      " + side_line(comparison.after, false) + "\n";
  if (!comparison.options.facts_only) out += "rule       " + rule_text(comparison) + "\n";
  if (const std::string total = total_text(comparison); !total.empty()) out += "GPU time   " + total + "\n";
  if (!tables.times.rows.empty()) out += "\n" + text_table(tables.times).render(bold, off);
  if (!tables.facts.rows.empty()) out += "\n" + text_table(tables.facts).render(bold, off);
  std::string footer;
  if (tables.left_out > 0) {
    footer += fmt::format("{} configuration{} without a change left out (--all shows them)\n", tables.left_out,
                          tables.left_out == 1 ? "" : "s");
  }
  for (const std::string& reason : reasons_of(comparison)) footer += reason + "\n";
  for (const std::string& note : comparison_notes(comparison)) footer += "note: " + note + "\n";
  if (!footer.empty()) out += "\n" + footer;
  return out + fmt::format("{}{}{}\n", options.colour ? colour_of(comparison.outcome) : "",
                           comparison_summary(comparison), off);
}

std::string render_markdown(const Comparison& comparison, const ComparisonOptions& options) {
  KernelNames names(60, options.full_names);
  const Tables tables = tables_of(comparison, options.all, [&](const std::string& name) { return names.of(name); });
  std::string out = "### gpuflight diff: " + comparison_summary(comparison) + "\n\n";
  out += "- before: " + side_line(comparison.before, true) + "\n";
  out += "- after: " + side_line(comparison.after, true) + "\n";
  if (!comparison.options.facts_only) out += "- rule: " + markdown_text(rule_text(comparison)) + "\n";
  if (const std::string total = total_text(comparison); !total.empty()) {
    out += "- GPU time: " + markdown_text(total) + "\n";
  }
  for (const std::string& reason : reasons_of(comparison)) out += "- " + markdown_text(reason) + "\n";
  for (const std::string& note : comparison_notes(comparison)) out += "- " + markdown_text(note) + "\n";
  if (!tables.times.rows.empty()) out += "\n" + markdown_table(tables.times);
  if (!tables.facts.rows.empty()) out += "\n" + markdown_table(tables.facts);
  if (tables.left_out > 0) out += fmt::format("\n{} configurations without a change left out.\n", tables.left_out);
  return out;
}

const std::vector<CiRule>& comparison_rules() {
  static const std::vector<CiRule> kRules = {
      {"kernel-time", "The time of a kernel, in recordings before and after a change"},
      {"kernel-facts", "Registers, shared memory, occupancy, launches and the like of a kernel"},
      {"kernel-set", "Kernels that were added or removed"},
      {"total-time", "GPU time of all kernels of a recording"}};
  return kRules;
}

std::vector<CiResult> comparison_results(const Comparison& comparison) {
  const auto path_of = [](const std::vector<analysis::Recording>& side) {
    return side.empty() || side.front().paths.empty() ? std::string("unknown") : side.front().paths.front();
  };
  std::vector<CiResult> out;
  for (const ComparedKernel& kernel : comparison.kernels) {
    CiResult result;
    const bool on_one_side = !kernel.before || !kernel.after;
    const bool by_time = kernel.failed_by.starts_with("slower") || kernel.outcome == Outcome::kUnsure;
    result.rule = on_one_side ? "kernel-set" : by_time ? "kernel-time" : "kernel-facts";
    result.subject = printable(without_signature(demangled(kernel.name)));
    const auto& key = (kernel.before ? kernel.before : kernel.after)->key;
    result.name = printable(demangled(kernel.name)) + " " + config_text(key);
    result.message = change_text(kernel);
    result.outcome = kernel.outcome;
    result.file = path_of(kernel.after ? comparison.after : comparison.before);
    out.push_back(std::move(result));
  }
  if ((comparison.options.fail_on & fail_bit(analysis::FailOn::kTotal)) != 0) {
    const TimeVerdict verdict = comparison.total.verdict;
    out.push_back({"total-time", "all kernels", "all kernels", total_text(comparison),
                   verdict == TimeVerdict::kSlower   ? Outcome::kFail
                   : verdict == TimeVerdict::kUnsure ? Outcome::kUnsure
                                                 : Outcome::kPass,
                   path_of(comparison.after)});
  }
  return out;
}

}  // namespace gpuflight::report
