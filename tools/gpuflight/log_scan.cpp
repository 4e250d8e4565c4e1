#include "log_scan.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "failure.h"
#include "log/decoder.h"
#include "log_target.h"
#include "recovered_events.h"
#include "report/quantity.h"
#include "terminal.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLinesBetweenLooks = 4096;

// One line on stderr that replaces itself, from the third second on and on a terminal only.
class Progress {
 public:
  Progress(bool wanted, std::uint64_t total) : wanted_(wanted && stderr_is_terminal()), total_(total) {}
  ~Progress() {
    if (shown_) say("\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::uint64_t done) {
    const Clock::time_point now = Clock::now();
    if (!wanted_ || now - begin_ < std::chrono::seconds(2) || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    shown_ = true;
    if (total_ > 0) {
      say("\rreading: {:3.0f}% of {}\033[K",
                 100.0 * static_cast<double>(std::min(done, total_)) / static_cast<double>(total_),
                 report::bytes_text(total_));
    } else {
      say("\rreading: {}\033[K", report::bytes_text(done));
    }
  }

 private:
  bool wanted_;
  std::uint64_t total_;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now(), last_{};
};

// NAME.0001.ndjson or NAME.0001.ndjson.zst beside NAME.ndjson. A process id may look like a segment's number, so the
// leading zero or the live file decides.
bool is_closed_segment(const fs::path& path) {
  std::string stem = path.filename().string();
  if (stem.ends_with(".zst")) stem.resize(stem.size() - 4);
  if (!stem.ends_with(".ndjson")) return false;
  stem.resize(stem.size() - 7);
  const std::size_t dot = stem.rfind('.');
  if (dot == std::string::npos || stem.size() - dot - 1 < 4) return false;
  const std::string_view number = std::string_view(stem).substr(dot + 1);
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return false;
  std::error_code error;
  return number[0] == '0' || fs::exists(path.parent_path() / (stem.substr(0, dot) + ".ndjson"), error);
}

std::vector<std::string> logs_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool log = name.ends_with(".ndjson") || name.ends_with(".ndjson.zst");
    if (log && !is_closed_segment(it->path())) found.push_back(it->path().string());
  }
  if (error) throw Failure(fmt::format("cannot read the folder '{}': {}", folder.string(), error.message()));
  if (found.empty()) throw Failure(fmt::format("no log (*.ndjson) in '{}'", folder.string()));
  std::sort(found.begin(), found.end());
  return found;
}

// "NAME.ndjson" for NAME.recovered.ndjson, NAME.recovered.2.ndjson ...; empty for another name.
std::string log_of_recovered(std::string path) {
  constexpr std::string_view kEnd = ".ndjson", kMark = ".recovered";
  if (!path.ends_with(kEnd)) return {};
  path.resize(path.size() - kEnd.size());
  const std::size_t dot = path.find_last_not_of("0123456789");
  if (dot != std::string::npos && dot + 1 < path.size() && path[dot] == '.') path.resize(dot);
  if (!path.ends_with(kMark)) return {};
  path.resize(path.size() - kMark.size());
  return path.append(kEnd);
}

std::vector<LogInput> with_recovered(const std::vector<std::string>& logs) {
  std::vector<LogInput> inputs;
  const std::set<std::string> given(logs.begin(), logs.end());
  std::map<std::string, std::size_t> by_path;
  for (const std::string& log : logs) {
    if (given.contains(log_of_recovered(log))) continue;
    by_path.try_emplace(log, inputs.size());
    inputs.push_back({log, {}});
  }
  for (const std::string& log : logs) {
    const auto its = by_path.find(log_of_recovered(log));
    if (its != by_path.end()) inputs[its->second].recovered.push_back(log);
  }
  return inputs;
}

void add_stats(log::ReadStats& to, const log::ReadStats& more) {
  to.lines += more.lines;
  to.bytes += more.bytes;
  to.file_bytes += more.file_bytes;
  for (std::size_t i = 0; i < to.troubles.size(); ++i) {
    if (to.troubles[i].count == 0) {
      to.troubles[i] = more.troubles[i];
    } else {
      to.troubles[i].count += more.troubles[i].count;
    }
  }
}

