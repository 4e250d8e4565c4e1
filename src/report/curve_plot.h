// An occupancy curve drawn with letters.
#pragma once

#include <cstddef>
#include <string>

#include "analysis/what_if.h"

namespace gpuflight::report {

// Title, ten rows of bars, an axis, and the present place marked by '|' in the bars and '^' below the axis.
std::string curve_plot(const occupancy::OccupancyCurve& curve, std::size_t width);

}  // namespace gpuflight::report
