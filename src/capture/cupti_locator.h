// Which libcupti to use. The first that is in the process already, else an explicit path, else the toolkit's, else a
// pip package's, else the loader's own search: a process must not get a second one, and a libcupti newer than the
// driver does not work.
//
// Threads: the thread that initialises CUDA. Blocks and allocates.
#pragma once

#include <string>
#include <vector>

#include "capture/shared_object.h"

namespace gpuflight::capture {

struct CuptiCandidate {
  std::string path;    // file or library name to open
  std::string reason;  // "already in the process", "GPUFLIGHT_CUPTI", "toolkit in CUDA_HOME" ...
  bool loaded = false; // adopt instead of open
};

// In the order in which to try them, for a driver of version `driver_version` (13000 for CUDA 13.0; 0: not known).
// A candidate made for a later major version than the driver's is left out.
std::vector<CuptiCandidate> find_cupti_candidates(const std::string& explicit_path, int driver_version);

}  // namespace gpuflight::capture
