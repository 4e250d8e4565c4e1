// The one table of rules: each family gives its rows, this puts them together and keeps what was chosen of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/rules/rule.h"

namespace gpuflight::analysis::rules {

std::vector<RuleInfo> copy_rules();
std::vector<RuleInfo> sync_rules();
std::vector<RuleInfo> idle_rules();
std::vector<RuleInfo> stream_rules();
std::vector<RuleInfo> overlap_rules();
std::vector<RuleInfo> launch_rules();
std::vector<RuleInfo> sequence_rules();
std::vector<RuleInfo> memory_rules();
std::vector<RuleInfo> kernel_rules();
std::vector<RuleInfo> burst_rules();
std::vector<RuleInfo> imbalance_rules();

const std::vector<RuleInfo>& all_rules();
const RuleInfo* find_rule(std::string_view name);

struct ChosenRule {
  const RuleInfo* info;
  RuleSettings settings;
};

// All of them, as they are.
std::vector<ChosenRule> default_rules();

}  // namespace gpuflight::analysis::rules
