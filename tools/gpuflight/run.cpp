// gpuflight run: starts a program with the recorder preloaded and says at the end what was recorded.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "child_process.h"
#include "command_line.h"
#include "config/option_table.h"
#include "elf_image.h"
#include "failure.h"
#include "library_path.h"
#include "process_end.h"
#include "run_aftermath.h"
#include "run_environment.h"
#include "run_manifest.h"
#include "run_summary.h"
#include "terminal.h"
#include "verbs.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight run -- ./my_program --its --arguments\n"
    "  gpuflight run --log 'logs/%e.%r.ndjson' -- python3 train.py\n"
    "  gpuflight run --mode blackbox --no-details -- ./server\n"
    "  mpirun -n 4 gpuflight run --quiet -- ./solver\n";

// A flag's words as CLI11 takes them; a switch also has its opposite.
std::string flag_words(const config::OptionRow& row) {
  if (row.type != config::OptionType::kBool) return row.flag;
  const std::string name(row.flag);
  return fmt::format("{}{{on}},--no-{}{{off}}", name, name.substr(2));
}

std::string help_text(const config::OptionRow& row) {
  return *row.default_text == '\0' ? std::string(row.help) : fmt::format("{} [{}]", row.help, row.default_text);
}

// Values of the table's options as given on the command line, one for each row; empty where not given.
void add_table_options(CLI::App& app, std::vector<std::string>& values) {
  const auto table = config::option_table();
  values.resize(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    CLI::Option* option =
        table[i].type == config::OptionType::kBool
            ? app.add_flag(flag_words(table[i]), values[i], help_text(table[i]))
            : app.add_option(table[i].flag, values[i], help_text(table[i]))->type_name(table[i].values);
    option->group(config::group_title(table[i].group));
  }
}

// Checks each value with the table itself and puts it into the environment.
void apply_options(const CLI::App& app, const std::vector<std::string>& values, RunEnvironment& environment) {
  const auto table = config::option_table();
  config::Options checked;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (app.get_option(table[i].flag)->count() == 0) continue;
    const config::SetResult result = config::set_option(checked, table[i].flag, values[i]);
    if (!result.ok) throw UsageError(result.message, "run");
    environment.set[table[i].variable] = values[i];
  }
}

// The hooks library, unless launches are to be seen through CUPTI alone.
std::string hooks_wanted(const CLI::App& app, const std::vector<std::string>& values, const std::string& library) {
  const auto table = config::option_table();
  config::Options options;
  const char* const variable = std::getenv("GPUFLIGHT_CAPTURE");
  if (variable != nullptr) config::set_option(options, "GPUFLIGHT_CAPTURE", variable);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (std::string_view(table[i].key) == "capture" && app.get_option(table[i].flag)->count() > 0) {
      config::set_option(options, table[i].flag, values[i]);
    }
  }
  return options.capture == config::Capture::kCupti ? std::string() : hooks_beside(library);
}

// As execvp searches; 127 and 126 as the shell says it.
std::string find_program(const std::string& name) {
  const auto refuse = [&](int error) -> Failure {
    return Failure(fmt::format("cannot run '{}': {}", name, strerror(error)),
                   error == ENOENT ? kExitNotFound : kExitNotExecutable);
  };
  const auto state = [](const std::string& path) {
    std::error_code error;
    if (!fs::exists(path, error)) return error && error.value() == EACCES ? EACCES : ENOENT;
    if (fs::is_directory(path, error)) return EISDIR;
    return ::access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
  };
  if (name.empty()) throw refuse(ENOENT);
  if (name.find('/') != std::string::npos) {
    if (const int error = state(name); error != 0) throw refuse(error);
    return name;
  }
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "/bin:/usr/bin" : variable;
  int first_error = ENOENT;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    const int error = state(candidate);
    if (error == 0) return candidate;
    if (error != ENOENT) first_error = EACCES;  // a folder of that name is no program either
    begin = end + 1;
  }
  throw refuse(first_error);
}

void print_environment(const RunEnvironment& environment) {
  for (const auto& [name, value] : environment.set) {
    std::string quoted;
    for (const char c : value) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    fmt::print("{}='{}'\n", name, quoted);
  }
}

}  // namespace

int run_verb(const Arguments& arguments) {
  std::vector<std::string> values;
  bool print_only = false;
  CLI::App app;
  describe(app, "run", "[OPTIONS] -- PROGRAM [ARGUMENTS]",
           "Runs a program and records every CUDA kernel launch of it and of the programs it starts. The program's\n"
           "input, output, signals and exit code are its own; what was recorded is said at the end, on stderr.",
           kExamples);
  add_table_options(app, values);
  app.add_flag("--print-env", print_only, "Print the variables that would be set, for use with another launcher");

  const Split split = split_program(app, arguments);
  const Arguments own(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(split.options_end));
  if (const auto done = parse(app, own)) return *done;
  const Arguments program(arguments.begin() + static_cast<std::ptrdiff_t>(split.program_begin), arguments.end());
  if (program.empty() && !print_only) throw UsageError("which program? gpuflight run [OPTIONS] -- PROGRAM", "run");

  const std::string library = require_library();
  std::string path;
  ProgramImage image;
  if (!program.empty()) {
    path = find_program(program.front());
    image = inspect_program(path);
  }
  RunEnvironment environment = plan_environment(library, image, hooks_wanted(app, values, library));
  apply_options(app, values, environment);
  if (print_only) {
    print_environment(environment);
    return kExitOk;
  }

  const RunManifest manifest;
  if (manifest.path().empty()) {
    environment.remarks.push_back("no temporary folder can be written, so this run ends without a summary");
  } else {
    environment.set[kManifestVariable] = manifest.path();
  }
  const char* quiet_variable = std::getenv("GPUFLIGHT_QUIET");
  config::Options asked;
  if (quiet_variable != nullptr) config::set_option(asked, "GPUFLIGHT_QUIET", quiet_variable);
  if (const auto given = environment.set.find("GPUFLIGHT_QUIET"); given != environment.set.end()) {
    config::set_option(asked, "GPUFLIGHT_QUIET", given->second);
  }
  if (!asked.quiet) {
    for (const std::string& remark : environment.remarks) say("gpuflight: {}\n", remark);
  }
  const OomCounters before = OomCounters::now();
  const ChildResult result = run_child(path, program, environment.merged());
  if (manifest.path().empty()) return result.exit_code();
  const event::ExitEvent end = describe_end(result, before, OomCounters::now());
  const std::vector<RecordedProcess> processes = manifest.processes();
  // Also when nothing is to be said: what is left in the flight files is to be had as lines of a log.
  const auto unfinished = look_after(processes, end, result.ended_monotonic_ns, result.start_ticks);
  if (!asked.quiet) {
    const std::string summary = run_summary(processes, end, unfinished, environment.remarks);
    say_text(summary);
  }
  return result.exit_code();
}

}  // namespace gpuflight::cli
