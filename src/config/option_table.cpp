#include "config/option_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "config/parse_value.h"

namespace gpuflight::config {
namespace {

constexpr std::uint64_t kKi = 1024;
constexpr std::uint64_t kMi = kKi * kKi;
constexpr std::uint64_t kGi = kKi * kMi;
constexpr std::uint64_t kHour = 3'600'000;  // ms
constexpr std::uint64_t kNoMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view kPrefix = "GPUFLIGHT_";
constexpr std::string_view kSample = "sample:";
constexpr std::uint64_t kMostSampled = 1'000'000;
constexpr std::string_view kReservedPrefixes[] = {"GPUFLIGHT_SIM_", "GPUFLIGHT_TEST_", "GPUFLIGHT_X_",
                                                  "GPUFLIGHT_RUN_"};
constexpr std::string_view kCommandLinesOwn = "GPUFLIGHT_LIB";  // which library `gpuflight run` preloads

constexpr OptionRow bool_row(const char* key, const char* variable, const char* flag, const char* api_field,
                             bool Options::*field, bool initial, OptionGroup group, const char* help) {
  return {key,  variable, flag, api_field, OptionType::kBool, field, initial ? "on" : "off", "on|off", 0, 1,
          true, 0,        group, help};
}

constexpr OptionRow string_row(const char* key, const char* variable, const char* flag, const char* api_field,
                               std::string Options::*field, const char* initial, const char* values,
                               OptionGroup group, const char* help) {
  const std::uint64_t least_length = *initial != 0 ? 1 : 0;
  return {key,  variable, flag, api_field, OptionType::kString, field, initial, values, least_length, 0,
          true, 0,        group, help};
}

using enum OptionType;
using enum OptionGroup;

constexpr std::array kTable = {
    bool_row("enabled", "GPUFLIGHT_ENABLED", "--enabled", nullptr, &Options::enabled, true, kWhat,
             "Record at all; off leaves the program as if nothing were loaded"),
    OptionRow{"mode", "GPUFLIGHT_MODE", "--mode", "mode", kEnum, &Options::mode, "stream", "stream|blackbox", 0, 0,
              false, 0, kWhat,
              "stream: every event goes to the log; blackbox: summaries, and the last events in the flight file"},
    bool_row("details", "GPUFLIGHT_DETAILS", "--details", "enableKernelDetails", &Options::details, true, kWhat,
             "Occupancy of each kernel with what limits it; off leaves that part and its cost out"),
    OptionRow{"capture", "GPUFLIGHT_CAPTURE", "--capture", nullptr, kEnum, &Options::capture, "auto",
              "auto|cupti|interpose", 0, 0, false, 0, kWhat,
              "How launches are seen: through CUPTI, or by the driver's entry points, which needs the hooks library "
              "preloaded and gives no GPU times; auto: CUPTI for GPU times where it can be had, else the entry points"},
    OptionRow{"timing", "GPUFLIGHT_TIMING", "--timing", nullptr, kString, &Options::timing, "all", "off|all|sample:N", 1,
              0, false, 0, kWhat,
              "all: when the GPU ran each kernel, copy and fill; sample:N: of each N-th launch of a configuration; off leaves "
              "the times null and their cost out"},
    OptionRow{"event_times", "GPUFLIGHT_EVENT_TIMES", "--event-times", nullptr, kString, &Options::event_times, "off",
              "off|N", 1, 0, false, 0, kWhat,
              "Where launches are seen by the driver's entry points: GPU time of each N-th launch of a configuration and a "
              "thread, by a pair of events around it; N grows where that costs more than 20 ns a launch"},
    OptionRow{"graphs", "GPUFLIGHT_GRAPHS", "--graphs", nullptr, kEnum, &Options::graphs, "auto", "auto|node|graph|off",
              0, 0, false, 0, kWhat,
              "With timing: each node of a CUDA graph, each graph as a whole, or neither; auto: node, in black-box mode off"},
    OptionRow{"call_times", "GPUFLIGHT_CALL_TIMES", "--call-times", nullptr, kEnum, &Options::call_times, "auto",
              "auto|all", 0, 0, false, 0, kWhat,
              "Of which launches the times are read; auto: where launches are seen by the driver's entry points, of one in "
              "eight of those that follow another of their thread within 10 us (the others have launch_error_ns and no "
              "call_ns), else of all"},
    bool_row("nvtx", "GPUFLIGHT_NVTX", "--nvtx", nullptr, &Options::nvtx, true, kWhat,
             "Ranges and marks of the program's NVTX, as scopes; off leaves its NVTX calls without a tool"),
    bool_row("edges", "GPUFLIGHT_EDGES", "--edges", nullptr, &Options::edges, true, kWhat,
             "With timing: event records and waits, by which streams depend on each other; off for programs that make very many"),
    string_row("include", "GPUFLIGHT_INCLUDE", "--include", nullptr, &Options::include, "", "GLOB[,GLOB...]", kWhat,
               "Record only programs whose name matches one of these"),
    string_row("exclude", "GPUFLIGHT_EXCLUDE", "--exclude", nullptr, &Options::exclude, "", "GLOB[,GLOB...]", kWhat,
               "Do not record programs whose name matches one of these, even if included"),

    string_row("log", "GPUFLIGHT_LOG", "--log", "logPath", &Options::log, "gpuflight/%e.%p.ndjson", "PATTERN", kWhere,
               "The log; %p is the process id, %h the host, %e the program, %r the rank, %q{VAR} a variable, %% a %"),
    string_row("flight", "GPUFLIGHT_FLIGHT", "--flight", "flightPath", &Options::flight, "", "PATTERN|memory", kWhere,
               "The flight file; unset: beside the log with the suffix .flight; memory: no file, nothing is left "
               "after a crash"),
    OptionRow{"log_max", "GPUFLIGHT_LOG_MAX", "--log-max", nullptr, kBytes, &Options::log_max_bytes, "2G",
              "SIZE", kMi, kNoMax, true, 0, kWhere,
              "The most the log may take on disk, rotated segments included; 0: no bound"},
    OptionRow{"log_segment", "GPUFLIGHT_LOG_SEGMENT", "--log-segment", nullptr, kBytes,
              &Options::log_segment_bytes, "64M", "SIZE", 64 * kKi, kNoMax, false, 0, kWhere,
              "Size at which the log is rotated"},
    OptionRow{"log_keep", "GPUFLIGHT_LOG_KEEP", "--log-keep", nullptr, kDuration, &Options::log_keep_ms, "60s",
              "TIME", 0, kNoMax, true, 1000, kWhere,
              "Time the bounded log must cover; where events come too fast for that it goes over to summaries"},
    bool_row("compress", "GPUFLIGHT_COMPRESS", "--compress", nullptr, &Options::compress, true, kWhere,
             "Compress rotated segments with zstd"),
    bool_row("mask_args", "GPUFLIGHT_MASK_ARGS", "--mask-args", nullptr, &Options::mask_args, false, kWhere,
             "Leave all program arguments out of the log; off masks only values that look like secrets"),

    bool_row("markers", "GPUFLIGHT_MARKERS", "--markers", nullptr, &Options::markers, true, kTrouble,
             "Mark streams now and then, so that after an error or in a hang it is known how far the GPU had come"),
    OptionRow{"hang_after", "GPUFLIGHT_HANG_AFTER", "--hang-after", nullptr, kDuration, &Options::hang_after_ms, "30s",
              "TIME", 100, 1000 * kHour, true, 1000, kTrouble,
              "Say that a stream hangs when nothing of its work was done for this long; 0: never"},
    string_row("hang_command", "GPUFLIGHT_HANG_COMMAND", "--hang-command", nullptr, &Options::hang_command, "",
               "COMMAND", kTrouble,
               "Shell command run when a stream hangs; it gets GPUFLIGHT_HANG_PID, _STREAM, _SECONDS and _KERNEL"),
    string_row("dump_when", "GPUFLIGHT_DUMP_WHEN", "--dump-when", nullptr, &Options::dump_when, "", "RULE", kTrouble,
               "blackbox: write the last events when a launch matches, as in \"call_ns > 1e6\"; fields call_ns, "
               "status, and, once GPU times are recorded, duration_ns, queue_ns"),
    OptionRow{"dump_events", "GPUFLIGHT_DUMP_EVENTS", "--dump-events", nullptr, kCount, &Options::dump_events,
              "100000", "N", 1, kNoMax, false, 0, kTrouble, "blackbox: how many of the last events a dump writes at most"},

    OptionRow{"budget", "GPUFLIGHT_BUDGET", "--budget", nullptr, kString, &Options::budget, "off", "off|PERCENT", 1, 0,
              false, 0, kCost,
              "The most the recorder may cost, as in 1% or 0.5%: over it it records less, first samples and no GPU times, "
              "then summaries; counts stay exact"},
    OptionRow{"pool", "GPUFLIGHT_POOL", "--pool", nullptr, kBytes, &Options::pool_bytes, "32M", "SIZE", kMi,
              4 * kGi, false, 0, kCost, "Size of the pool of ring chunks in the flight file"},
    OptionRow{"kernels_max", "GPUFLIGHT_KERNELS_MAX", "--kernels-max", nullptr, kCount, &Options::kernels_max,
              "16384", "N", 16, 1u << 24, false, 0, kCost, "Different kernels that can be told apart"},
    OptionRow{"configs_max", "GPUFLIGHT_CONFIGS_MAX", "--configs-max", nullptr, kCount, &Options::configs_max,
              "65536", "N", 16, 1u << 24, false, 0, kCost, "Different launch configurations that can be told apart"},
    OptionRow{"flush_ms", "GPUFLIGHT_FLUSH_MS", "--flush-ms", nullptr, kDuration, &Options::flush_ms, "50ms",
              "TIME", 1, 200, false, 1, kCost, "Longest time an event waits before its line is written"},
    OptionRow{"exit_timeout_ms", "GPUFLIGHT_EXIT_TIMEOUT_MS", "--exit-timeout-ms", nullptr, kDuration,
              &Options::exit_timeout_ms, "2s", "TIME", 0, 600'000, true, 1, kCost,
              "Longest time the program's exit waits for the last lines to be written"},

    string_row("cupti", "GPUFLIGHT_CUPTI", "--cupti", "cuptiPath", &Options::cupti, "", "PATH", kSurroundings,
               "The libcupti to use; unset: the one in the process, the toolkit's or pip's that fits the driver"),
    string_row("libcuda", "GPUFLIGHT_LIBCUDA", "--libcuda", nullptr, &Options::libcuda, "", "PATH",
               kSurroundings, "The libcuda to use; unset: libcuda.so.1"),
    bool_row("verbose", "GPUFLIGHT_VERBOSE", "--verbose", nullptr, &Options::verbose, false, kSurroundings,
             "Print the recorder's notices to stderr as well"),
    bool_row("quiet", "GPUFLIGHT_QUIET", "--quiet", nullptr, &Options::quiet, false, kSurroundings,
             "Print nothing at all"),
};

// The name of the given kind: the one that looks like `pattern`.
const char* name_like(const OptionRow& row, std::string_view pattern) {
  if (pattern.starts_with(kPrefix)) return row.variable;
  if (pattern.starts_with("--")) return row.flag;
  return row.key;
}

// What was typed, fit for one line of a terminal or log.
std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string shown;
  for (char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f || c == '"' ? '?' : c;
  }
  // A name cut in the middle of a UTF-8 character is cut before it.
  if (text.size() > kMost) {
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xc0) == 0x80) shown.pop_back();
    if (!shown.empty() && static_cast<unsigned char>(shown.back()) >= 0xc0) shown.pop_back();
    shown += "...";
  }
  return shown;
}

