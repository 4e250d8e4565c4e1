// How every verb reads its command line: CLI11 behind one door, so that help, usage errors and exit codes are the same
// everywhere.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "verbs.h"

namespace gpuflight::cli {

// Sets up name, description, the words of the usage line behind the verb and the examples below the options.
void describe(CLI::App& app, const std::string& verb, const std::string& usage, const std::string& description,
              const std::string& examples);

// --color, for wants_colour(), and --width of the `text` or `table` that a verb prints.
void add_color_option(CLI::App& app, std::string& when);
void add_width_option(CLI::App& app, std::size_t& width, const char* of);

// Parses; returns an exit code when the verb has nothing more to do (--help was printed). Throws UsageError.
std::optional<int> parse(CLI::App& app, const Arguments& arguments);

// Position of the first word that is neither an option of `app` nor an option's value; a "--" ends the options.
// `program_begin` is where the program's own words begin.
struct Split {
  std::size_t options_end = 0;
  std::size_t program_begin = 0;
};
Split split_program(const CLI::App& app, const Arguments& arguments);

}  // namespace gpuflight::cli
