// Logs held against a budget.
//
//   BudgetCheck check(budget, names);
//   for each log: check.begin_log(path); check.add(event); ... check.end_log(stats);
//   check.findings(over)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/budget.h"
#include "analysis/log_summary.h"
#include "analysis/outcome.h"

namespace gpuflight::analysis {

// What a limit is held against where there are several logs.
enum class BudgetOver : std::uint8_t { kEach, kMedian };

struct BudgetFinding {
  const BudgetRule* rule = nullptr;
  const BudgetKey* key = nullptr;  // null: nothing matched the rule
  std::string subject;             // mangled kernel, scope path; of the program empty
  double limit = 0;
  event::LimiterSet allowed = 0, limiters = 0;  // of kLimiter
  std::optional<double> value;     // none: not known
  std::string log;                 // the value's: the worst of all, with the median empty
  std::size_t logs = 0;            // whose values are known
  Outcome outcome = Outcome::kPass;
  std::string reason;              // of a failure without a value, and of what is unsure
};

class BudgetCheck {
 public:
  // All names under which a mangled kernel may be meant.
  using Names = std::function<std::vector<std::string>(std::string_view mangled)>;

  BudgetCheck(Budget budget, Names names) : budget_(std::move(budget)), names_(std::move(names)) {}

  void begin_log(const std::string& path);
  void add(const log::LogEvent& event);
  void end_log(const log::ReadStats& stats);
  std::size_t logs() const { return logs_; }

  // In the order of the budget, subjects by name.
  std::vector<BudgetFinding> findings(BudgetOver over) const;

 private:
  struct Value {
    std::string log;
    std::optional<double> value;
    event::LimiterSet limiters = 0;
    std::string why_unknown;
    bool too_small = false;  // events are missing
  };
  // Rule and limit, subject.
  using Place = std::pair<std::pair<std::size_t, std::size_t>, std::string>;
  struct ScopeCount {
    std::uint64_t passes = 0, launches = 0;
  };
  static constexpr std::size_t kMostScopes = 100'000;

  void take(std::size_t rule, std::size_t limit, const std::string& subject, Value value);
  void take_program(std::size_t rule, const LogFacts& log);
  void take_kernels(std::size_t rule, const LogFacts& log);
  void take_scopes(std::size_t rule, const LogFacts& log);
  Value program_value(BudgetQuantity quantity, const LogFacts& log) const;
  static Value kernel_value(BudgetQuantity quantity, const LaunchGroup& group, const LogFacts& log);
  std::uint64_t launches_within(const std::string& scope) const;
  BudgetFinding finding(const BudgetRule& rule, const BudgetLimit& limit, const std::string& subject,
                        const std::vector<Value>& values, BudgetOver over) const;

  Budget budget_;
  Names names_;
  std::size_t logs_ = 0;
  std::optional<LogSummary> summary_;         // of the present log
  std::map<std::string, ScopeCount> scopes_;  // of the present log, by path
  bool scopes_full_ = false;
  std::map<Place, std::vector<Value>> values_;
};

}  // namespace gpuflight::analysis
