// Which recordings the words of a command line mean. A shell names what it finds: the log, its closed segments, what
// was recovered of it and its flight file, perhaps twice. Each recording is one input, whatever of it was named.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpuflight::cli {

struct LogInput {
  std::string path;                    // the log; else its flight file, or the closed segment that was named
  std::string flight = {};             // its flight file, where that was named too
  std::vector<std::string> segments = {};   // not empty: closed segments, read without their log, which was not named
  std::vector<std::string> recovered = {};  // its NAME.recovered.ndjson files
  std::vector<std::string> copies = {};     // other files with lines of the same recording
};

// Of files, "-", and folders, of which all logs in them. A closed segment (NAME.0001.ndjson, .zst) is read with its
// recording, not as a log of its own; so is what was recovered, and a flight file. `notes` gets a line about each thing
// that was passed over. Throws Failure for a folder without logs.
std::vector<LogInput> expand_logs(const std::vector<std::string>& words, std::vector<std::string>* notes = nullptr);

// Looks into the files too: those of one session under several names become one input.
std::vector<LogInput> join_sessions(std::vector<LogInput> inputs);

// The log that a flight file names, there or, moved together with it, beside it; empty: no flight file.
std::string log_of_flight_file(const std::string& path);

// Whether the process that writes this log still runs, by the flight file of the same name beside it.
bool is_being_written(const std::string& log);

}  // namespace gpuflight::cli
