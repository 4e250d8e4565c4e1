// What `run` says at the end: how much was recorded, where the log is, what to do next.
#pragma once

#include <string>
#include <vector>

#include "event/incidents.h"
#include "run_aftermath.h"
#include "run_manifest.h"

namespace gpuflight::cli {

// At most a few lines, each with its line end. `end`: how the program ended. `unfinished`: the recordings without an
// end. `remarks` were made before the start; they may be why nothing came.
std::string run_summary(const std::vector<RecordedProcess>& processes, const event::ExitEvent& end,
                        const std::vector<UnfinishedRecording>& unfinished, const std::vector<std::string>& remarks);

}  // namespace gpuflight::cli
