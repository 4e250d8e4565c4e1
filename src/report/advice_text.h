// Occupancy and advice as a person reads them, in the words of Nsight Compute: shared by explain and occupancy.
#pragma once

#include <string>
#include <vector>

#include "analysis/explanation.h"

namespace gpuflight::report {

// 0 to 1; NaN where it is not known.
double occupancy_value(const event::Occupancy& occupancy);

// "Block Limit Shared Mem"
const char* block_limit_name(event::Limiter limiter);

// "registers and shared memory"; "nothing" for none.
std::string limiter_words(event::LimiterSet limiters);

// "5 blocks of 8 warps on an SM, 40 of 48 warps"
std::string resident_text(const event::Occupancy& occupancy);

// A line for each limit that is known, least blocks first; what binds is marked.
std::vector<std::string> limit_lines(const event::Occupancy& occupancy);

// Each piece of advice: what to change and what it brings, how to get it, and, once for all of a kind, the rule.
std::vector<std::vector<std::string>> advice_lines(const occupancy::AdviceList& list,
                                                   const occupancy::Scenario& scenario);

// "(256,1,1)" as "256", "(16,16,1)" as "16x16"
std::string dim_text(const event::Dim3& dim);

// "256 threads, 40 registers, 16,384 + 0 B shared memory, carve-out 50%, clusters of 2"
std::string scenario_text(const event::KernelInfo& kernel, const event::LaunchShape& shape);

// Cuts at blanks so that no line is wider than `width`; lines after the first begin with `indent` blanks.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);

}  // namespace gpuflight::report
