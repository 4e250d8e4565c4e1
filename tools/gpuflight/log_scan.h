// Reads whole logs into a summary: what `report` shows and what `run` says at the end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "analysis/log_summary.h"

namespace gpuflight::cli {

// Logs meant by the words of a command line: files, "-", and folders, of which all logs in them. A closed segment
// (NAME.0001.ndjson, .zst) is read with its recording, not as a log of its own. Throws Failure for what is not there.
std::vector<std::string> expand_logs(const std::vector<std::string>& words);

// Reads one log with its rotated segments, or a flight file with its log. False: `deadline` came first, the summary holds a part only.
bool scan_log(const std::string& path, analysis::LogSummary& summary,
              std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max(),
              bool progress = false);

// As one log, named `path`.
bool scan_files(const std::string& path, const std::vector<std::string>& files, analysis::LogSummary& summary);

}  // namespace gpuflight::cli
