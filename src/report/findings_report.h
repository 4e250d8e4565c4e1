// Findings of the rules as a person or a program reads them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/analyzer.h"

namespace gpuflight::report {

inline constexpr int kAnalyzeSchema = 1;

struct FindingsOptions {
  std::size_t width = 120;
  bool full_names = false;
  bool colour = false;
  std::size_t rules = 0;  // how many were asked
};

std::string findings_text(const analysis::Analysis& analysis, const FindingsOptions& options);
std::string findings_json(const analysis::Analysis& analysis, const FindingsOptions& options);

// What a rule looks at, its thresholds and where it is from; as text for `width` columns, or as JSON.
std::string rules_text(const std::vector<analysis::rules::RuleInfo>& rules, std::size_t width);
std::string rules_json(const std::vector<analysis::rules::RuleInfo>& rules);

// A template of a finding with its facts put in.
class KernelNames;
std::string filled_in(const std::string& words, const std::vector<analysis::rules::Fact>& facts, KernelNames& names);

}  // namespace gpuflight::report