template <std::uint64_t Ki>
std::string scaled_text(std::uint64_t value, std::string_view units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && value != 0 && value % Ki == 0) {
    value /= Ki;
    ++unit;
  }
  std::string text = std::to_string(value);
  if (unit > 0) text += units[unit];
  return text;
}

std::string number_text(std::uint64_t value, OptionType type) {
  if (type == kBytes) return scaled_text<1024>(value, " KMGT");
  if (type == kDuration && value != 0 && value % kHour == 0) return std::to_string(value / kHour) + "h";
  if (type == kDuration && value != 0 && value % 1000 == 0) return std::to_string(value / 1000) + "s";
  if (type == kDuration) return std::to_string(value) + "ms";
  return std::to_string(value);
}

std::string expectation(const OptionRow& row) {
  std::string text;
  switch (row.type) {
    case kBool: return "on or off";
    case kEnum: {
      text = "one of ";
      for (const char* c = row.values; *c != 0; ++c) text += *c == '|' ? std::string(", ") : std::string(1, *c);
      return text;
    }
    case kString:
      if (std::holds_alternative<Timing Options::*>(row.field)) return "off, all or sample:N with N from 2 to 1000000";
      if (std::holds_alternative<Budget Options::*>(row.field)) {
        return "off or a percentage such as 1% or 0.5%, above 0, at most 100";
      }
      if (std::holds_alternative<EventTimes Options::*>(row.field)) return "off or N from 1 to 1000000";
      return std::string(row.min > 0 ? "a non-empty " : "a ") + row.values;
    case kCount: text = "a whole number"; break;
    case kBytes: text = "a size such as 4096, 64M or 2G"; break;
    case kDuration: text = "a time such as 50ms, 2s or 1m"; break;
  }
  if (row.min > 0 || row.max != kNoMax) {
    text += row.max == kNoMax ? ", at least " + number_text(row.min, row.type)
                              : " from " + number_text(row.min, row.type) + " to " + number_text(row.max, row.type);
  }
  if (row.zero_allowed && row.min > 0) text += ", or 0";
  return text;
}

