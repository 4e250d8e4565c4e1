// gpuflight check: logs held against a budget.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "analysis/budget_check.h"
#include "command_line.h"
#include "failure.h"
#include "log_scan.h"
#include "report/budget_report.h"
#include "report/kernel_name.h"
#include "result_format.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight check gpuflight/train.4711.ndjson --budget train.budget.json\n"
    "  gpuflight check gpuflight/ --budget train.budget.json --median      # three recordings of one program\n"
    "  gpuflight check run.ndjson --budget b.json --format junit -o check.xml\n"
    "A budget is JSON in which comments are allowed (all keys: docs/CLI.md):\n"
    "  { \"program\": {\"idle_percent\": 20, \"sync_calls\": 100, \"pageable_bytes\": 0},\n"
    "    \"kernels\": {\"reduce_*\": {\"p95_us\": 30, \"registers\": 40, \"limiter\": [\"warps\"]}},\n"
    "    \"scopes\":  {\"step\": {\"launches_per_pass\": 120, \"optional\": true}} }\n"
    "Run 'gpuflight check' on a log of a good run first: what is met stays in the budget.\n";

constexpr std::size_t kMostBudgetBytes = 4 << 20;

analysis::Budget read_budget(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(kMostBudgetBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    throw UsageError(fmt::format("cannot read the budget '{}': {}", path, strerror(errno != 0 ? errno : EIO)), "check");
  }
  if (text.size() > kMostBudgetBytes) throw UsageError(fmt::format("'{}' is too large for a budget", path), "check");
  try {
    return analysis::parse_budget(text, nearest_word);
  } catch (const analysis::BudgetError& error) {
    throw UsageError(fmt::format("budget '{}': {}", path, report::printable(error.what())), "check");
  }
}

std::vector<std::string> names_of(std::string_view mangled) {
  const std::string whole = report::demangled(mangled);
  return {std::string(mangled), whole, report::without_signature(whole)};
}

class Taker final : public EventTaker {
 public:
  explicit Taker(analysis::BudgetCheck& check) : check_(check) {}
  void begin_log(const std::string& path) override { check_.begin_log(path); }
  void add(const log::LogEvent& event) override { check_.add(event); }
  void end_log(const log::ReadStats& stats) override { check_.end_log(stats); }

 private:
  analysis::BudgetCheck& check_;
};

std::string rendered(const std::vector<analysis::BudgetFinding>& findings, const std::string& format,
                     const report::BudgetOptions& options) {
  if (format == "json") return report::render_json(findings, options);
  if (format == "markdown") return report::render_markdown(findings, options);
  if (format == "junit") return report::render_junit("gpuflight check", report::budget_results(findings, options));
  if (format == "sarif") return report::render_sarif(report::budget_rules(), report::budget_results(findings, options));
  return report::render_text(findings, options);
}

}  // namespace

int check_verb(const Arguments& arguments) {
  std::vector<std::string> logs;
  ResultFormat format;
  report::BudgetOptions options;
  options.width = terminal_width();
  std::string colour = "auto";

  CLI::App app;
  describe(app, "check", "[OPTIONS] LOG... --budget FILE",
           "Holds logs against a budget: times, registers, occupancy, limiters and spills of kernels, launches of scopes,\n"
           "idle time, synchronisations and pageable copies of the program. Each log must meet it.\n"
           "Exit code: 0 met, 1 broken, 2 wrong command line or budget, 3 unsure (the log does not say).",
           kExamples);
  app.add_option("LOG", logs, "Logs, flight files or folders of logs")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--budget", options.budget, "The budget")->required()->type_name("FILE");
  app.add_flag("--median", options.median, "The median of the logs must meet it, not each log");
  app.add_flag("--all", options.all, "Show what is met too");
  format.add_options(app);
  app.add_flag("--full-names", options.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, options.width, "table");
  add_color_option(app, colour);
  if (const auto done = parse(app, arguments)) return *done;
  format.settle("check");
  options.colour = format.output == "-" && wants_colour(colour);

  analysis::BudgetCheck check(read_budget(options.budget), names_of);
  Taker taker(check);
  std::vector<std::string> remarks;
  const std::vector<LogInput> inputs = join_sessions(expand_logs(logs, &remarks));
  for (const LogInput& input : inputs) {
    for (std::string& remark : scan_input(input, taker, true)) remarks.push_back(std::move(remark));
  }
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  if (check.logs() == 0) return kExitFailure;
  options.logs = check.logs();
  const auto over = options.median ? analysis::BudgetOver::kMedian : analysis::BudgetOver::kEach;
  const std::vector<analysis::BudgetFinding> findings = check.findings(over);
  write_result(format, rendered(findings, format.format, options));
  return exit_code_of(report::outcome_of(findings));
}

}  // namespace gpuflight::cli
