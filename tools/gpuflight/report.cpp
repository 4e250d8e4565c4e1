// gpuflight report: the table of kernels of one or more logs.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "command_line.h"
#include "failure.h"
#include "log_scan.h"
#include "report/kernel_report.h"
#include "report_page.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight report gpuflight/train.4711.ndjson\n"
    "  gpuflight report --by scope --sort mean gpuflight/train.4711.ndjson\n"
    "  gpuflight report --by config --sort occupancy --top 10 gpuflight/\n"
    "  gpuflight report --html run.html run.ndjson\n"
    "  gpuflight report --json run.ndjson | jq '.groups[] | select(.occupancy < 0.5) | .name'\n";

template <std::size_t N>
std::vector<std::string> names_of(const std::array<const char*, N>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

int report_verb(const Arguments& arguments) {
  std::vector<std::string> logs;
  std::string by = "kernel", sort = "share", colour = "auto", page;
  report::ReportOptions options;
  options.width = terminal_width();
  bool json = false, csv = false;

  CLI::App app;
  describe(app, "report", "[OPTIONS] LOG...",
           "Table of the kernels of one or more logs: how long they ran on the GPU, how often, at which occupancy,\n"
           "limited by what. With GPU times also how busy each device was, copies, calls by host time, memory, graphs.\n"
           "Rotated and compressed segments of a log are found by themselves.",
           kExamples);
  app.add_option("LOG", logs, "Logs, flight files, folders of logs, or - for standard input")->required();
  app.add_option("--by", by, "One row for each of: kernel, config, stream, thread, device, scope, graph")
      ->check(CLI::IsMember(names_of(analysis::kGroupByNames)))
      ->type_name("WHAT")
      ->capture_default_str();
  app.add_option("--sort", sort, "Order: share, count, time, mean, max, queue, call, occupancy, registers, shared, name")
      ->check(CLI::IsMember(names_of(report::kSortByNames)))
      ->type_name("BY")
      ->capture_default_str();
  app.add_option("--top", options.top, "Only the first N rows")->type_name("N");
  app.add_flag("--json", json, "As JSON, with every fact (docs/CLI.md)");
  app.add_flag("--csv", csv, "As CSV");
  auto* html = app.add_option("--html", page,
                              "A page for a browser that needs nothing else: findings, kernels, timeline, occupancy")
                   ->type_name("FILE");
  for (const char* other : {"--by", "--sort", "--top", "--json", "--csv"}) html->excludes(app.get_option(other));
  app.add_flag("--full-names", options.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, options.width, "table");
  add_color_option(app, colour);
  app.get_option("LOG")->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  if (const auto done = parse(app, arguments)) return *done;
  if (json && csv) throw UsageError("--json and --csv exclude each other", "report");

  if (!page.empty()) return write_report_page(page, logs);
  options.sort = *report::sort_by(sort);
  options.colour = wants_colour(colour);
  analysis::LogSummary summary(*analysis::group_by(by));
  std::vector<std::string> remarks;
  const std::vector<LogInput> inputs = join_sessions(expand_logs(logs, &remarks));
  for (const LogInput& input : inputs) {
    for (std::string& remark : scan_input(input, summary, true)) remarks.push_back(std::move(remark));
  }
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  if (summary.logs().empty()) return kExitFailure;
  const std::string text = json  ? render_json(summary, options)
                           : csv ? render_csv(summary, options)
                                 : render_text(summary, options);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace gpuflight::cli