std::optional<std::uint64_t> parse_number(const OptionRow& row, std::string_view text) {
  std::optional<std::uint64_t> value;
  if (row.type == kCount) value = parse_count(text);
  if (row.type == kBytes) value = parse_bytes(text);
  if (row.type == kDuration) value = parse_duration_ms(text, row.bare_unit);
  if (!value || (*value == 0 && row.zero_allowed)) return value;
  if (*value < row.min || *value > row.max) return std::nullopt;
  return value;
}

// Position of `text` among "a|b|c".
std::optional<std::size_t> choice_index(std::string_view choices, std::string_view text) {
  for (std::size_t index = 0;; ++index) {
    const std::size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) return index;
    if (bar == std::string_view::npos) return std::nullopt;
    choices.remove_prefix(bar + 1);
  }
}

struct Assign {
  Options& options;
  const OptionRow& row;
  std::string_view text;

  bool operator()(bool Options::*field) const {
    const auto value = parse_bool(text);
    if (value) options.*field = *value;
    return value.has_value();
  }
  bool operator()(std::uint64_t Options::*field) const {
    const auto value = parse_number(row, text);
    if (value) options.*field = *value;
    return value.has_value();
  }
  bool operator()(std::string Options::*field) const {
    if (text.size() < row.min || text.find('\0') != std::string_view::npos) return false;
    // There is always a flight file or its stand-in in memory: who says "off" is told so, not given a file "off".
    if (field == &Options::flight && parse_bool(text).has_value()) return false;
    options.*field = std::string(text);
    return true;
  }
  bool operator()(Timing Options::*field) const {
    if (const auto index = choice_index("off|all", text)) {
      (options.*field).every = static_cast<std::uint32_t>(*index);
      return true;
    }
    if (!text.starts_with(kSample)) return false;
    const auto every = parse_count(text.substr(kSample.size()));
    if (!every || *every < 2 || *every > kMostSampled) return false;
    (options.*field).every = static_cast<std::uint32_t>(*every);
    return true;
  }
  bool operator()(Budget Options::*field) const {
    if (text == "off") {
      options.*field = {};
      return true;
    }
    const auto percent = parse_float(text.ends_with('%') ? text.substr(0, text.size() - 1) : text);
    if (!percent || *percent <= 0 || *percent > 100) return false;
    (options.*field).percent = *percent;
    return true;
  }
  bool operator()(EventTimes Options::*field) const {
    if (choice_index("off", text)) {
      (options.*field).every = 0;
      return true;
    }
    const auto every = parse_count(text);
    if (!every || *every == 0 || *every > kMostSampled) return false;
    (options.*field).every = static_cast<std::uint32_t>(*every);
    return true;
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  bool operator()(Enum Options::*field) const {
    const auto index = choice_index(row.values, text);
    if (index) options.*field = static_cast<Enum>(*index);
    return index.has_value();
  }
};

struct Show {
  const Options& options;
  const OptionRow& row;

