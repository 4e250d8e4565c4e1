#include "report/findings_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "report/kernel_name.h"
#include "report/quantity.h"
#include "report/text_table.h"

namespace gpuflight::report {
namespace {

using analysis::AnalyzedLog;
using analysis::Analysis;
using analysis::rules::CostKind;
using analysis::rules::DeviceTotals;
using analysis::rules::EventRef;
using analysis::rules::Fact;
using analysis::rules::Finding;
using analysis::rules::Severity;
using analysis::rules::Unit;

constexpr std::size_t kIndent = 13;

// Of a damaged log sums of bytes may be beyond any.
std::uint64_t whole(double value) { return static_cast<std::uint64_t>(std::clamp(value, 0.0, 1e18)); }

std::string value_text(const Fact& fact, KernelNames& names) {
  switch (fact.unit) {
    case Unit::kCount: {
      const std::string number = count_text(whole(fact.value));
      return fact.text.empty() ? number : number + " " + fact.text + (fact.value == 1 ? "" : "s");
    }
    case Unit::kNs: return duration_text(fact.value);
    case Unit::kBytes: return bytes_text(whole(fact.value));
    case Unit::kRatio: return percent_text(fact.value, fact.value < 0.1 ? 1 : 0);
    case Unit::kNumber: return fmt::format("{:.3g}", fact.value);
    case Unit::kKernel: return fact.text.empty() ? "(unknown kernel)" : names.of(fact.text);
    case Unit::kText: return printable(fact.text);
  }
  return {};
}

// Broken between words; lines after the first stand under the first word.
std::string wrapped(const std::string& label, const std::string& words, std::size_t width) {
  std::string out = fmt::format("{:<{}}", label, kIndent);
  std::size_t column = kIndent;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    const std::string word = words.substr(at, end - at);
    const std::size_t length = display_width(word);
    if (column > kIndent && column + 1 + length > width) {
      out += "\n" + std::string(kIndent, ' ');
      column = kIndent;
    } else if (column > kIndent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
    at = end + 1;
  }
  return out + "\n";
}

struct Paint {
  bool on;
  const char* of(Severity severity) const {
    if (!on) return "";
    return severity == Severity::kCritical ? "\033[1;31m" : severity == Severity::kWarning ? "\033[33m" : "\033[36m";
  }
  const char* bold() const { return on ? "\033[1m" : ""; }
  const char* off() const { return on ? "\033[0m" : ""; }
};

std::string log_name(const AnalyzedLog& log) {
  if (log.session) {
    for (const auto& [name, value] : log.session->rank) {
      if (name == "RANK") return "rank " + printable(value);
    }
    const std::string program = log.session->program.substr(log.session->program.rfind('/') + 1);
    return fmt::format("{}.{}", printable(program), log.session->pid);
  }
  return printable(log.path);
}

// One row for each device of each log.
std::string log_table(const Analysis& analysis, const FindingsOptions& options) {
  TextTable table;
  const bool several = analysis.logs.size() > 1;
  for (const char* heading : {"dev", "span", "busy", "host wait", "kernel wait", "other", "works", "launches"}) {
    table.add_column(heading, Align::kRight);
  }
  if (several) table.add_column("begins", Align::kRight);
  table.add_column("log", Align::kLeft);
  std::int64_t earliest = 0;
  for (const AnalyzedLog& log : analysis.logs) earliest = std::min(earliest, log.offset_ns);
  for (const AnalyzedLog& log : analysis.logs) {
    std::vector<std::pair<std::string, DeviceTotals>> rows;
    for (const auto& [number, device] : log.totals.devices)
      rows.emplace_back(number < 0 ? "?" : std::to_string(number), device);
    if (rows.empty()) rows.emplace_back("-", DeviceTotals());
    for (const auto& [number, device] : rows) {
      const double span = static_cast<double>(std::max<std::int64_t>(device.span_ns(), 1));
      const auto part = [&](std::int64_t ns) { return percent_text(static_cast<double>(ns) / span, 1); };
      std::vector<std::string> cells = {number,
                                        duration_text(static_cast<double>(device.span_ns())),
                                        part(device.busy_ns),
                                        part(device.host_wait_ns),
                                        part(device.kernel_wait_ns),
                                        part(device.other_idle_ns),
                                        count_text(device.works),
                                        count_text(log.totals.launches)};
      if (device.works == 0) std::fill(cells.begin() + 1, cells.begin() + 6, "-");
      if (several) cells.push_back("+" + duration_text(static_cast<double>(log.offset_ns - earliest)));
      cells.push_back(log_name(log));
      table.add_row(std::move(cells));
    }
  }
  const Paint paint{options.colour};
  return table.render(paint.bold(), paint.off());
}

std::string place_text(const Analysis& analysis, const EventRef& ref) {
  const std::string file = ref.file < analysis.files.size() ? printable(analysis.files[ref.file]) : "?";
  return fmt::format("{}:{} (seq {}, at +{:.6f} s)", file, ref.line, ref.seq, static_cast<double>(ref.at_ns) / 1e9);
}

const char* cost_words(CostKind kind) {
  switch (kind) {
    case CostKind::kLost: return "lost";
    case CostKind::kBound: return "at most";
    case CostKind::kAtStake: return "at stake, how much of it can be won is not known:";
    case CostKind::kNone: break;
  }
  return "";
}

std::string finding_text(const Analysis& analysis, const Finding& finding, const FindingsOptions& options,
                         KernelNames& names) {
  const Paint paint{options.colour};
  const char* const severity = analysis::rules::kSeverityNames[static_cast<std::size_t>(finding.severity)];
  std::string out = fmt::format("{}{:<{}}{}{}{}{}", paint.of(finding.severity), severity, kIndent, paint.off(),
                                paint.bold(), finding.rule, paint.off());
  if (finding.device && *finding.device >= 0) out += fmt::format(", device {}", *finding.device);
  if (analysis.logs.size() > 1 && finding.log < analysis.logs.size()) {
    out += ", " + log_name(analysis.logs[finding.log]);
  }
  out += "\n" + wrapped("", filled_in(finding.message, finding.facts, names), options.width);
  const std::string how = filled_in(finding.cost_how, finding.facts, names);
  if (finding.cost_kind == CostKind::kNone) {
    out += wrapped("  costs", "no time that could be named" + (how.empty() ? "" : ": " + how), options.width);
  } else {
    out += wrapped("  costs", fmt::format("{} {} ({} of the time): {}", cost_words(finding.cost_kind),
                                          duration_text(static_cast<double>(finding.cost_ns)),
                                          percent_text(finding.cost_share, 1), how),
                   options.width);
  }
  out += wrapped("  do", filled_in(finding.remedy, finding.facts, names), options.width);
  for (std::size_t i = 0; i < finding.evidence.size(); ++i) {
    out += fmt::format("{:<{}}{}\n", i == 0 ? "  see" : "", kIndent, place_text(analysis, finding.evidence[i]));
  }
  if (finding.evidence_total > finding.evidence.size()) {
    out +=
        fmt::format("{:<{}}and {} more\n", "", kIndent, count_text(finding.evidence_total - finding.evidence.size()));
  }
  if (!finding.also.empty())
    out += wrapped("  explains", fmt::format("{}", fmt::join(finding.also, ", ")), options.width);
  const analysis::rules::RuleInfo* const rule = analysis::rules::find_rule(finding.rule);
  if (rule != nullptr) out += wrapped("  from", rule->source, options.width);
  return out;
}

// What keeps rules from seeing all there was.
std::string blind_spots(const Analysis& analysis) {
  std::string out;
  std::uint64_t untimed = 0, lost = 0, broken = 0, summaries = 0;
  for (const AnalyzedLog& log : analysis.logs) {
    if (log.totals.works == 0 && log.totals.calls > 0) ++untimed;
    if (log.totals.works > 0 && !log.totals.whole()) {
      out += fmt::format(
          "{} of {} kernels of {} have no GPU times: rules that need the whole timeline said nothing; record with "
          "--timing all\n",
          count_text(log.totals.untimed), count_text(log.totals.launches), log_name(log));
    }
    lost += log.lost;
    broken += log.broken_lines;
    summaries += log.summary_lines;
  }
  if (untimed > 0) {
    out += fmt::format("{} without GPU times: only rules over calls can say something; record with --timing all\n",
                       analysis.logs.size() == 1 ? std::string("the log is") : fmt::format("{} logs are", untimed));
  }
  if (summaries > 0)
    out += fmt::format("{} summary lines: launches in them have no times of their own\n", count_text(summaries));
  if (lost > 0) out += fmt::format("{} events were lost while recording\n", count_text(lost));
  if (broken > 0)
    out += fmt::format("{} lines could not be read ('gpuflight report' says which)\n", count_text(broken));
  return out;
}

}  // namespace

std::string filled_in(const std::string& words, const std::vector<Fact>& facts, KernelNames& names) {
  std::string out;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t open = words.find('{', at);
    const std::size_t close = open == std::string::npos ? open : words.find('}', open);
    if (close == std::string::npos) return out + words.substr(at);
    out += words.substr(at, open - at);
    const std::string key = words.substr(open + 1, close - open - 1);
    const auto fact = std::find_if(facts.begin(), facts.end(), [&](const Fact& f) { return f.key == key; });
    out += fact == facts.end() ? "{" + key + "}" : value_text(*fact, names);
    at = close + 1;
  }
  return out;
}

