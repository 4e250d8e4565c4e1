// How the recorded program ended: what waitpid says, and whether the kernel's OOM killer had a hand in it.
//
//   const OomCounters before = OomCounters::now();
//   ... the program runs and ends ...
//   const event::ExitEvent end = describe_end(result, before, OomCounters::now());
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "child_process.h"
#include "event/incidents.h"

namespace gpuflight::cli {

// How many processes the kernel has ended for want of memory so far; not given: cannot be read.
struct OomCounters {
  std::optional<std::uint64_t> group;    // of our control group
  bool with_descendants = false;         // and of those below it (version 2)
  std::optional<std::uint64_t> machine;

  static OomCounters now();
  // The same from another root: for tests.
  static OomCounters in(const std::string& root);
};

// null: cannot be told.
std::optional<bool> oom_killed(int signal, const OomCounters& before, const OomCounters& after);

// seq and time_ns are the caller's to fill in.
event::ExitEvent describe_end(const ChildResult& result, const OomCounters& before, const OomCounters& after);

// "SIGKILL"; empty: a number without a name.
std::string signal_name(int number);

}  // namespace gpuflight::cli
