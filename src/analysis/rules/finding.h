// What a rule has to say: in words with named numbers, the events that show it, the time it costs, what to do.
// Words are templates: {key} stands for the fact of that name, which the report prints by its unit, so that nothing
// here depends on the width of a terminal or on how a kernel's name is shortened.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpuflight::analysis::rules {

// An event by where it stands. `file` is a row of Analysis::files.
struct EventRef {
  std::uint32_t file = 0;
  std::uint64_t line = 0;  // from 1
  std::uint64_t seq = 0;
  std::int64_t at_ns = 0;  // since t0 of its recording
};

enum class Severity : std::uint8_t { kInfo, kWarning, kCritical };
inline constexpr std::array<const char*, 3> kSeverityNames = {"info", "warning", "critical"};

enum class Unit : std::uint8_t { kCount, kNs, kBytes, kRatio, kNumber, kKernel, kText };

struct Fact {
  std::string key;
  Unit unit = Unit::kCount;
  double value = 0;
  std::string text = {};  // of kKernel the mangled name, of kCount what is counted, in the singular, or nothing
};

// What cost_ns is.
enum class CostKind : std::uint8_t {
  kNone,     // no time can be named
  kLost,     // measured: time in which something waited that need not have
  kBound,    // the most that can be won
  kAtStake,  // time of the work concerned; how much of it can be won is not known
};
inline constexpr std::array<const char*, 4> kCostKindNames = {"none", "lost", "bound", "at_stake"};

struct Finding {
  std::string rule;
  Severity severity = Severity::kInfo;
  std::string message, cost_how, remedy;  // templates
  std::vector<Fact> facts;
  std::int64_t cost_ns = 0;
  CostKind cost_kind = CostKind::kNone;
  double cost_share = 0;                // of the time from the first work to the last
  std::uint32_t log = 0;
  std::optional<std::int32_t> device = std::nullopt;
  std::vector<EventRef> evidence;       // the weightiest few
  std::uint64_t evidence_total = 0;
  std::vector<std::string> also;        // rules that found what this one explains

  Finding& count(std::string key, std::uint64_t n) {
    return fact(std::move(key), Unit::kCount, static_cast<double>(n));
  }
  Finding& count(std::string key, std::uint64_t n, std::string noun) {
    facts.push_back({std::move(key), Unit::kCount, static_cast<double>(n), std::move(noun)});
    return *this;
  }
  Finding& ns(std::string key, double n) { return fact(std::move(key), Unit::kNs, n); }
  Finding& bytes(std::string key, std::uint64_t n) {
    return fact(std::move(key), Unit::kBytes, static_cast<double>(n));
  }
  Finding& ratio(std::string key, double r) { return fact(std::move(key), Unit::kRatio, r); }
  Finding& number(std::string key, double r) { return fact(std::move(key), Unit::kNumber, r); }
  Finding& kernel(std::string key, std::string mangled) {
    facts.push_back({std::move(key), Unit::kKernel, 0, std::move(mangled)});
    return *this;
  }
  Finding& text(std::string key, std::string words) {
    facts.push_back({std::move(key), Unit::kText, 0, std::move(words)});
    return *this;
  }

 private:
  Finding& fact(std::string key, Unit unit, double value) {
    facts.push_back({std::move(key), unit, value});
    return *this;
  }
};

// The weightiest few of any number of events.
class Evidence {
 public:
  static constexpr std::size_t kMost = 5;
  void add(const EventRef& ref, std::int64_t weight) {
    ++total_;
    if (kept_.size() < kMost) return kept_.emplace_back(weight, ref), void();
    std::size_t least = 0;
    for (std::size_t i = 1; i < kept_.size(); ++i) {
      if (kept_[i].first < kept_[least].first) least = i;
    }
    if (weight > kept_[least].first) kept_[least] = {weight, ref};
  }
  void add(const Evidence& other) {
    const std::uint64_t total = total_ + other.total_;
    for (const auto& [weight, ref] : other.kept_) add(ref, weight);
    total_ = total;
  }
  std::uint64_t total() const { return total_; }
  void give(Finding& finding) const;  // weightiest first

 private:
  std::vector<std::pair<std::int64_t, EventRef>> kept_;
  std::uint64_t total_ = 0;
};

}  // namespace gpuflight::analysis::rules
