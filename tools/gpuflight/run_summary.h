// What `run` says at the end: how much was recorded, where the log is, what to do next.
#pragma once

#include <string>
#include <vector>

#include "child_process.h"
#include "run_manifest.h"

namespace gpuflight::cli {

// At most a few lines, each with its line end. `remarks` were made before the start; they may be why nothing came.
std::string run_summary(const std::vector<RecordedProcess>& processes, const ChildResult& result,
                        const std::vector<std::string>& remarks);

}  // namespace gpuflight::cli
