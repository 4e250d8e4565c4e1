#include "event_filter.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "config/parse_value.h"
#include "failure.h"
#include "report/kernel_name.h"

namespace gpuflight::cli {
namespace {

constexpr std::size_t kMostKnownNames = 200'000;

}  // namespace

void EventFilter::add_name(const std::string& text) {
  Pattern pattern;
  if (text.size() >= 2 && text.front() == '/' && text.back() == '/') {
    try {
      pattern.regex.emplace(text.substr(1, text.size() - 2), std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      throw UsageError(fmt::format("'{}' is not a regular expression: {}", text, error.what()), verb_);
    }
  } else if (text.find_first_of("*?[") != std::string::npos) {
    pattern.glob = text;
  } else {
    pattern.part = text;
  }
  names_.push_back(std::move(pattern));
}

void EventFilter::add_limiter(const std::string& name) {
  const auto* found = std::find_if(event::kLimiterNames.begin(), event::kLimiterNames.end(),
                                   [&](const char* known) { return name == known; });
  if (found == event::kLimiterNames.end()) {
    throw UsageError(
        fmt::format("'{}' is not a limiter; there are {}", name, fmt::join(event::kLimiterNames, ", ")), verb_);
  }
  limiters_ |= event::limiter_bit(static_cast<event::Limiter>(found - event::kLimiterNames.begin()));
}

void EventFilter::set_occupancy_below(const std::string& text) {
  const bool percent = text.ends_with('%');
  const auto value = config::parse_float(std::string_view(text).substr(0, text.size() - (percent ? 1 : 0)));
  const double ratio = value ? *value / (percent ? 100 : 1) : -1;
  if (ratio < 0 || ratio > 1.000001) {
    throw UsageError(fmt::format("--occupancy-below takes 0 to 1 or 0% to 100%, not '{}'", text), verb_);
  }
  occupancy_below_ = ratio;
}

bool EventFilter::empty() const {
  return names_.empty() && limiters_ == 0 && !occupancy_below_ && streams_.empty() && !failed_only_;
}

bool EventFilter::passes(const log::KernelEventLine& line) {
  if (failed_only_ && line.launch.status.value_or(0) == 0) return false;
  if (!streams_.empty() && std::find(streams_.begin(), streams_.end(), line.launch.stream.value) == streams_.end()) {
    return false;
  }
  if (limiters_ != 0 && (line.occupancy.limiters & limiters_) == 0) return false;
  if (occupancy_below_ && !(line.occupancy_ratio && *line.occupancy_ratio < *occupancy_below_)) return false;
  return passes_name(line.kernel.name);
}

bool EventFilter::passes_name(const std::string& mangled) { return names_.empty() || name_passes(mangled); }

bool EventFilter::name_passes(const std::string& mangled) {
  if (const auto found = known_names_.find(mangled); found != known_names_.end()) return found->second;
  if (known_names_.size() >= kMostKnownNames) known_names_.clear();
  const std::string whole = report::demangled(mangled);
  const std::array names = {mangled, report::without_signature(whole), whole};
  const bool passes = std::any_of(names_.begin(), names_.end(), [&](const Pattern& pattern) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(pattern, name); });
  });
  known_names_.emplace(mangled, passes);
  return passes;
}

bool EventFilter::matches(const Pattern& pattern, const std::string& name) const {
  // std::regex recurses per character; a name of this length is no one's search target.
  constexpr std::size_t kMostForRegex = 8192;
  if (pattern.regex) return name.size() <= kMostForRegex && std::regex_search(name, *pattern.regex);
  if (!pattern.glob.empty()) return ::fnmatch(pattern.glob.c_str(), name.c_str(), 0) == 0;
  return name.find(pattern.part) != std::string::npos;
}

}  // namespace gpuflight::cli
