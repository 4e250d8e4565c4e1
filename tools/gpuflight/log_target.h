// What a word on the command line means when a log is asked for: a file, the newest log of a folder, or the log a
// running process writes.
#pragma once

#include <string>

namespace gpuflight::cli {

// Path of the log; a file that does not exist yet is taken at its word. Throws Failure.
std::string resolve_log(const std::string& word);

// Whether a process of this machine with this start time (field 22 of /proc/PID/stat) is there.
bool process_lives(long pid, unsigned long long start_ticks);

}  // namespace gpuflight::cli
