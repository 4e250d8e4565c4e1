// What `gpuflight check` prints of logs held against a budget.
#pragma once

#include <string>
#include <vector>

#include "analysis/budget_check.h"
#include "report/ci_results.h"

namespace gpuflight::report {

struct BudgetOptions {
  bool all = false;  // what was met too
  bool full_names = false;
  std::size_t width = 120;
  bool colour = false;
  std::string budget;  // path of the file
  std::size_t logs = 0;
  bool median = false;
};

inline constexpr int kBudgetSchema = 1;  // "check_schema" of the JSON form

analysis::Outcome outcome_of(const std::vector<analysis::BudgetFinding>& findings);

std::string render_text(const std::vector<analysis::BudgetFinding>& findings, const BudgetOptions& options);
std::string render_markdown(const std::vector<analysis::BudgetFinding>& findings, const BudgetOptions& options);
std::string render_json(const std::vector<analysis::BudgetFinding>& findings, const BudgetOptions& options);

const std::vector<CiRule>& budget_rules();
std::vector<CiResult> budget_results(const std::vector<analysis::BudgetFinding>& findings, const BudgetOptions& options);

}  // namespace gpuflight::report
