// Runs a program to its end, or to a time limit, and keeps what it printed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gpuflight::cli {

struct CapturedProcess {
  bool started = false;
  bool timed_out = false;  // it was killed
  int wait_status = 0;
  std::string output;      // stdout; cut at 1 MiB
  std::string errors;      // stderr; cut likewise
};

CapturedProcess run_captured(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                             std::chrono::milliseconds limit);

}  // namespace gpuflight::cli
