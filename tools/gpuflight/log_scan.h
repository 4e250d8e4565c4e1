// Reads whole logs into a summary: what `report` shows and what `run` says at the end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "analysis/log_summary.h"

namespace gpuflight::cli {

// Logs meant by the words of a command line: files, "-", and folders, of which all logs in them. A closed segment
// (NAME.0001.ndjson, .zst) is read with its recording, not as a log of its own; so is what was recovered, where the log
// itself is meant too. Throws Failure for what is not there.
struct LogInput {
  std::string path;
  std::vector<std::string> recovered;  // its NAME.recovered.ndjson files, read as part of it
};
std::vector<LogInput> expand_logs(const std::vector<std::string>& words);

// Reads one log with its rotated segments, or a flight file with its log. False: `deadline` came first, the summary
// holds a part only.
bool scan_log(const std::string& path, analysis::LogSummary& summary,
              std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max(),
              bool progress = false);

// With what was recovered of it, each event once.
void scan_input(const LogInput& input, analysis::LogSummary& summary, bool progress);

// As one log, named `path`.
bool scan_files(const std::string& path, const std::vector<std::string>& files, analysis::LogSummary& summary);

}  // namespace gpuflight::cli
