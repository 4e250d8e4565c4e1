// What a word on the command line means when a log is asked for: a file, the newest log of a folder, or the log a
// running process writes.
#pragma once

#include <memory>
#include <string>

#include "analysis/flight_log.h"

namespace gpuflight::cli {

// Path of the log; a file that does not exist yet is taken at its word. Throws Failure.
std::string resolve_log(const std::string& word);

// Whether a process of this machine with this start time (field 22 of /proc/PID/stat) is there.
bool process_lives(long pid, unsigned long long start_ticks);

// A flight file joined with its log, for verbs that read logs; null: `path` is no flight file. Throws Failure.
std::unique_ptr<analysis::FlightLog> open_flight_log(const std::string& path);

}  // namespace gpuflight::cli
