#include "analysis/budget.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

namespace gpuflight::analysis {
namespace {

using Json = nlohmann::ordered_json;
using Q = BudgetQuantity;
using S = BudgetSubject;

constexpr std::array kKeys = {
    BudgetKey{"idle_percent", S::kProgram, Q::kIdlePercent, "time in which the most idle device was idle"},
    BudgetKey{"sync_calls", S::kProgram, Q::kSyncCalls, "synchronisations", true},
    BudgetKey{"pageable_bytes", S::kProgram, Q::kPageableBytes, "bytes copied from or to pageable memory", true},
    BudgetKey{"copied_bytes", S::kProgram, Q::kCopiedBytes, "bytes copied", true},
    BudgetKey{"launches", S::kProgram, Q::kLaunches, "kernel launches", true},
    BudgetKey{"failed_launches", S::kProgram, Q::kFailedLaunches, "launches that were refused", true},
    BudgetKey{"peak_memory_bytes", S::kProgram, Q::kPeakMemoryBytes, "most device memory allocated at a time", true},
    BudgetKey{"lost_events", S::kProgram, Q::kLostEvents, "events that are missing"},
    BudgetKey{"p95_us", S::kKernel, Q::kP95, "95th percentile of the time"},
    BudgetKey{"median_us", S::kKernel, Q::kMedian, "median of the time"},
    BudgetKey{"max_us", S::kKernel, Q::kLongest, "longest time"},
    BudgetKey{"launches", S::kKernel, Q::kLaunches, "launches", true},
    BudgetKey{"registers", S::kKernel, Q::kRegisters, "registers per thread"},
    BudgetKey{"shared_bytes", S::kKernel, Q::kSharedBytes, "shared memory per block, static and dynamic"},
    BudgetKey{"spill_bytes", S::kKernel, Q::kSpillBytes, "local memory per thread"},
    BudgetKey{"occupancy_min", S::kKernel, Q::kLeastOccupancy, "theoretical occupancy", false, true},
    BudgetKey{"limiter", S::kKernel, Q::kLimiter, "what limits occupancy"},
    BudgetKey{"launches", S::kScope, Q::kLaunches, "launches within", true},
    BudgetKey{"launches_per_pass", S::kScope, Q::kLaunchesPerPass, "launches within, per time it was entered", true},
};

std::vector<std::string> names_of(S subject) {
  std::vector<std::string> names;
  for (const BudgetKey& key : kKeys) {
    if (key.subject == subject) names.emplace_back(key.name);
  }
  if (subject != S::kProgram) names.emplace_back("optional");
  return names;
}

std::string in_quotes(const std::string& text) { return "'" + text + "'"; }

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const NearestName& nearest) : text_(text), nearest_(nearest) {}

  Budget parse() {
    const Json root = read();
    if (!root.is_object()) throw BudgetError("the budget is to be an object: { \"kernels\": { ... } }");
    for (const auto& [name, section] : root.items()) {
      if (name == "program") {
        add_rule(S::kProgram, "", section, "program");
      } else if (name == "kernels") {
        add_section(S::kKernel, name, section);
      } else if (name == "scopes") {
        add_section(S::kScope, name, section);
      } else {
        unknown(name, {"program", "kernels", "scopes"}, "");
      }
    }
    if (budget_.rules.empty()) throw BudgetError("the budget has no limits");
    return std::move(budget_);
  }

