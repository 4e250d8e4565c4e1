// Which facts of a kernel's configuration changed between two sides. Facts are what the compiler and the launch say: no
// statistics.
#pragma once

#include <optional>
#include <vector>

#include "analysis/kernel_comparison.h"

namespace gpuflight::analysis {

// Nothing for a kernel that is on one side only. What is not known on one side did not change.
std::vector<FactChange> fact_changes(const std::optional<KernelSide>& before, const std::optional<KernelSide>& after);

// Static and dynamic together.
Range<std::int64_t> shared_bytes(const LaunchGroup& group);

}  // namespace gpuflight::analysis
