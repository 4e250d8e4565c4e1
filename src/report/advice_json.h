// Occupancy and advice for programs: the keys that explain and occupancy share, described in docs/CLI.md.
#pragma once

#include <nlohmann/json.hpp>

#include "analysis/explanation.h"
#include "analysis/what_if.h"

namespace gpuflight::report {

nlohmann::ordered_json occupancy_json(const event::Occupancy& occupancy);
nlohmann::ordered_json limiters_json(event::LimiterSet limiters);
nlohmann::ordered_json advice_list_json(const occupancy::AdviceList& list);
nlohmann::ordered_json launch_json(const event::KernelInfo& kernel, const event::LaunchShape& shape);
nlohmann::ordered_json curve_json(const occupancy::OccupancyCurve& curve);
nlohmann::ordered_json what_if_json(const analysis::WhatIf& what_if);

}  // namespace gpuflight::report