 private:
  // A name that stands twice would be one budget less, unseen.
  Json read() {
    std::vector<std::set<std::string>> open;
    std::string twice;
    const auto look = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) open.emplace_back();
      if (event == Json::parse_event_t::object_end) open.pop_back();
      if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && twice.empty()) {
        twice = value.get<std::string>();
      }
      return true;
    };
    try {
      Json root = Json::parse(text_, look, true, true);
      if (!twice.empty()) throw BudgetError(in_quotes(twice) + " stands twice in one object");
      return root;
    } catch (const Json::exception& error) {
      std::string what = error.what();
      if (const std::size_t at = what.find("] "); what.starts_with("[json") && at != std::string::npos) {
        what.erase(0, at + 2);
      }
      throw BudgetError(what);
    }
  }

  [[noreturn]] void unknown(const std::string& name, const std::vector<std::string>& known, const std::string& where) {
    const std::string near = nearest_(name, known);
    throw BudgetError(place_of(name) + "unknown key " + in_quotes(name) + where +
                      (near.empty() ? "; there are " + listed(known) : ", did you mean " + in_quotes(near) + "?"));
  }

  void add_section(S subject, const std::string& name, const Json& section) {
    if (!section.is_object()) {
      throw BudgetError(place_of(name) + in_quotes(name) + " is to be an object: { \"PATTERN\": { limits } }");
    }
    for (const auto& [pattern, limits] : section.items()) add_rule(subject, pattern, limits, pattern);
  }

  void add_rule(S subject, const std::string& pattern, const Json& limits, const std::string& name) {
    if (!limits.is_object()) throw BudgetError(place_of(name) + in_quotes(name) + " is to be an object of limits");
    BudgetRule rule;
    rule.subject = subject;
    rule.pattern = pattern;
    rule.line = line_of(name);
    for (const auto& [key, value] : limits.items()) {
      if (key == "optional" && subject != S::kProgram) {
        if (!value.is_boolean()) wrong(name, key, "true or false");
        rule.optional = value.get<bool>();
      } else {
        rule.limits.push_back(limit_of(subject, name, key, value));
      }
    }
    if (rule.limits.empty()) throw BudgetError(place_of(name) + in_quotes(name) + " has no limits");
    budget_.rules.push_back(std::move(rule));
  }

  [[noreturn]] void wrong(const std::string& of, const std::string& key, const std::string& wanted) {
    throw BudgetError(place_of(of) + in_quotes(key) + " of " + in_quotes(of) + " is to be " + wanted);
  }

  BudgetLimit limit_of(S subject, const std::string& of, const std::string& name, const Json& value) {
    const auto key = std::find_if(kKeys.begin(), kKeys.end(),
                                  [&](const BudgetKey& k) { return k.subject == subject && name == k.name; });
    if (key == kKeys.end()) unknown(name, names_of(subject), " of " + in_quotes(of));
    BudgetLimit limit;
    limit.key = &*key;
    if (key->quantity == Q::kLimiter) {
      limit.limiters = limiters_of(of, value);
      return limit;
    }
    if (!value.is_number()) wrong(of, name, "a number");
    limit.value = value.get<double>();
    if (!std::isfinite(limit.value) || limit.value < 0) wrong(of, name, "0 or more");
    if (key->quantity == Q::kLeastOccupancy && limit.value > 1) wrong(of, name, "0 to 1");
    if (key->quantity == Q::kIdlePercent && limit.value > 100) wrong(of, name, "0 to 100");
    return limit;
  }

  event::LimiterSet limiters_of(const std::string& of, const Json& value) {
    event::LimiterSet set = 0;
    for (const Json& name : value.is_array() ? value : Json::array({value})) {
      const auto* const found = std::find_if(event::kLimiterNames.begin(), event::kLimiterNames.end(),
                                             [&](const char* known) { return name == known; });
      if (found == event::kLimiterNames.end()) {
        wrong(of, "limiter", "one or more of " + listed({event::kLimiterNames.begin(), event::kLimiterNames.end()}));
      }
      set |= event::limiter_bit(static_cast<event::Limiter>(found - event::kLimiterNames.begin()));
    }
    if (set == 0) wrong(of, "limiter", "one limiter at least");
    return set;
  }

  // The parser keeps no positions: where the name first stands as a key.
  std::size_t line_of(const std::string& name) const {
    const std::string key = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
    for (std::size_t at = 0; (at = text_.find(key, at)) != std::string_view::npos; at += key.size()) {
      const std::size_t next = text_.find_first_not_of(" \t\r\n", at + key.size());
      if (next == std::string_view::npos || text_[next] != ':') continue;
      return static_cast<std::size_t>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + 1;
    }
    return 1;
  }
  std::string place_of(const std::string& name) const { return "line " + std::to_string(line_of(name)) + ": "; }

  std::string_view text_;
  const NearestName& nearest_;
  Budget budget_;
};

}  // namespace

std::span<const BudgetKey> budget_keys() { return kKeys; }

Budget parse_budget(std::string_view text, const NearestName& nearest) { return Parser(text, nearest).parse(); }

}  // namespace gpuflight::analysis
