// What a recording says of itself and its process in session_start.
//
// Threads: the recorder thread, at start. Reads /proc; may block and allocate.
#pragma once

#include <string>

#include "config/options.h"
#include "event/events.h"

namespace gpuflight::recorder {

struct ProcessFacts {
  std::string program;       // absolute path of the executable
  std::string program_name;  // without folder
  std::string host;
  std::string rank;
  std::uint64_t start_ticks = 0;
  std::string boot_id;
};

ProcessFacts read_process_facts();

// Everything but what capture adds: driver, CUPTI, source, flight file.
event::SessionStart describe_session(const ProcessFacts& process, const config::Options& options,
                                     std::int64_t t0_unix_ns, std::int64_t t0_monotonic_ns);

}  // namespace gpuflight::recorder
