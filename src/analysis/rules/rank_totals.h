// What is kept of one log for comparing it with the others of the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rules/rule.h"

namespace gpuflight::analysis::rules {

struct RankTotals {
  std::uint32_t log = 0;
  std::string name;  // "rank 3", or by program and process
  LogTotals totals;
  std::int64_t offset_ns = 0;             // to be added to its times, for one axis
  std::vector<EventRef> collectives;  // kernels of NCCL by their start, in order
  Evidence longest;                   // of its works
};

}  // namespace gpuflight::analysis::rules
