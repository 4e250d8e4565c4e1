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

std::string explain_text(const ExplainedKernels& explained, const analysis::LogSummary& logs,
                         const ExplainOptions& options);
std::string explain_json(const ExplainedKernels& explained, const analysis::LogSummary& logs);

}  // namespace gpuflight::report
