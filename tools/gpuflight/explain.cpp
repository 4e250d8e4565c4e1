// gpuflight explain: what limits each kernel, what to change, what it would bring.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "command_line.h"
#include "failure.h"
#include "kernel_choice.h"
#include "report/explain_report.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight explain gpuflight/train.4711.ndjson\n"
    "  gpuflight explain gpuflight/train.4711.ndjson block_reduce\n"
    "  gpuflight explain --all gpuflight/ --kernel '*reduce*'\n"
    "  gpuflight explain --json run.ndjson | jq '.kernels[].advice[] | select(.gains)'\n";

}  // namespace

int explain_verb(const Arguments& arguments) {
  KernelChoice choice("explain");
  std::string colour = "auto";
  report::ExplainOptions options;
  options.width = terminal_width();
  bool json = false;

  CLI::App app;
  describe(app, "explain", "[OPTIONS] LOG... [KERNEL]",
           "For each kernel worth it: what limits its occupancy, its waves, spills and launches, and the smallest\n"
           "changes that gain a block on an SM, with what they would bring and where the rule comes from.",
           kExamples);
  choice.add_options(app);
  app.add_flag("--json", json, "As JSON, with every number (docs/CLI.md)");
  app.add_flag("--full-names", options.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, options.width, "text");
  add_color_option(app, colour);
  if (const auto done = parse(app, arguments)) return *done;
  options.colour = wants_colour(colour);

  analysis::KernelStudy study;
  if (!choice.scan(study)) return kExitFailure;
  report::ExplainedKernels explained;
  explained.by_gpu_time = study.by_gpu_time();
  for (const analysis::StudiedConfig& config : choice.chosen(study, &explained.left_out, &explained.left_out_share)) {
    explained.kernels.push_back(analysis::explain(config));
  }
  const std::string text = json ? report::explain_json(explained, study.summary())
                                : report::explain_text(explained, study.summary(), options);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace gpuflight::cli
