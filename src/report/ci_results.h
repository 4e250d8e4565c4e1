// Results as CI systems read them: JUnit XML and SARIF 2.1.0.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/outcome.h"

namespace gpuflight::report {

struct CiRule {
  std::string id;      // "kernel-slower"
  std::string text;    // one sentence: what it is found by
};

struct CiResult {
  std::string rule;     // id of a CiRule
  std::string subject;  // the kernel, scope or program it is about
  std::string name;     // of the test case: unique and stable from run to run
  std::string message;
  analysis::Outcome outcome = analysis::Outcome::kPass;
  std::string file;       // where a reader is sent: the budget, the log
  std::size_t line = 1;
};

// UNSURE is a skipped test case: neither passed nor failed.
std::string render_junit(const std::string& suite, const std::vector<CiResult>& results);

// Results that passed are left out. UNSURE has the kind "review".
std::string render_sarif(const std::vector<CiRule>& rules, const std::vector<CiResult>& results);

}  // namespace gpuflight::report
