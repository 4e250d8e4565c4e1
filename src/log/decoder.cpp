#include "log/decoder.h"

#include <simdjson.h>

#include "event/schema_version.h"
#include "log/event_fields.h"
#include "log/line_source.h"

namespace gpuflight::log {
namespace {

constexpr std::size_t kDetailBytes = 200;
static_assert(LineSource::kPadding >= simdjson::SIMDJSON_PADDING);

// The type of a line in the form that the encoder writes; empty: another form, or none.
std::string_view leading_type(std::string_view line) {
  constexpr std::string_view kStart = R"({"type":")";
  if (!line.starts_with(kStart)) return {};
  line.remove_prefix(kStart.size());
  const std::size_t end = line.find_first_of("\"\\");
  return end == std::string_view::npos || line[end] == '\\' ? std::string_view{} : line.substr(0, end);
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

const char* trouble_name(Trouble trouble) {
  constexpr std::array<const char*, kTroubleCount> kNames = {
      "torn_line", "invalid_json",  "invalid_utf8", "not_an_event", "unknown_type",   "bad_value", "unknown_key",
      "long_line", "truncated",     "other_major",  "missed_segment", "unreadable_file"};
  const auto i = static_cast<std::size_t>(trouble);
  return i < kNames.size() ? kNames[i] : "";
}

std::uint64_t ReadStats::trouble_total() const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < troubles.size(); ++i) {
    if (static_cast<Trouble>(i) != Trouble::kUnknownKey) total += troubles[i].count;
  }
  return total;
}

struct LogReader::State {
  State(std::vector<std::string> files, const ReadOptions& reading)
      : options(reading),
        source(std::move(files), reading.follow, reading.max_line_bytes,
               [this](Trouble t, std::string_view detail) { report(t, detail, 1, false); }) {}

  void report(Trouble trouble, std::string_view detail, std::uint64_t count = 1, bool in_line = true) {
    ReadStats::Count& c = stats.troubles[static_cast<std::size_t>(trouble)];
    if (c.count == 0) {
      c.first_file = source.file();
      c.first_line = in_line ? source.line_number() : 0;
      c.first_detail = detail.substr(0, kDetailBytes);
    }
    c.count += count;
  }

  bool decode(std::string_view text, bool torn, LogEvent& event);
  void look_at_session(const SessionStartLine& start);
  bool wanted(LineType type) const { return (options.types & line_type_bit(type)) != 0; }

  ReadOptions options;
  ReadStats stats;
  LineSource source;
  simdjson::dom::parser parser;
  std::string_view line;
  std::uint32_t segment = 0;
};

// True: an event somebody asked for.
bool LogReader::State::decode(std::string_view text, bool torn, LogEvent& event) {
  if (!torn) {
    const std::string_view name = leading_type(text);
    const LineType type = name.empty() ? LineType::kNone : line_type(name);
    if (type != LineType::kNone && type != LineType::kSessionStart && !wanted(type)) {
      ++stats.filtered;
      return false;
    }
  }
  // The line source keeps room behind the line: no copy.
  simdjson::dom::element root;
  const auto error = parser.parse(text.data(), text.size(), false).get(root);
  if (error != simdjson::SUCCESS) {
    const Trouble trouble = torn                              ? Trouble::kTornLine
                            : error == simdjson::UTF8_ERROR ? Trouble::kInvalidUtf8
                                                              : Trouble::kInvalidJson;
    report(trouble, simdjson::error_message(error));
    return false;
  }
  simdjson::dom::object object;
  std::string_view name;
  if (root.get(object) != simdjson::SUCCESS || object["type"].get(name) != simdjson::SUCCESS) {
    report(Trouble::kNotAnEvent, text);
    return false;
  }
  const LineType type = line_type(name);
  if (type == LineType::kNone) {
    report(Trouble::kUnknownType, name);
    return false;
  }
  const FieldTrouble trouble = read_fields(type, object, event);
  if (trouble.unknown_keys != 0) report(Trouble::kUnknownKey, trouble.unknown_key, trouble.unknown_keys);
  if (!trouble.ok()) {
    report(Trouble::kBadValue, trouble.bad_key.empty() ? trouble.missing_key : trouble.bad_key);
    return false;
  }
  if (const auto* start = std::get_if<SessionStartLine>(&event)) look_at_session(*start);
  if (wanted(type)) return true;
  ++stats.filtered;
  return false;
}

void LogReader::State::look_at_session(const SessionStartLine& start) {
  if (start.schema_major != event::kLogSchemaMajor) report(Trouble::kOtherMajor, std::to_string(start.schema_major));
  if (options.follow && segment != 0 && start.segment > segment + 1) {
    report(Trouble::kMissedSegment, std::to_string(segment + 1), start.segment - segment - 1);
  }
  segment = start.segment;
}

LogReader::LogReader(std::string path, ReadOptions options)
    : LogReader(options.rotated && path != "-" ? log_segments(path) : std::vector<std::string>{path}, options) {}

LogReader::LogReader(std::vector<std::string> files, ReadOptions options)
    : state_(std::make_unique<State>(std::move(files), options)) {}

LogReader::~LogReader() = default;
LogReader::LogReader(LogReader&&) noexcept = default;

int LogReader::open() { return state_->source.open_first(); }

LogReader::Status LogReader::next(LogEvent& event) {
  State& s = *state_;
  for (;;) {
    std::string_view text;
    const LineSource::Got got = s.source.next(text);
    s.stats.bytes = s.source.bytes();
    s.stats.file_bytes = s.source.file_bytes();
    if (got == LineSource::Got::kWait) return Status::kWait;
    if (got == LineSource::Got::kEnd) return Status::kEnd;
    ++s.stats.lines;
    if (got == LineSource::Got::kLongLine) {
      s.report(Trouble::kLongLine, "");
    } else if (is_blank(text)) {
      ++s.stats.blank;
    } else if (s.decode(text, got == LineSource::Got::kTornLine, event)) {
      ++s.stats.events;
      s.line = text;
      return Status::kEvent;
    }
  }
}

std::string_view LogReader::line() const { return state_->line; }
std::uint64_t LogReader::line_number() const { return state_->source.line_number(); }
const std::string& LogReader::file() const { return state_->source.file(); }
const ReadStats& LogReader::stats() const { return state_->stats; }
std::uint64_t LogReader::total_file_bytes() const { return state_->source.total_file_bytes(); }

}  // namespace gpuflight::log
