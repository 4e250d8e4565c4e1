// What `gpuflight occupancy` prints: a calculation for boards that are not there, or recorded kernels on other boards.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "analysis/what_if.h"

namespace gpuflight::report {

struct OccupancyOptions {
  std::size_t width = 120;
  bool full_names = false;
  bool colour = false;
  std::optional<occupancy::CurveOver> curve;  // drawn for each board; in JSON all three curves come always
};

inline constexpr int kOccupancySchema = 1;  // "occupancy_schema" of the JSON forms

// One set of numbers on one board (with advice) or on several (a table).
std::string calculation_text(const std::vector<analysis::WhatIf>& boards, const OccupancyOptions& options);
std::string calculation_json(const std::vector<analysis::WhatIf>& boards);

// Recorded kernels on other boards.
std::string elsewhere_text(const std::vector<analysis::KernelWhatIf>& kernels, bool by_gpu_time,
                           const OccupancyOptions& options);
std::string elsewhere_json(const std::vector<analysis::KernelWhatIf>& kernels, bool by_gpu_time);

// The table of architectures, with where its numbers come from.
std::string architectures_text(std::size_t width);
std::string architectures_json();

}  // namespace gpuflight::report