// False: it is not of the recording that the log is of, and nothing of it was added.
bool scan_recovered(const std::string& file, RecoveredEvents& rest, analysis::LogSummary& summary,
                    log::ReadStats& stats) {
  log::LogReader reader(std::vector<std::string>{file}, {});
  if (reader.open() != 0) return true;
  const auto& ours = summary.logs().back().start;
  bool same = false;
  for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) {
    if (const auto* start = std::get_if<log::SessionStartLine>(&event)) {
      same = ours && start->session.t0_unix_ns == ours->t0_unix_ns && start->session.pid == ours->pid;
      if (!same) return false;
    }
    if (same && (!RecoveredEvents::is_event(event) || rest.take(event))) summary.add(event);
  }
  if (same) add_stats(stats, reader.stats());
  return same;
}

bool scan(const std::string& path, log::LogReader& reader, analysis::LogSummary& summary, Clock::time_point deadline,
          bool progress) {
  if (const int error = reader.open(); error != 0) {
    throw Failure(fmt::format("cannot read '{}': {}", path, strerror(error)));
  }
  summary.begin_log(path);
  Progress display(progress, reader.total_file_bytes());
  log::LogEvent event;
  bool whole = true;
  for (std::uint64_t lines = 1; reader.next(event) == log::LogReader::Status::kEvent; ++lines) {
    summary.add(event);
    if (lines % kLinesBetweenLooks != 0) continue;
    display.show(reader.stats().file_bytes);
    if (Clock::now() > deadline) {
      whole = false;
      break;
    }
  }
  summary.end_log(reader.stats());
  return whole;
}

}  // namespace

std::vector<LogInput> expand_logs(const std::vector<std::string>& words) {
  std::vector<std::string> logs;
  for (const std::string& word : words) {
    std::error_code error;
    if (word != "-" && fs::is_directory(word, error)) {
      for (std::string& log : logs_in(word)) logs.push_back(std::move(log));
    } else {
      logs.push_back(word);
    }
  }
  return with_recovered(logs);
}

bool scan_log(const std::string& path, analysis::LogSummary& summary, Clock::time_point deadline, bool progress) {
  const auto joined = open_flight_log(path);
  log::LogReader reader = joined ? log::LogReader(joined->files(), {}) : log::LogReader(path);
  return scan(path, reader, summary, deadline, progress);
}

void scan_input(const LogInput& input, analysis::LogSummary& summary, bool progress) {
  if (input.recovered.empty()) {
    scan_log(input.path, summary, Clock::time_point::max(), progress);
    return;
  }
  RecoveredEvents rest(input.recovered);
  log::LogReader reader(input.path);
  if (const int error = reader.open(); error != 0) {
    throw Failure(fmt::format("cannot read '{}': {}", input.path, strerror(error)));
  }
  summary.begin_log(input.path);
  {
    Progress display(progress, reader.total_file_bytes());
    log::LogEvent event;
    for (std::uint64_t lines = 1; reader.next(event) == log::LogReader::Status::kEvent; ++lines) {
      rest.drop(event);
      summary.add(event);
      if (lines % kLinesBetweenLooks == 0) display.show(reader.stats().file_bytes);
    }
  }
  log::ReadStats stats = reader.stats();
  std::vector<std::string> others;
  for (const std::string& file : input.recovered) {
    if (!scan_recovered(file, rest, summary, stats)) others.push_back(file);
  }
  summary.end_log(stats);
  for (const std::string& file : others) scan_log(file, summary);
}

bool scan_files(const std::string& path, const std::vector<std::string>& files, analysis::LogSummary& summary) {
  log::LogReader reader(files, {});
  return scan(path, reader, summary, Clock::time_point::max(), false);
}

}  // namespace gpuflight::cli
