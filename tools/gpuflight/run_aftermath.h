// After the program of `gpuflight run` has ended: the recordings that have no end are joined with their flight files,
// and what had not reached their logs is written beside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "event/incidents.h"
#include "run_manifest.h"

namespace gpuflight::cli {

struct UnfinishedRecording {
  RecordedProcess process;
  std::string program;
  bool running = false;             // it has been left behind and records on
  std::vector<std::string> files;   // log and what was recovered, oldest first; empty: see problem
  std::string written_to;           // the new file; empty: none
  std::uint64_t recovered = 0, history = 0;
  std::vector<std::string> brief;   // verdict and last launches, for people
  std::string ledger;               // one line; empty: nothing is missing
  std::string problem;              // why it could not be looked into; one line
  bool unreadable = false;          // and why `recover` could not do it either
};

// `end`: of the program itself; the others' is not known. Never throws for what it finds.
std::vector<UnfinishedRecording> look_after(const std::vector<RecordedProcess>& processes, const event::ExitEvent& end,
                                            std::int64_t end_monotonic_ns, std::uint64_t start_ticks);

// Whether the log's last line is the end of its recording. Reads the end of the file only.
bool has_session_end(const std::string& log_path);

// All bytes of a log on disk, closed segments included.
std::uint64_t bytes_on_disk(const std::string& log_path);

}  // namespace gpuflight::cli
