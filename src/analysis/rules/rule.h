// A rule sees one log in one pass, in bounded memory, and says at its end what it found. One object per log.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/rules/timeline_events.h"
#include "event/events.h"

namespace gpuflight::analysis::rules {

// One device of one log. Idle time is that between works, split as HTA does it.
struct DeviceTotals {
  std::int64_t first_ns = kNoTime, last_ns = kNoTime;
  std::int64_t busy_ns = 0;
  std::int64_t host_wait_ns = 0;    // the launch began after the device ran dry
  std::int64_t kernel_wait_ns = 0;  // short gaps before work that had been launched
  std::int64_t other_idle_ns = 0;
  std::int64_t unknown_ns = 0;      // no work is known of, but kernels without times were launched
  std::int64_t kernel_ns = 0, copy_ns = 0;  // added up
  std::uint64_t works = 0;
  std::int64_t span_ns() const { return first_ns == kNoTime ? 0 : last_ns - first_ns; }
  std::int64_t idle_ns() const { return host_wait_ns + kernel_wait_ns + other_idle_ns; }
};

struct LogTotals {
  std::map<std::int32_t, DeviceTotals> devices;
  std::int64_t first_call_ns = kNoTime, last_call_ns = kNoTime;
  std::int64_t sync_ns = 0;  // host time in synchronisations
  std::uint64_t calls = 0, works = 0, launches = 0;
  std::uint64_t untimed = 0;  // kernels that ran and whose times are not known

  // Whether the timeline has all there was, but for a twentieth of the launches.
  bool whole() const { return works > 0 && untimed * 20 <= launches; }

  // What shares are of: from the first work of the log to the last, or of its calls where no times are known.
  std::int64_t span_ns() const;
  std::int64_t span_ns(std::int32_t device) const;
  std::int64_t kernel_ns() const;
};

// What is known about the log besides its events; filled while it is read.
class LogContext {
 public:
  virtual ~LogContext() = default;
  virtual const LaunchConfig* config(std::uint32_t row) const = 0;        // nullptr: not known
  virtual const event::StreamInfo* stream(std::uint32_t stream) const = 0;
  virtual const event::DeviceInfo* device(std::int32_t device) const = 0;
};

class Rule {
 public:
  virtual ~Rule() = default;
  virtual void on_call(const HostCall&) {}
  virtual void on_gap(const Gap&, const GpuWork& after);  // before on_work of `after`
  virtual void on_work(const GpuWork&) {}
  virtual void at_end(const LogTotals&, std::vector<Finding>&) = 0;
  void attach(const LogContext& context) { log_ = &context; }

 protected:
  const LogContext& log() const { return *log_; }

 private:
  const LogContext* log_ = nullptr;
};

struct Threshold {
  const char* name;
  double value;
  const char* what;
};

class RuleSettings {
 public:
  explicit RuleSettings(const std::vector<Threshold>& defaults) {
    for (const Threshold& t : defaults) values_[t.name] = t.value;
  }
  double operator[](std::string_view threshold) const { return values_.at(std::string(threshold)); }
  std::int64_t ns(std::string_view threshold, double unit_ns) const {
    return static_cast<std::int64_t>((*this)[threshold] * unit_ns);
  }
  std::uint64_t count(std::string_view threshold) const { return static_cast<std::uint64_t>((*this)[threshold]); }
  bool set(const std::string& threshold, double value) {
    const auto found = values_.find(threshold);
    if (found == values_.end()) return false;
    found->second = value;
    return true;
  }

 private:
  std::map<std::string, double> values_;
};

struct RankTotals;

struct RuleInfo {
  const char* name;
  const char* what;
  const char* source;
  std::vector<Threshold> thresholds;
  std::unique_ptr<Rule> (*make)(const RuleSettings&);
  // Whether it looks at what follows what: nothing to say of a log in which only samples have times.
  enum class Needs : std::uint8_t { kTimeline, kSamples } needs = Needs::kTimeline;
  // Findings of these on the same log are put under one of this rule where it accounts for their time.
  std::vector<const char*> explains = {};
  // Of several logs together; nullptr: the rule looks at one log only.
  void (*across)(const std::vector<RankTotals>&, const RuleSettings&, std::vector<Finding>&) = nullptr;
};

// A finding with its cost and the severity that the cost's share of the span gives: from 20 % on critical, from 5 % on
// a warning. What is only at stake is never critical.
Finding costed(const char* rule, CostKind kind, std::int64_t cost_ns, std::int64_t span_ns);

template <class T>
std::unique_ptr<Rule> make_rule(const RuleSettings& settings) {
  return std::make_unique<T>(settings);
}

inline double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace gpuflight::analysis::rules
