// Reads whole logs into a summary: what `report` shows and what `run` says at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/log_summary.h"
#include "log_input.h"

namespace gpuflight::cli {

// Reads one log with its rotated segments, or a flight file with its log. False: `deadline` came first, the summary
// holds a part only.
bool scan_log(const std::string& path, analysis::LogSummary& summary,
              std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max(),
              bool progress = false);

// Who takes what is read: a summary, a trace.
class EventTaker {
 public:
  virtual ~EventTaker() = default;
  virtual void begin_log(const std::string& path) = 0;
  // Where the event that add() gets next stands: file and line, from 1.
  virtual void at(const std::string& /*file*/, std::uint64_t /*line*/) {}
  virtual void add(const log::LogEvent& event) = 0;
  virtual void end_log(const log::ReadStats& stats) = 0;
};

// All of one recording, each event once. What has not a single event is no log of the summary: a line about each such
// file comes back. Throws Failure for what cannot be opened.
std::vector<std::string> scan_input(const LogInput& input, EventTaker& taker, bool progress);
std::vector<std::string> scan_input(const LogInput& input, analysis::LogSummary& summary, bool progress);

// As one log, named `path`.
bool scan_files(const std::string& path, const std::vector<std::string>& files, analysis::LogSummary& summary);

}  // namespace gpuflight::cli
