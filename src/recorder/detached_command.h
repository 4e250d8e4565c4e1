// Runs a user's command from inside somebody else's process so that the host cannot notice: no SIGCHLD, nothing for its
// own wait calls, none of our preload and variables in the command.
//
// Threads: run() on the recorder thread, does not block; each command has a thread of its own that waits for it.
//
// execve() makes any child one that its parent is told of, whatever it was cloned as. So the command is not the host's
// child: between them stands a process that never execs and is cloned without an exit signal, the minder. It shares the
// host's memory (a fork would copy the page tables of a process of any size) and uses the thread-local storage of the
// command's thread, which sleeps in vfork meanwhile.
//
//   recorder thread -> command's thread -(clone, no signal)-> minder -(vfork)-> /bin/sh -c COMMAND
//
// When the host ends the kernel ends the minder with it, and the command goes on alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpuflight::recorder {

class DetachedCommand {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // `facts`: variables for the command, GPUFLIGHT_HANG_STREAM and the like. False: it could not be started, or the one
  // before is still running.
  bool run(const std::string& command, const Variables& facts) noexcept;

 private:
  struct Job;
  static void thread_main(void* job) noexcept;
  static int mind(void* job) noexcept;
  static int become_command(void* job) noexcept;

  std::atomic<bool> running_{false};
};

}  // namespace gpuflight::recorder
