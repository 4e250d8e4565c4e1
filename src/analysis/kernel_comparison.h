// Two sides of recordings of one program, before and after a change: per kernel and configuration which facts changed
// and whether its times did.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/outcome.h"
#include "analysis/recording.h"
#include "analysis/time_verdict.h"

namespace gpuflight::analysis {

enum class Fact : std::uint8_t {
  kLaunches, kRegisters, kShared, kSpill, kBlock, kCluster, kGrid, kBlocksPerSm, kOccupancy, kLimiter
};
inline constexpr int kFactCount = 10;
inline constexpr const char* kFactNames[] = {"launches", "registers", "shared", "spill",         "block",
                                             "cluster",  "grid",      "blocks_per_sm", "occupancy", "limiter"};

struct FactChange {
  Fact fact = Fact::kLaunches;
  bool worse = false;  // of those that have a worse side: more registers, less occupancy ...
};

// Which of a kernel's two times decides its verdict.
enum class Judge : std::uint8_t { kMedian, kP95, kBoth };
inline constexpr std::array<const char*, 3> kJudgeNames = {"median", "p95", "both"};

// What a comparison fails by. The facts of these names fail where they are worse.
enum class FailOn : std::uint8_t {
  kSlower, kTotal, kLaunches, kRegisters, kShared, kSpill, kOccupancy, kLimiter, kAdded, kRemoved, kFacts, kNone
};
inline constexpr std::array<const char*, 12> kFailOnNames = {"slower", "total",     "launches", "registers",
                                                             "shared", "spill",     "occupancy", "limiter",
                                                             "added",  "removed",   "facts",    "none"};
using FailOnSet = std::uint32_t;
constexpr FailOnSet fail_bit(FailOn reason) { return 1u << static_cast<unsigned>(reason); }

struct CompareOptions {
  TimeRule rule;
  Judge judge = Judge::kBoth;
  double least_share = 0.01;  // of the time of a side: below, a kernel's time fails nothing and leaves nothing unsure
  bool facts_only = false;
  bool force = false;         // times though the machines differ
  FailOnSet fail_on = fail_bit(FailOn::kSlower);
};

// 95th percentiles of fewer launches are not judged.
inline constexpr std::uint64_t kLeastLaunchesForP95 = 20;

struct KernelSide {
  KernelConfigKey key;
  LaunchGroup all;                // of all recordings together
  Range<std::uint64_t> launches;  // of a recording
  std::size_t recordings = 0;     // that have it
  double share = 0;               // of the GPU time of the side; of its launches where no times are known
};

struct ComparedKernel {
  std::string name;  // mangled, as in the log
  std::optional<KernelSide> before, after;  // none: added, removed
  std::vector<FactChange> changes;
  TimeChange median, p95;
  std::optional<TimeVerdict> verdict;  // none: facts only, or on one side only
  std::string reason;              // of UNSURE
  bool counted = false;            // beyond the least share
  Outcome outcome = Outcome::kPass;
  std::string failed_by;           // "slower, occupancy"
  double share() const;            // the larger of the sides'
};

struct MachineDifference {
  MachineFact fact;
  std::set<std::string> before, after;
};

struct Comparison {
  CompareOptions options;
  std::vector<Recording> before, after;  // without their kernels
  std::vector<MachineDifference> differences;
  bool refused = false;                  // times were not compared: the machines differ
  bool in_turns = false;                 // not one side as a whole before the other
  bool has_times = false;
  std::vector<ComparedKernel> kernels;   // what needs a look first, then by share
  TimeChange total;                      // GPU time of all kernels of a recording
  Outcome outcome = Outcome::kPass;
  std::size_t judged() const;            // kernels whose time was compared and counts
  std::size_t count(TimeVerdict verdict) const;
};

Comparison compare(std::vector<Recording> before, std::vector<Recording> after, const CompareOptions& options);

std::optional<FailOn> fail_on(std::string_view name);

}  // namespace gpuflight::analysis
