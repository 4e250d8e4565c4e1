// How the process ended, from its parent, and what that parent has recovered already.
#include <algorithm>
#include <filesystem>
#include <set>
#include <sys/stat.h>

#include "analysis/recovery.h"

namespace gpuflight::analysis {
namespace {

constexpr int kMaxRecoveredFiles = 100;

}  // namespace

void Recovery::take_exit() {
  if (!options_.exit) return;
  const flight::FlightHeader& header = flight_.header;
  // A number alone may be another process's: of another container, or one that had it before.
  if (options_.exit->pid != header.pid || options_.replaced) return;
  if (options_.exit_start_ticks != 0 && header.process_start_ticks != 0 &&
      options_.exit_start_ticks != header.process_start_ticks) {
    return;
  }
  result_.exit = options_.exit;
  result_.exit->time_ns = std::max(options_.exit_monotonic_ns - header.t0_monotonic_ns, result_.last_event_ns);
}

// NAME.recovered.ndjson, NAME.recovered.2.ndjson ... as far as they go.
void Recovery::look_at_recovered_files() {
  const std::string stem = result_.recovered_stem();
  for (int i = 1; i <= kMaxRecoveredFiles; ++i) {
    const std::string path = stem + (i == 1 ? "" : "." + std::to_string(i)) + ".ndjson";
    struct stat info{};
    if (lstat(path.c_str(), &info) != 0) return;
    if (S_ISREG(info.st_mode) && look_at_recovered_file(path)) result_.recovered_path = path;
  }
}

// Whether it is of this recording and has every event that would be written.
bool Recovery::look_at_recovered_file(const std::string& path) {
  log::ReadOptions options;
  options.types = 0;
  for (const auto type : {log::LineType::kKernel, log::LineType::kGraphLaunch, log::LineType::kScope,
                          log::LineType::kSessionStart, log::LineType::kSync, log::LineType::kApi,
                          log::LineType::kExit, log::LineType::kMemcpy, log::LineType::kMemset,
                          log::LineType::kMemory, log::LineType::kStreamEdge}) {
    options.types |= log::line_type_bit(type);
  }
  log::LogReader reader(std::vector<std::string>{path}, options);
  if (reader.open() != 0) return false;
  bool ours = false;
  std::set<std::uint64_t> missing;
  for (const Chosen& chosen : chosen_) missing.insert(missing.end(), chosen.seq.value);
  for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) {
    if (const auto* start = std::get_if<log::SessionStartLine>(&event)) {
      const event::SessionStart& s = start->session;
      ours = s.t0_unix_ns == flight_.header.t0_unix_ns && s.pid == flight_.header.pid;
    }
    if (!ours) return false;
    if (const auto seq = log::thread_seq(event)) {
      missing.erase(seq->value);
    } else if (const auto* exit = std::get_if<event::ExitEvent>(&event)) {
      if (!result_.exit && exit->pid == flight_.header.pid) result_.exit = *exit;
    }
  }
  return ours && missing.empty();
}

}  // namespace gpuflight::analysis
