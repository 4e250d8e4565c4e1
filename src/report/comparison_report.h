// What `gpuflight diff` prints of a comparison: text, Markdown, JSON, and what CI systems read.
#pragma once

#include <string>
#include <vector>

#include "analysis/kernel_comparison.h"
#include "report/ci_results.h"

namespace gpuflight::report {

struct ComparisonOptions {
  bool all = false;  // kernels too of which there is nothing to say
  bool full_names = false;
  std::size_t width = 120;
  bool colour = false;
};

inline constexpr int kComparisonSchema = 1;  // "diff_schema" of the JSON form

std::string render_text(const analysis::Comparison& comparison, const ComparisonOptions& options);
std::string render_markdown(const analysis::Comparison& comparison, const ComparisonOptions& options);
std::string render_json(const analysis::Comparison& comparison);

const std::vector<CiRule>& comparison_rules();
std::vector<CiResult> comparison_results(const analysis::Comparison& comparison);

// "(256,1,1)", "(256,1,1)+1024 B" with dynamic shared memory; "-": not known.
std::string config_text(const analysis::KernelConfigKey& key);
// A fact of one side: "32", "75.0%", "warps, registers"; "-": not known.
std::string fact_text(analysis::Fact fact, const analysis::KernelSide& side);
// "slower by 12.3% (median 41.0 us -> 46.0 us, p 0.1); occupancy 100.0% -> 75.0%".
std::string change_text(const analysis::ComparedKernel& kernel);
// What of recordings and machines a reader should know before the numbers, one sentence each.
std::vector<std::string> comparison_notes(const analysis::Comparison& comparison);
// "fail: 1 SLOWER, 2 UNSURE, 14 SAME; 1 added".
std::string comparison_summary(const analysis::Comparison& comparison);

}  // namespace gpuflight::report