  std::string operator()(bool Options::*field) const { return options.*field ? "on" : "off"; }
  std::string operator()(std::uint64_t Options::*field) const { return number_text(options.*field, row.type); }
  std::string operator()(std::string Options::*field) const { return options.*field; }
  std::string operator()(Timing Options::*field) const {
    const std::uint32_t every = (options.*field).every;
    return every == 0 ? "off" : every == 1 ? "all" : std::string(kSample) + std::to_string(every);
  }
  std::string operator()(Budget Options::*field) const {
    if (!(options.*field).on()) return "off";
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), (options.*field).percent);
    return std::string(digits.data(), end.ptr) + "%";
  }
  std::string operator()(EventTimes Options::*field) const {
    const std::uint32_t every = (options.*field).every;
    return every == 0 ? "off" : std::to_string(every);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  std::string operator()(Enum Options::*field) const {
    std::string_view choices = row.values;
    for (auto index = static_cast<std::size_t>(options.*field); index > 0; --index) {
      choices.remove_prefix(choices.find('|') + 1);
    }
    return std::string(choices.substr(0, choices.find('|')));
  }
};

// Edit distance with adjacent swaps; names are short.
std::size_t distance(std::string_view a, std::string_view b) {
  constexpr std::size_t kMost = 64;
  a = a.substr(0, kMost);
  b = b.substr(0, kMost);
  std::array<std::array<std::uint8_t, kMost + 1>, 3> rows{};
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<std::uint8_t>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& now = rows[i % 3];
    const auto& before = rows[(i + 2) % 3];
    const auto& two_before = rows[(i + 1) % 3];
    now[0] = static_cast<std::uint8_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      int best = std::min(before[j] + 1, now[j - 1] + 1);
      best = std::min(best, before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = std::min(best, two_before[j - 2] + 1);
      now[j] = static_cast<std::uint8_t>(best);
    }
  }
  return rows[a.size() % 3][b.size()];
}

