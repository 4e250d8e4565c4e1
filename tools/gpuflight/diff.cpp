// gpuflight diff: two sides of recordings, kernel by kernel.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/kernel_comparison.h"
#include "command_line.h"
#include "failure.h"
#include "log_scan.h"
#include "report/comparison_report.h"
#include "result_format.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight diff before.ndjson after.ndjson                  # facts; a time needs three recordings a side\n"
    "  gpuflight diff before/ after/                              # all recordings of each folder\n"
    "  gpuflight diff a1.ndjson a2.ndjson a3.ndjson --vs b1.ndjson b2.ndjson b3.ndjson\n"
    "  gpuflight diff base/ --vs new/ --fail-on slower,occupancy,spill --format sarif -o diff.sarif\n";

// All sides together are kept; a side of many logs gets coarser percentiles, not more memory.
analysis::SummaryLimits limits_for(std::size_t logs) {
  analysis::SummaryLimits limits;
  limits.groups = std::max<std::size_t>(limits.groups / logs, 1000);
  limits.configs = std::max<std::size_t>(limits.configs / logs, 2000);
  limits.sketches.buckets = std::max<std::size_t>(limits.sketches.buckets / logs, 100'000);
  return limits;
}

struct Sides {
  std::vector<std::string> words, vs;
  std::vector<LogInput> before, after;

  void expand(std::vector<std::string>& remarks) {
    if (vs.empty()) {
      if (words.size() != 2) {
        throw UsageError("two sides are needed: 'diff BEFORE AFTER', or 'diff BEFORE... --vs AFTER...'", "diff");
      }
      vs.push_back(words.back());
      words.pop_back();
    }
    before = join_sessions(expand_logs(words, &remarks));
    after = join_sessions(expand_logs(vs, &remarks));
  }
};

std::vector<analysis::Recording> read(const std::vector<LogInput>& inputs, const analysis::SummaryLimits& limits,
                                      bool each_log, std::vector<std::string>& remarks) {
  std::vector<analysis::Recording> recordings;
  for (const LogInput& input : inputs) {
    analysis::LogSummary summary(analysis::GroupBy::kConfig, limits);
    for (std::string& remark : scan_input(input, summary, true)) remarks.push_back(std::move(remark));
    if (!summary.logs().empty()) recordings.push_back(recording_of(summary));
  }
  return each_log ? recordings : join_runs(std::move(recordings));
}

analysis::FailOnSet fail_set(const std::vector<std::string>& names, bool facts_only) {
  if (names.empty()) return fail_bit(facts_only ? analysis::FailOn::kFacts : analysis::FailOn::kSlower);
  analysis::FailOnSet set = 0;
  for (const std::string& name : names) set |= fail_bit(*analysis::fail_on(name));
  if ((set & fail_bit(analysis::FailOn::kNone)) != 0 && names.size() > 1) {
    throw UsageError("--fail-on none stands alone", "diff");
  }
  return set;
}

template <std::size_t N>
std::vector<std::string> names_of(const std::array<const char*, N>& names) {
  return {names.begin(), names.end()};
}

std::string rendered(const analysis::Comparison& comparison, const std::string& format,
                     const report::ComparisonOptions& options) {
  if (format == "json") return report::render_json(comparison);
  if (format == "markdown") return report::render_markdown(comparison, options);
  if (format == "junit") return report::render_junit("gpuflight diff", report::comparison_results(comparison));
  if (format == "sarif") return report::render_sarif(report::comparison_rules(), report::comparison_results(comparison));
  return report::render_text(comparison, options);
}

}  // namespace

int diff_verb(const Arguments& arguments) {
  Sides sides;
  ResultFormat format;
  analysis::CompareOptions options;
  report::ComparisonOptions shown;
  shown.width = terminal_width();
  std::vector<std::string> fail_on;
  std::string judge = "both", colour = "auto";
  double effect = 5, share = 1, alpha = 0;
  bool each_log = false;

  CLI::App app;
  describe(app, "diff", "[OPTIONS] BEFORE AFTER | BEFORE... --vs AFTER...",
           "Two sides of recordings of a program, before and after a change. Per kernel and configuration: which facts\n"
           "changed (launches, registers, shared memory, occupancy, limiter), and whether its time did: SAME, FASTER,\n"
           "SLOWER, or UNSURE. A verdict on time needs three recordings a side (docs/CLI.md says why).\n"
           "Exit code: 0 passed, 1 failed, 2 wrong command line, 3 unsure.",
           kExamples);
  app.add_option("LOG", sides.words, "Logs, flight files or folders of logs: before, and without --vs after")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--vs", sides.vs, "Those after the change")
      ->type_name("LOG")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--fail-on", fail_on,
                 "What fails, separated by commas: slower (as without the option), total, added, removed, none; facts "
                 "that are worse: launches, registers, shared, spill, occupancy, limiter, or all of these: facts")
      ->delimiter(',')
      ->check(CLI::IsMember(names_of(analysis::kFailOnNames)))
      ->type_name("WHAT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--facts", options.facts_only, "Compare facts only; --fail-on is then facts");
  app.add_option("--min-effect", effect, "Differences of time below do not matter, in percent")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--alpha", alpha, "Largest p of a verdict; without it 0.05, with three recordings a side 0.1")
      ->type_name("P")
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("--min-share", share, "Kernels with less of the GPU time fail by no time and leave none unsure, in percent")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--judge", judge, "A kernel's verdict is that of its median, p95 or both")
      ->check(CLI::IsMember(names_of(analysis::kJudgeNames)))
      ->type_name("BY")
      ->capture_default_str();
  app.add_flag("--force", options.force, "Compare times though device, clocks or driver differ");
  app.add_flag("--each-log", each_log, "Each log is a recording, also those that overlap in time");
  app.add_flag("--all", shown.all, "Kernels without a change too");
  format.add_options(app);
  app.add_flag("--full-names", shown.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, shown.width, "table");
  add_color_option(app, colour);
  if (const auto done = parse(app, arguments)) return *done;
  format.settle("diff");
  shown.colour = format.output == "-" && wants_colour(colour);
  options.rule.least_effect = effect / 100;
  if (app.count("--alpha") > 0) options.rule.alpha = alpha;
  options.least_share = share / 100;
  options.judge = static_cast<analysis::Judge>(
      std::find(analysis::kJudgeNames.begin(), analysis::kJudgeNames.end(), judge) - analysis::kJudgeNames.begin());
  options.fail_on = fail_set(fail_on, options.facts_only);

  std::vector<std::string> remarks;
  sides.expand(remarks);
  const analysis::SummaryLimits limits = limits_for(sides.before.size() + sides.after.size());
  auto before = read(sides.before, limits, each_log, remarks);
  auto after = read(sides.after, limits, each_log, remarks);
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  if (before.empty() || after.empty()) {
    throw Failure(fmt::format("nothing can be read of the side {}", before.empty() ? "before" : "after"));
  }
  const analysis::Comparison comparison = compare(std::move(before), std::move(after), options);
  write_result(format, rendered(comparison, format.format, shown));
  return exit_code_of(comparison.outcome);
}

}  // namespace gpuflight::cli
