// Starts the recorded program and stays out of its way until it ends.
//
// The program runs in our own process group with our stdin, stdout and stderr, so the terminal treats it as if it had
// been started without us: Ctrl-C reaches it from the terminal directly, and is not passed on a second time. A signal
// somebody sends to us with kill is passed on. While it is stopped by job control we stop too, so that the shell
// notices.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpuflight::cli {

struct ChildResult {
  pid_t pid = -1;
  int wait_status = 0;  // as waitpid gives it
  std::int64_t wall_ns = 0;
  std::int64_t ended_monotonic_ns = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: with the pid it names the process for good; 0: unknown
  sigset_t passed_on{};           // signals that somebody sent to us
  sigset_t from_terminal{};       // signals the terminal sent to the foreground group

  // The program's own exit code, or 128 + n after signal n, as the shell has it.
  int exit_code() const;
};

// `path` is what is executed, `argv[0]` what the program is told it is called. Throws Failure (126, 127) when the
// program cannot be executed.
ChildResult run_child(const std::string& path, const std::vector<std::string>& argv,
                      const std::vector<std::string>& environment);

}  // namespace gpuflight::cli