bool reserved(std::string_view name) {
  return name == kCommandLinesOwn ||
         std::ranges::any_of(kReservedPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void parse_entry(std::string_view name, std::string_view value, Options& options, Problems& problems) {
  const OptionRow* row = find_option(name);
  if (row == nullptr) {
    std::string line = printable(name) + " is not an option of gpuflight and is ignored";
    const std::string_view nearest = nearest_option_name(name);
    if (!nearest.empty()) line += "; did you mean " + std::string(nearest) + "?";
    problems.add(std::move(line));
    return;
  }
  SetResult result = set_option(options, name, value);
  if (!result.ok) {
    const char* initial = row->default_text[0] != 0 ? row->default_text : "none";
    problems.add(std::move(result.message) + "; the default is used: " + initial);
  }
}

}  // namespace

const char* group_title(OptionGroup group) noexcept {
  constexpr const char* kTitles[kOptionGroupCount] = {"What is recorded", "Where it goes", "When something goes wrong",
                                                      "What it may take", "Surroundings"};
  return kTitles[static_cast<std::size_t>(group)];
}

std::span<const OptionRow> option_table() noexcept { return kTable; }

const OptionRow* find_option(std::string_view name) noexcept {
  for (const OptionRow& row : kTable) {
    if (name == row.key || name == row.variable || name == row.flag) return &row;
    if (row.api_field != nullptr && name == row.api_field) return &row;
  }
  return nullptr;
}

std::string_view nearest_option_name(std::string_view name) noexcept {
  std::string_view nearest;
  // Up to a third of the letters that can differ; the common prefix does not count as likeness.
  const std::size_t prefix = name.starts_with(kPrefix) ? kPrefix.size() : name.starts_with("--") ? 2 : 0;
  std::size_t best = (name.size() - prefix + 2) / 3 + 1;
  for (const OptionRow& row : kTable) {
    const char* candidate = name_like(row, name);
    const std::size_t d = distance(name, candidate);
    if (d < best) {
      best = d;
      nearest = candidate;
    }
  }
  return nearest;
}

SetResult set_option(Options& options, std::string_view name, std::string_view text) noexcept try {
  const OptionRow* row = find_option(name);
  if (row == nullptr) {
    std::string message = printable(name) + " is not an option";
    const std::string_view nearest = nearest_option_name(name);
    if (!nearest.empty()) message += "; did you mean " + std::string(nearest) + "?";
    return {false, std::move(message)};
  }
  if (std::visit(Assign{options, *row, text}, row->field)) return {true, {}};
  return {false, std::string(name) + "=\"" + printable(text) + "\": expected " + expectation(*row)};
} catch (...) {
  return {false, {}};  // no memory for the value or for the message
}

std::string option_text(const Options& options, const OptionRow& row) noexcept try {
  return std::visit(Show{options, row}, row.field);
} catch (...) {
  return {};
}

void Problems::add(std::string line) noexcept {
  if (lines.size() < kMaxLines) {
    try {
      lines.push_back(std::move(line));
      return;
    } catch (...) {
    }
  }
  ++omitted;
}

void parse_environment(const char* const* environment, Options& options, Problems& problems) noexcept {
  if (environment == nullptr) return;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    const std::string_view value = text.substr(equals + 1);
    if (value.empty() || reserved(name)) continue;
    try {
      parse_entry(name, value, options, problems);
    } catch (...) {
      ++problems.omitted;
    }
  }
}

}  // namespace gpuflight::config
