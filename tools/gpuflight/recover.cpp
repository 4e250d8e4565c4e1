// gpuflight recover: what a flight file has that its log has not, and how the program ended.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "analysis/recovery.h"
#include "command_line.h"
#include "failure.h"
#include "recovered_file.h"
#include "report/recovery_report.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr int kExitCudaError = 3;
constexpr int kExitStopped = 4;

constexpr const char* kExamples =
    "  gpuflight recover gpuflight/train.4711.flight\n"
    "  gpuflight recover --output - train.4711.flight | jq -r .name\n"
    "  gpuflight recover --json train.4711.flight | jq .ledger\n"
    "\nExit codes: 0 the recording ended in order or still runs, 3 a CUDA error, 4 the process ended without\n"
    "closing its recording (or cannot be seen from here), 1 the file cannot be read, 2 usage.\n";

int exit_code(const analysis::RecoveryResult& result) {
  switch (result.verdict) {
    case analysis::Verdict::kCudaError: return kExitCudaError;
    case analysis::Verdict::kStopped:
    case analysis::Verdict::kUnknown: return kExitStopped;
    default: return kExitOk;
  }
}

}  // namespace

int recover_verb(const Arguments& arguments) {
  std::string flight, output;
  analysis::RecoveryOptions options;
  report::RecoveryReportOptions how;
  how.width = terminal_width();
  bool json = false, dry = false;

  CLI::App app;
  describe(app, "recover", "[OPTIONS] FILE.flight",
           "The events that a flight file holds and its log does not, after a crash, a kill or a hang, and how the "
           "program ended.\nThe events go into NAME.recovered.ndjson beside the log as lines of a log; neither log nor "
           "flight file is touched.\nWorks on the file of a running process too.",
           kExamples);
  app.add_option("FILE.flight", flight, "The flight file")->required();
  app.add_option("--log", options.log, "Its log, if it is not where the flight file says")->type_name("LOG");
  app.add_option("--output,-o", output,
                 "Where to write the events; - is standard output, the verdict then goes to stderr")
      ->type_name("FILE");
  app.add_flag("--dry-run,-n", dry, "Write no events, only say what there is");
  app.add_flag("--history", options.history,
               "Also the events that the log holds in summaries only (always so in black-box mode)");
  app.add_option_function<std::uint64_t>("--events", [&](std::uint64_t n) { options.history_events = n; },
                                         "Black-box mode: write at most so many of the events that the log holds in "
                                         "summaries only, the latest [dump_events of the recording]")
      ->type_name("N");
  app.add_option("--last", options.last, "Launches shown per stream")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{1}, analysis::kMaxLast))
      ->capture_default_str();
  app.add_flag("--json", json, "The verdict as JSON (docs/RECOVERY.md)");
  app.add_flag("--full-names", how.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, how.width, "text");
  if (const auto done = parse(app, arguments)) return *done;

  analysis::Recovery recovery(flight, options);
  try {
    recovery.run();
  } catch (const std::runtime_error& error) {
    throw Failure(error.what());
  }
  if (!dry) how.written_to = write_recovered(recovery, output);
  const std::string text = json ? render_recovery_json(recovery, how) : render_recovery_text(recovery, how);
  if (output == "-" && !dry) {
    say_text(text);
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return exit_code(recovery.result());
}

}  // namespace gpuflight::cli
