#include "log_input.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <sys/stat.h>

#include <fmt/format.h>

#include "failure.h"
#include "flight/flight_reader.h"
#include "flight/layout.h"
#include "log/decoder.h"
#include "log_target.h"
#include "report/kernel_name.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

constexpr std::string_view kExtension = ".ndjson";

// One name for one file, however it was written. The file need not exist.
std::string identity(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : whole.string();
}

bool is_regular(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// "NAME.ndjson" for NAME.0001.ndjson or NAME.0001.ndjson.zst; empty for another name. A process id may look like a
// segment's number, so the leading zero or the live file decides.
std::string log_of_segment(const fs::path& path) {
  std::string stem = path.filename().string();
  if (stem.ends_with(".zst")) stem.resize(stem.size() - 4);
  if (!stem.ends_with(kExtension)) return {};
  stem.resize(stem.size() - kExtension.size());
  const std::size_t dot = stem.rfind('.');
  if (dot == std::string::npos || stem.size() - dot - 1 < 4) return {};
  const std::string number = stem.substr(dot + 1);
  if (number.find_first_not_of("0123456789") != std::string::npos) return {};
  const fs::path log = path.parent_path() / stem.substr(0, dot).append(kExtension);
  std::error_code error;
  return number[0] == '0' || fs::exists(log, error) ? log.string() : std::string();
}

// "NAME.ndjson" for NAME.recovered.ndjson, NAME.recovered.2.ndjson ...; empty for another name.
std::string log_of_recovered(std::string path) {
  constexpr std::string_view kMark = ".recovered";
  if (!path.ends_with(kExtension)) return {};
  path.resize(path.size() - kExtension.size());
  const std::size_t dot = path.find_last_not_of("0123456789");
  if (dot != std::string::npos && dot + 1 < path.size() && path[dot] == '.') path.resize(dot);
  if (!path.ends_with(kMark)) return {};
  path.resize(path.size() - kMark.size());
  return path.append(kExtension);
}

std::vector<std::string> logs_in(const fs::path& folder, std::vector<std::string>* notes) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.ends_with(kExtension) && !name.ends_with(".ndjson.zst")) continue;
    // A folder cannot be read, and a pipe would be waited for.
    if (!is_regular(it->path().string())) {
      const std::string shown = report::printable(it->path().string());
      if (notes != nullptr) notes->push_back(fmt::format("'{}' is not a regular file: passed over", shown));
    } else if (log_of_segment(it->path()).empty()) {
      found.push_back(it->path().string());
    }
  }
  if (error) throw Failure(fmt::format("cannot read the folder '{}': {}", folder.string(), error.message()));
  if (found.empty()) throw Failure(fmt::format("no log (*.ndjson) in '{}'", folder.string()));
  std::sort(found.begin(), found.end());
  return found;
}

// Each file once, by inode; of a link and its target the target, beside which the segments are.
std::vector<std::string> without_repetitions(const std::vector<std::string>& paths) {
  std::vector<std::string> once;
  std::map<std::pair<dev_t, ino_t>, std::size_t> seen;
  std::set<std::string> absent;
  for (const std::string& path : paths) {
    struct stat file;
    if (path == "-" || stat(path.c_str(), &file) != 0) {
      if (absent.insert(path).second) once.push_back(path);
      continue;
    }
    const auto [at, fresh] = seen.try_emplace({file.st_dev, file.st_ino}, once.size());
    std::error_code error;
    if (fresh) {
      once.push_back(path);
    } else if (fs::is_symlink(once[at->second], error)) {
      once[at->second] = path;
    }
  }
  return once;
}

std::unique_ptr<char[]> flight_header(const std::string& path) {
  if (!is_regular(path)) return nullptr;
  auto bytes = std::make_unique<char[]>(flight::kHeaderBytes);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.get(), flight::kHeaderBytes)) return nullptr;
  return std::memcmp(bytes.get(), flight::kMagic, sizeof(flight::kMagic)) == 0 ? std::move(bytes) : nullptr;
}

template <class T>
T field(const char* header, std::size_t offset) {
  T value;
  std::memcpy(&value, header + offset, sizeof(T));
  return value;
}

std::string text_field(const char* header, std::size_t offset, std::size_t size) {
  return {header + offset, ::strnlen(header + offset, size)};
}

struct SessionKey {
  std::string host;
  std::int64_t pid = 0, t0_unix_ns = 0;
  std::uint64_t start_ticks = 0;
  auto operator<=>(const SessionKey&) const = default;
};

constexpr std::size_t kHostBytes = sizeof(flight::Header::host) - 1;  // as the flight file has it

std::optional<SessionKey> session_of_flight(const std::string& path) {
  const auto header = flight_header(path);
  if (header == nullptr) return std::nullopt;
  using flight::Header;
  const char* const at = header.get();
  return SessionKey{text_field(at, offsetof(Header, host), kHostBytes), field<std::int64_t>(at, offsetof(Header, pid)),
                    field<std::int64_t>(at, offsetof(Header, t0_unix_ns)),
                    field<std::uint64_t>(at, offsetof(Header, process_start_ticks))};
}

std::vector<std::string> files_of(const LogInput& input) {
  return input.segments.empty() ? log::log_segments(input.path) : input.segments;
}

