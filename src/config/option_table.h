// The one table of options: each row gives an option's GPUFLIGHT_* variable, `gpuflight run` flag, API field, type,
// default and help. Environment, command line, API, help and docs/OPTIONS.md all come from it.
//
// The functions here run inside other people's processes: no exception leaves them, no stream is written, and numbers
// read the same whatever the host's locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/options.h"

namespace gpuflight::config {

enum class OptionType : std::uint8_t { kBool, kCount, kBytes, kDuration, kEnum, kString };

enum class OptionGroup : std::uint8_t { kWhat, kWhere, kTrouble, kCost, kSurroundings };
inline constexpr std::size_t kOptionGroupCount = 5;
const char* group_title(OptionGroup group) noexcept;

using OptionField = std::variant<bool Options::*, std::uint64_t Options::*, std::string Options::*, Mode Options::*,
                                 Timing Options::*, EventTimes Options::*, Graphs Options::*, Capture Options::*,
                                 CallTimes Options::*, Budget Options::*>;

struct OptionRow {
  const char* key;           // "log_max": name in files and in set_option
  const char* variable;      // "GPUFLIGHT_LOG_MAX"
  const char* flag;          // "--log-max"; a bool may also be given as "--no-..."
  const char* api_field;     // field of gpuflight::Options; null: it has none, Options::set(key, value) is the way
  OptionType type;
  OptionField field;
  const char* default_text;  // parses to what Options holds when nothing is set
  const char* values;        // kEnum: "stream|blackbox"; else what a value looks like, for help
  std::uint64_t min;         // numbers: the least and the most; 0 may be allowed beside them. Text: its least length
  std::uint64_t max;
  bool zero_allowed;
  std::uint64_t bare_unit;   // kDuration: milliseconds that a number without unit counts for
  OptionGroup group;
  const char* help;          // one line
};

std::span<const OptionRow> option_table() noexcept;

// A row by any of its names; null where there is none.
const OptionRow* find_option(std::string_view name) noexcept;

// The known variable, flag or key (same kind as `name`) closest to a mistyped one; empty where none is close.
std::string_view nearest_option_name(std::string_view name) noexcept;

struct SetResult {
  bool ok = false;
  std::string message;  // empty when ok; else "NAME=\"VALUE\": expected ..."
};

// Sets one option from text. `name` is any of the option's names and is what the message speaks of. On failure the
// option keeps its value.
SetResult set_option(Options& options, std::string_view name, std::string_view text) noexcept;

// An option's present value as text that set_option reads back.
std::string option_text(const Options& options, const OptionRow& row) noexcept;

// What went wrong while reading the configuration, one clear line each; bounded, the rest is counted.
struct Problems {
  static constexpr std::size_t kMaxLines = 16;
  std::vector<std::string> lines;
  std::size_t omitted = 0;

  void add(std::string line) noexcept;
};

// Reads every GPUFLIGHT_* entry of an environment (as `environ`: "NAME=VALUE" strings, null ended; null is empty).
// Unknown names and malformed values become problems; the default stands. An empty value counts as unset. Names under
// GPUFLIGHT_SIM_ and GPUFLIGHT_TEST_ belong to the simulated device and to tests; GPUFLIGHT_X_ is what our own
// processes tell each other; GPUFLIGHT_LIB names the library that the command line preloads.
void parse_environment(const char* const* environment, Options& options, Problems& problems) noexcept;

}  // namespace gpuflight::config
