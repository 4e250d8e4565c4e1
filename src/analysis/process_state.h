// Whether the process that a recording belongs to is still there: by pid, start time and boot, so that a pid that was
// given out again is not taken for it.
#pragma once

#include <cstdint>
#include <string>

namespace gpuflight::analysis {

enum class ProcessState : std::uint8_t {
  kRunning,
  kGone,       // no such process, or the pid is another's by now, or it waits only to be collected
  kReplaced,   // there, but it has exec'ed another program: the recorder went with the old one
  kRebooted,   // the machine has been started anew since
  kElsewhere,  // recorded on another machine or in another container: its processes cannot be seen from here
};

struct ProcessKey {
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat; 0: not known
  std::string boot_id;
  std::string host;
  std::string mapped_file;  // a file the recorder keeps mapped; empty: not known
};

ProcessState look_for_process(const ProcessKey& key);

// CLOCK_MONOTONIC, which all processes of one boot share.
std::int64_t monotonic_ns();

}  // namespace gpuflight::analysis
