// What `doctor` learns of CUDA, from a process of its own: whatever the driver does there, crash and hang included,
// is a finding and not our end.
#pragma once

#include <nlohmann/json.hpp>

#include "doctor_checks.h"

namespace gpuflight::cli {

struct CudaProbe {
  Findings findings;
  nlohmann::ordered_json facts;  // what the probe printed and what its log's first line says; null: it did not get far
};

// Starts this executable again as `doctor-probe` with the library preloaded and reads the log it leaves.
CudaProbe probe_cuda();

}  // namespace gpuflight::cli