std::string findings_text(const Analysis& analysis, const FindingsOptions& options) {
  FindingsOptions narrow = options;
  narrow.width = std::max<std::size_t>(options.width, 40);
  KernelNames names(std::max<std::size_t>(narrow.width / 2, 30), options.full_names);
  std::string out = log_table(analysis, narrow) + "\n";
  for (const Finding& finding : analysis.findings) out += finding_text(analysis, finding, narrow, names) + "\n";
  out += blind_spots(analysis);
  const std::size_t n = analysis.findings.size();
  if (n == 0) {
    out += fmt::format("nothing found ({} rules)\n", options.rules);
  } else {
    std::array<std::size_t, 3> by{};
    for (const Finding& finding : analysis.findings) ++by[static_cast<std::size_t>(finding.severity)];
    out += fmt::format("{} finding{} ({} rules): {} critical, {} warning, {} info\n", n, n == 1 ? "" : "s",
                       options.rules, by[2], by[1], by[0]);
  }
  return out;
}

std::string rules_text(const std::vector<analysis::rules::RuleInfo>& rules, std::size_t width) {
  std::string out;
  width = std::max<std::size_t>(width, 40);
  for (const auto& rule : rules) {
    out += fmt::format("{}\n", rule.name);
    out += wrapped("  finds", rule.what, width);
    for (const auto& threshold : rule.thresholds) {
      out += wrapped("  set", fmt::format("{}.{}={:g}: {}", rule.name, threshold.name, threshold.value, threshold.what),
                     width);
    }
    out += wrapped("  from", rule.source, width) + "\n";
  }
  return out;
}

}  // namespace gpuflight::report
