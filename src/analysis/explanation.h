// What limits a kernel, what to change, what it would bring: the facts behind `gpuflight explain`. The numbers are the
// log's and the occupancy model's; a bound on time stands only where it can be argued, and says how.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/kernel_study.h"
#include "occupancy/advice.h"

namespace gpuflight::analysis {

enum class Rule : std::uint8_t {
  kLowOccupancy,  // theoretical occupancy below 80 %
  kTail,          // several waves of blocks, the last one not full
  kSmallGrid,     // fewer blocks than SMs
  kPartialWarp,   // a block that is no multiple of a warp
  kLocalMemory,   // spills or local arrays
  kLaunchBound,   // the kernel is shorter than the call that launches it
};
inline constexpr int kRuleCount = 6;
const char* rule_name(Rule rule);    // "tail_effect": stable, for JSON
const char* rule_source(Rule rule);  // where the rule comes from

inline constexpr double kLowOccupancy = 0.8;  // Nsight Compute's threshold

struct Finding {
  Rule rule = Rule::kLowOccupancy;
  std::uint64_t launches = 0;  // that it is about
  double value = 0;            // by rule: occupancy, mean waves' idle part, idle part of the SMs, idle part of the
                               // lanes, bytes per thread, part of the compared launches
  std::optional<double> bound_share;  // of the kernel's time: at most this much less
  std::optional<double> bound_ns;     // the same of all its launches; launch-bound: of idle time of the GPU
};

// What stands against a gain in time from more blocks on an SM.
enum class Doubt : std::uint8_t {
  kNone,
  kGridFits,       // nearly all grids run at once as it is: another block would find no work
  kHighOccupancy,  // 80 % and more: seldom what a kernel waits for
};

// Why there is no advice on occupancy.
enum class Silence : std::uint8_t {
  kNone,
  kNoDetails,     // recorded without registers, shared memory, occupancy
  kNoBoard,       // the log does not say what the device is
  kUnknownFacts,  // the driver did not tell registers or shared memory
  kDisagrees,     // the model says other than the driver: its what-ifs would be guesses
};

struct Explanation {
  StudiedConfig config;
  Silence silence = Silence::kNone;
  std::optional<occupancy::AdviceList> advice;  // none: see silence
  occupancy::Scenario scenario;                 // what the advice is about
  Doubt doubt = Doubt::kNone;
  std::vector<Finding> findings;  // in the order of Rule

  const Finding* finding(Rule rule) const;
};

// What the model is asked about a recorded configuration; `silence` says why not.
occupancy::Scenario scenario_of(const StudiedConfig& config, Silence& silence);

Explanation explain(const StudiedConfig& config);

}  // namespace gpuflight::analysis