std::optional<SessionKey> session_of(const LogInput& input) {
  if (input.path == "-") return std::nullopt;
  if (input.path == input.flight) return session_of_flight(input.flight);
  const std::vector<std::string> files = files_of(input);
  if (files.empty() || !std::all_of(files.begin(), files.end(), is_regular)) return std::nullopt;
  log::LogReader reader(files, {});
  if (reader.open() != 0) return std::nullopt;
  log::LogEvent event;
  constexpr int kFirstLines = 16;  // each file begins with its session
  for (int i = 0; i < kFirstLines && reader.next(event) == log::LogReader::Status::kEvent; ++i) {
    if (const auto* start = std::get_if<log::SessionStartLine>(&event)) {
      const event::SessionStart& session = start->session;
      return SessionKey{session.host.substr(0, kHostBytes), session.pid, session.t0_unix_ns,
                        session.process_start_ticks};
    }
  }
  return std::nullopt;
}

// What the log has is the base, and what the others have besides is looked for: the fewer the better.
std::uintmax_t weight(const LogInput& input) {
  if (input.path == input.flight) return 0;
  std::uintmax_t sum = 1;
  for (const std::string& file : files_of(input)) {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(file, error);
    if (!error) sum += bytes;
  }
  return sum;
}

// `from` is of the same session as `to`.
void join(LogInput from, LogInput& to) {
  if (weight(from) > weight(to)) std::swap(from, to);
  if (to.flight.empty()) to.flight = from.flight;
  if (from.path != from.flight) {
    for (std::string& file : files_of(from)) to.copies.push_back(std::move(file));
  }
  for (std::string& file : from.recovered) to.recovered.push_back(std::move(file));
  for (std::string& file : from.copies) to.copies.push_back(std::move(file));
}

}  // namespace

std::string log_of_flight_file(const std::string& path) {
  const auto header = flight_header(path);
  if (header == nullptr) return {};
  const std::string named =
      text_field(header.get(), offsetof(flight::Header, log_path), sizeof(flight::Header::log_path));
  std::error_code error;
  if (named.empty() || fs::exists(named, error)) return named;
  const std::string beside = (fs::path(path).parent_path() / fs::path(named).filename()).string();
  return fs::exists(beside, error) ? beside : named;
}

bool is_being_written(const std::string& log) {
  if (!log.ends_with(kExtension)) return false;
  const auto session = session_of_flight(log.substr(0, log.size() - kExtension.size()) + ".flight");
  return session && process_lives(session->pid, session->start_ticks);
}

std::vector<LogInput> expand_logs(const std::vector<std::string>& words, std::vector<std::string>* notes) {
  std::vector<std::string> named;
  for (const std::string& word : words) {
    std::error_code error;
    if (word != "-" && fs::is_directory(word, error)) {
      for (std::string& log : logs_in(word, notes)) named.push_back(std::move(log));
    } else {
      named.push_back(word);
    }
  }
  struct Named {
    std::string path;
    std::string flight_of, segment_of, recovered_of;  // the log; at most one is not empty
  };
  std::vector<Named> files;
  std::set<std::string> recordings;  // whose log or flight file was named
  for (std::string& path : without_repetitions(named)) {
    Named file{std::move(path), {}, {}, {}};
    if (file.path != "-") {
      file.flight_of = log_of_flight_file(file.path);
      if (file.flight_of.empty()) file.segment_of = log_of_segment(file.path);
      if (file.flight_of.empty() && file.segment_of.empty()) file.recovered_of = log_of_recovered(file.path);
    }
    if (file.segment_of.empty() && file.recovered_of.empty()) {
      recordings.insert(identity(file.flight_of.empty() ? file.path : file.flight_of));
    }
    files.push_back(std::move(file));
  }
  std::vector<LogInput> inputs;
  std::map<std::string, std::size_t> by_log;
  const auto input_of = [&](const std::string& log) -> LogInput& {
    const auto [at, fresh] = by_log.try_emplace(identity(log), inputs.size());
    if (fresh) inputs.emplace_back();
    return inputs[at->second];
  };
  for (const Named& file : files) {
    if (!file.recovered_of.empty() && recordings.contains(identity(file.recovered_of))) {
      input_of(file.recovered_of).recovered.push_back(file.path);
    } else if (!file.flight_of.empty()) {
      LogInput& input = input_of(file.flight_of);
      if (input.flight.empty()) input.flight = file.path;
      if (input.path.empty()) input.path = file.path;
    } else if (!file.segment_of.empty()) {
      if (recordings.contains(identity(file.segment_of))) continue;  // read with its log
      // Without the leading zero it may be a log of its own; what is inside tells.
      const bool sure = file.path.find(".0", file.segment_of.size() - kExtension.size()) != std::string::npos;
      LogInput& input = input_of(sure ? file.segment_of : file.path);
      if (!sure) {
        input.path = file.path;
        continue;
      }
      input.segments.push_back(file.path);
      if (input.path.empty()) input.path = file.path;
    } else {
      input_of(file.path).path = file.path;
    }
  }
  for (LogInput& input : inputs) {
    std::sort(input.segments.begin(), input.segments.end());
    std::erase_if(input.segments, [&](const std::string& file) {  // compressed meanwhile
      return std::binary_search(input.segments.begin(), input.segments.end(), file + ".zst");
    });
  }
  return inputs;
}

std::vector<LogInput> join_sessions(std::vector<LogInput> inputs) {
  if (inputs.size() < 2) return inputs;
  std::vector<LogInput> joined;
  std::map<SessionKey, std::size_t> by_session;
  for (LogInput& input : inputs) {
    const auto session = session_of(input);
    if (session) {
      const auto [at, fresh] = by_session.try_emplace(*session, joined.size());
      if (!fresh) {
        join(std::move(input), joined[at->second]);
        continue;
      }
    }
    joined.push_back(std::move(input));
  }
  return joined;
}

}  // namespace gpuflight::cli
