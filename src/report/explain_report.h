// What `gpuflight explain` prints: for each kernel what limits it, what else stands out, what to change and what that
// would bring.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/explanation.h"

namespace gpuflight::report {

struct ExplainOptions {
  std::size_t width = 120;
  bool full_names = false;
  bool colour = false;
};

inline constexpr int kExplainSchema = 1;  // "explain_schema" of the JSON form

struct ExplainedKernels {
  std::vector<analysis::Explanation> kernels;
  bool by_gpu_time = false;  // what shares are of; else of launches
  std::size_t left_out = 0;  // configurations that were not worth it, or not asked for
  double left_out_share = 0;
};

// The same of one kernel, not laid out: for a page.
struct KernelWords {
  std::string numbers;    // share, launches, times
  std::string launch;     // block, registers, shared memory, grid, board
  std::string occupancy;  // what limits it; empty: not known
  std::string best;       // what else it could be; empty: nothing better
  std::vector<std::vector<std::string>> findings;  // each with its rule
  std::string advice_heading;                      // or why there is no advice
  std::vector<std::vector<std::string>> advice;
};
KernelWords kernel_words(const analysis::Explanation& kernel, bool by_gpu_time);

std::string explain_text(const ExplainedKernels& explained, const analysis::LogSummary& logs,
                         const ExplainOptions& options);
std::string explain_json(const ExplainedKernels& explained, const analysis::LogSummary& logs);

}  // namespace gpuflight::report
