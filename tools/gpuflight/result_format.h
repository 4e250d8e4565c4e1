// How `diff` and `check` give what they found: --format, --json and --output.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "analysis/outcome.h"

namespace gpuflight::cli {

inline constexpr int kExitUnsure = 3;  // neither passed nor failed

struct ResultFormat {
  std::string format = "text";  // text, json, markdown, junit, sarif
  std::string output = "-";
  bool json = false;

  void add_options(CLI::App& app);
  // After parsing; throws UsageError for two formats at once.
  void settle(const std::string& verb);
};

// To standard output or a file. Throws Failure.
void write_result(const ResultFormat& format, std::string_view text);

int exit_code_of(analysis::Outcome outcome);

}  // namespace gpuflight::cli
