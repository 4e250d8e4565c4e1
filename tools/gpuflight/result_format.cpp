#include "result_format.h"

#include "failure.h"
#include "trace_file.h"

namespace gpuflight::cli {

void ResultFormat::add_options(CLI::App& app) {
  app.add_option("--format", format, "text, json, markdown, junit or sarif")
      ->check(CLI::IsMember({"text", "json", "markdown", "junit", "sarif"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  app.add_flag("--json", json, "As --format json");
  app.add_option("-o,--output", output, "Where to; -: standard output")->type_name("FILE")->capture_default_str();
}

void ResultFormat::settle(const std::string& verb) {
  if (!json) return;
  if (format != "text" && format != "json") throw UsageError("--json and --format exclude each other", verb);
  format = "json";
}

void write_result(const ResultFormat& format, std::string_view text) {
  TraceFile file(format.output);
  file.write(text);
  file.close();
}

int exit_code_of(analysis::Outcome outcome) {
  return outcome == analysis::Outcome::kFail     ? kExitFailure
         : outcome == analysis::Outcome::kUnsure ? kExitUnsure
                                                 : kExitOk;
}

}  // namespace gpuflight::cli
