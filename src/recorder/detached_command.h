// Runs a user's command from inside somebody else's process so that the host cannot notice: no SIGCHLD, nothing for its
// own wait calls, none of our preload and variables in the command.
//
// Threads: the recorder thread. run() blocks for a clone; poll() does not.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gpuflight::recorder {

class DetachedCommand {
 public:
  // `facts`: variables for the command, GPUFLIGHT_HANG_STREAM and the like. False: it could not be started.
  bool run(const std::string& command, const std::vector<std::pair<std::string, std::string>>& facts) noexcept;

  // Collects what has ended.
  void poll() noexcept;

 private:
  std::vector<int> running_;
};

}  // namespace gpuflight::recorder
