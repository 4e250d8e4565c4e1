// A budget: what a program, its kernels and its scopes may take. A JSON file in which comments are allowed:
//
//   {
//     "program": {"idle_percent": 20, "sync_calls": 100, "pageable_bytes": 0},
//     "kernels": {"reduce_*": {"p95_us": 30, "registers": 40, "occupancy_min": 0.75, "limiter": ["warps"]}},
//     "scopes":  {"step": {"launches_per_pass": 120}}
//   }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "event/kernel_config.h"

namespace gpuflight::analysis {

enum class BudgetSubject : std::uint8_t { kProgram, kKernel, kScope };
inline constexpr const char* kBudgetSubjectNames[] = {"program", "kernel", "scope"};

enum class BudgetQuantity : std::uint8_t {
  kIdlePercent, kSyncCalls, kPageableBytes, kCopiedBytes, kLaunches, kFailedLaunches, kPeakMemoryBytes, kLostEvents,
  kP95, kMedian, kLongest, kRegisters, kSharedBytes, kSpillBytes, kLeastOccupancy, kLimiter, kLaunchesPerPass
};

struct BudgetKey {
  const char* name;
  BudgetSubject subject;
  BudgetQuantity quantity;
  const char* text;       // "95th percentile of the time"
  bool counts = false;    // from events: too small where some are missing
  bool at_least = false;  // else: at most
};
std::span<const BudgetKey> budget_keys();

struct BudgetLimit {
  const BudgetKey* key = nullptr;
  double value = 0;
  event::LimiterSet limiters = 0;  // of kLimiter: those allowed
};

struct BudgetRule {
  BudgetSubject subject = BudgetSubject::kProgram;
  std::string pattern;    // glob; of the program: empty
  bool optional = false;  // that nothing matches is no failure
  std::vector<BudgetLimit> limits;
  std::size_t line = 1;   // where in the file
};

struct Budget {
  std::vector<BudgetRule> rules;
};

struct BudgetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The name of `known` that was meant; "": none is near.
using NearestName = std::function<std::string(std::string_view name, std::span<const std::string> known)>;

// Throws BudgetError with what is wrong, and where.
Budget parse_budget(std::string_view text, const NearestName& nearest);

}  // namespace gpuflight::analysis
