// gpuflight recover: what a flight file has that its log has not, and how the program ended.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>

#include "analysis/flight_log.h"
#include "analysis/recovery.h"
#include "command_line.h"
#include "failure.h"
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
    "\nExit codes: 0 the recording ended in order or still runs, 3 a CUDA error, 4 the process stopped and nothing\n"
    "says why (or cannot be seen from here), 1 the file cannot be read, 2 usage.\n";

constexpr std::string_view kLogSuffix = ".ndjson", kFlightSuffix = ".flight";

std::string without(std::string name, std::string_view suffix) {
  if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

// NAME.recovered.ndjson beside the log, else beside the flight file; NAME.recovered.2.ndjson ... where that is taken.
// O_EXCL follows no symlink.
int create_beside(const analysis::RecoveryResult& result, std::string& path) {
  constexpr int kTries = 1000;
  const bool has_log = !result.log_path.empty() && result.log_path != "-";
  const std::string stem = has_log ? without(result.log_path, kLogSuffix) : without(result.flight_path, kFlightSuffix);
  for (int i = 1; i <= kTries; ++i) {
    path = fmt::format("{}.recovered{}{}", stem, i == 1 ? "" : fmt::format(".{}", i), kLogSuffix);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  throw Failure(fmt::format("{}: {}; --output names another place", path, std::strerror(errno)));
}

// Returns where the events went.
std::string write_events(analysis::Recovery& recovery, const std::string& output) {
  if (recovery.result().to_write() == 0) return {};
  if (output == "-") {
    recovery.write_lines([](std::string_view lines) {
      if (std::fwrite(lines.data(), 1, lines.size(), stdout) != lines.size()) throw Failure("cannot write the output");
    });
    return {};
  }
  std::string path = output;
  int fd = -1;
  if (output.empty()) {
    fd = create_beside(recovery.result(), path);
  } else {
    fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  try {
    recovery.write_lines([fd](std::string_view lines) { analysis::write_all(fd, lines); });
  } catch (const std::system_error& error) {
    close(fd);
    throw Failure(fmt::format("{}: {}", path, error.what()));
  }
  if (close(fd) != 0) throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
  return path;
}

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
  app.add_option("--last", options.last, "Launches shown per stream")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{1}, analysis::kMaxLast))
      ->capture_default_str();
  app.add_flag("--json", json, "The verdict as JSON (docs/RECOVERY.md)");
  app.add_flag("--full-names", how.full_names, "Names with arguments and parameters, however long");
  app.add_option("--width", how.width, "Columns of the text")->type_name("N")->check(CLI::Range(40, 10000));
  if (const auto done = parse(app, arguments)) return *done;

  analysis::Recovery recovery(flight, options);
  try {
    recovery.run();
  } catch (const std::runtime_error& error) {
    throw Failure(error.what());
  }
  if (!dry) how.written_to = write_events(recovery, output);
  const std::string text = json ? render_recovery_json(recovery, how) : render_recovery_text(recovery, how);
  std::FILE* const out = output == "-" && !dry ? stderr : stdout;
  std::fwrite(text.data(), 1, text.size(), out);
  return exit_code(recovery.result());
}

}  // namespace gpuflight::cli
