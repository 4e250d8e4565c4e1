// gpuflight analyze: what in the timeline costs time, by rules.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "analysis/analyzer.h"
#include "command_line.h"
#include "failure.h"
#include "log_scan.h"
#include "report/findings_report.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

using analysis::rules::ChosenRule;

constexpr const char* kExamples =
    "  gpuflight analyze gpuflight/train.4711.ndjson\n"
    "  gpuflight analyze --skip low_occupancy --set gpu_gaps.gap_ms=50 gpuflight/train.4711.ndjson\n"
    "  gpuflight analyze --fail-on critical gpuflight/                 # all ranks of a run; exit code 1 if any\n"
    "  gpuflight analyze --list-rules\n"
    "  gpuflight analyze --json run.ndjson | jq '.findings[] | {rule, cost_ns}'\n";

class Taker final : public EventTaker {
 public:
  explicit Taker(analysis::Analyzer& analyzer) : analyzer_(analyzer) {}
  void begin_log(const std::string& path) override { analyzer_.begin_log(path); }
  void at(const std::string& file, std::uint64_t line) override { analyzer_.at(file, line); }
  void add(const log::LogEvent& event) override { analyzer_.add(event); }
  void end_log(const log::ReadStats& stats) override { analyzer_.end_log(stats); }

 private:
  analysis::Analyzer& analyzer_;
};

[[noreturn]] void unknown_rule(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& rule : analysis::rules::all_rules()) known.emplace_back(rule.name);
  const std::string near = nearest_word(name, known);
  throw UsageError(fmt::format("there is no rule '{}'{}; --list-rules shows all", name,
                               near.empty() ? "" : ", did you mean '" + near + "'?"),
                   "analyze");
}

bool named(const std::vector<std::string>& names, const char* rule) {
  return std::find(names.begin(), names.end(), rule) != names.end();
}

// "rule.threshold=value"
void set_threshold(std::vector<ChosenRule>& rules, const std::string& word) {
  const std::size_t dot = word.find('.'), equals = word.find('=');
  if (dot == std::string::npos || equals == std::string::npos || dot > equals) {
    throw UsageError(fmt::format("--set {}: it must be RULE.THRESHOLD=VALUE", word), "analyze");
  }
  const std::string rule = word.substr(0, dot), threshold = word.substr(dot + 1, equals - dot - 1);
  double value = 0;
  try {
    std::size_t used = 0;
    const std::string text = word.substr(equals + 1);
    value = std::stod(text, &used);
    if (used != text.size() || !std::isfinite(value) || value < 0 || value > 1e15) throw std::invalid_argument(text);
  } catch (const std::exception&) {
    throw UsageError(fmt::format("--set {}: the value must be a number, 0 or more", word), "analyze");
  }
  if (analysis::rules::find_rule(rule) == nullptr) unknown_rule(rule);
  for (ChosenRule& chosen : rules) {
    if (rule != chosen.info->name || chosen.settings.set(threshold, value)) continue;
    std::vector<const char*> known;
    for (const auto& t : chosen.info->thresholds) known.push_back(t.name);
    throw UsageError(fmt::format("--set {}: {} has {}", word, rule, fmt::join(known, ", ")), "analyze");
  }
}

std::vector<ChosenRule> choose(const std::vector<std::string>& only, const std::vector<std::string>& skip,
                               const std::vector<std::string>& settings) {
  for (const auto* names : {&only, &skip}) {
    for (const std::string& name : *names) {
      if (analysis::rules::find_rule(name) == nullptr) unknown_rule(name);
    }
  }
  std::vector<ChosenRule> rules = analysis::rules::default_rules();
  for (const std::string& word : settings) set_threshold(rules, word);
  std::erase_if(rules, [&](const ChosenRule& rule) {
    return (!only.empty() && !named(only, rule.info->name)) || named(skip, rule.info->name);
  });
  return rules;
}

}  // namespace

int analyze_verb(const Arguments& arguments) {
  std::vector<std::string> logs, only, skip, settings;
  std::string colour = "auto", fail_on = "never";
  report::FindingsOptions options;
  options.width = terminal_width();
  bool json = false, list = false;

  CLI::App app;
  describe(app, "analyze", "[OPTIONS] LOG...",
           "Rules over the timeline of one or more logs: what costs time, how much, where it is seen, what to do.\n"
           "Several logs (ranks) are laid on one clock and compared. GPU times are needed for most rules\n"
           "(gpuflight run --timing all).",
           kExamples);
  app.add_option("LOG", logs, "Logs, flight files, folders of logs, or - for standard input");
  app.add_option("--rules", only, "Only these rules")->delimiter(',')->allow_extra_args(false)->type_name("A,B");
  app.add_option("--skip", skip, "Without these rules")->delimiter(',')->allow_extra_args(false)->type_name("A,B");
  app.add_option("--set", settings, "A threshold; may be given several times")
      ->type_name("RULE.THRESHOLD=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app.add_flag("--list-rules", list, "Every rule with its thresholds and where it is from");
  app.add_option("--fail-on", fail_on, "Exit code 1 from this severity on: info, warning, critical, never")
      ->check(CLI::IsMember({"info", "warning", "critical", "never"}))
      ->type_name("SEVERITY")
      ->capture_default_str();
  app.add_flag("--json", json, "As JSON, with every fact (docs/CLI.md)");
  app.add_flag("--full-names", options.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, options.width, "text");
  add_color_option(app, colour);
  if (const auto done = parse(app, arguments)) return *done;

  const auto print = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); };
  if (list) {
    const auto& rules = analysis::rules::all_rules();
    print(json ? report::rules_json(rules) : report::rules_text(rules, options.width));
    return kExitOk;
  }
  if (logs.empty()) throw UsageError("LOG is required", "analyze");
  std::vector<ChosenRule> rules = choose(only, skip, settings);
  if (rules.empty()) throw UsageError("no rule is left", "analyze");
  options.rules = rules.size();
  options.colour = wants_colour(colour);

  analysis::Analyzer analyzer(std::move(rules));
  Taker taker(analyzer);
  std::vector<std::string> remarks;
  const std::vector<LogInput> inputs = join_sessions(expand_logs(logs, &remarks));
  for (const LogInput& input : inputs) {
    for (std::string& remark : scan_input(input, taker, true)) remarks.push_back(std::move(remark));
  }
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  const analysis::Analysis found = analyzer.finish();
  if (found.logs.empty()) return kExitFailure;
  print(json ? findings_json(found, options) : findings_text(found, options));
  for (std::size_t severity = 0; severity < analysis::rules::kSeverityNames.size(); ++severity) {
    if (fail_on != analysis::rules::kSeverityNames[severity]) continue;
    const bool fails = std::any_of(found.findings.begin(), found.findings.end(), [&](const auto& finding) {
      return static_cast<std::size_t>(finding.severity) >= severity;
    });
    if (fails) return kExitFailure;
  }
  return kExitOk;
}

}  // namespace gpuflight::cli
