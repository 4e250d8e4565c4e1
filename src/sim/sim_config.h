// What the simulated device pretends to be, and what goes wrong on it: from the "device" section of the plan named by
// GPUFLIGHT_SIM_PLAN, each entry overridden by its own GPUFLIGHT_SIM_* variable.
// Threads: any, read once, immutable afterwards. Allocates on first use only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "event/device_info.h"

namespace gpuflight::sim {

// "the N-th (from 1) gives code E"
struct NthFault {
  std::uint64_t nth = 0;
  int code = 0;
};

struct SimConfig {
  event::DeviceInfo board;
  int device_count = 1;
  int driver_version = 13000;
  std::uint32_t cupti_version = 130001;  // CUPTI_API_VERSION numbering

  // Driver faults.
  int init_error = 0;                    // cuInit returns it
  int occupancy_error = 0;               // cuOccupancyMaxActiveBlocksPerMultiprocessor returns it
  std::vector<NthFault> launch_errors;   // the N-th launch call returns E and runs nothing
  NthFault sticky;                       // the N-th launch succeeds, then its context is dead with E

  // CUPTI faults.
  bool subscriber_taken = false;         // cuptiSubscribe: another tool already holds the slot
  bool cupti_too_new = false;            // everything returns NOT_INITIALIZED
  int activity_error = 0;                // cuptiActivityEnable returns this CUptiResult
  int timestamp_error = 0;               // cuptiActivityRegisterTimestampCallback returns this CUptiResult
  std::int64_t buffers_late_ms = 0;      // completed buffers are held back for so long
  std::uint64_t drop_every = 0;          // every N-th record is dropped and counted
  std::uint64_t zero_times_every = 0;    // every N-th record comes with start = end = 0
  std::string body_kernel;               // nodes of this kernel come without a correlation id, as those of bodies of
                                         // conditional nodes do
  bool buffers_on_app_threads = false;   // buffers are only ever requested by launching threads

  std::string complaint;                 // first thing that could not be understood; empty: all well
};

// Reads environment and plan on first use.
const SimConfig& sim_config();

}  // namespace gpuflight::sim
