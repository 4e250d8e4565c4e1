#include "analysis/budget_check.h"

#include <fnmatch.h>

#include <algorithm>

#include "analysis/kernel_facts.h"
#include "analysis/rank_test.h"

namespace gpuflight::analysis {
namespace {

using Q = BudgetQuantity;

constexpr const char* kNoTimes = "no GPU times (record with --timing all)";
constexpr const char* kNoFacts = "the log does not say it (recorded without details)";

bool worked(const LogFacts& log) {
  return log.launches + log.gpu_kernels + log.copies + log.fills + log.graph_launches > 0;
}

bool events_missing(const LogFacts& log) { return log.lost() + log.missing_events() > 0; }

// Of those deleted with an old segment launches are still told of, by the summary at the end.
bool lines_missing(const LogFacts& log) {
  return events_missing(log) || (log.ledger && log.ledger->rotated_away > 0);
}

template <class T>
std::optional<double> most(const Range<T>& range) {
  return range.known ? std::optional<double>(static_cast<double>(range.max)) : std::nullopt;
}

std::optional<double> in_us(const std::optional<double>& ns) {
  return ns ? std::optional<double>(*ns / 1000) : std::nullopt;
}

// A device is idle where nothing is known to have run: of samples that says nothing, nor where times are missing.
bool all_timed(const LogFacts& log) {
  return !log.times_sampled() && log.summarised == 0 && log.untimed_kernels <= log.timed_kernels / 100;
}

std::optional<double> idle_percent(const LogFacts& log) {
  std::optional<double> idle;
  if (!all_timed(log)) return idle;
  for (const LogFacts::DeviceBusy& device : log.busy) {
    const auto span = static_cast<double>(device.times.span_ns());
    if (span <= 0) continue;
    idle = std::max(idle.value_or(0), 100 * static_cast<double>(device.times.idle_ns()) / span);
  }
  return idle;
}

bool matches(const std::string& pattern, const std::string& name) {
  return pattern == name || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// A '*' stands for one level of a scope's path.
bool scope_matches(const std::string& pattern, const std::string& path) {
  return pattern == path || fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
}

bool within(const BudgetLimit& limit, double value) {
  return limit.key->at_least ? value >= limit.value - 1e-6 : value <= limit.value;
}

}  // namespace

void BudgetCheck::begin_log(const std::string& path) {
  summary_.emplace(GroupBy::kKernel);
  summary_->begin_log(path);
  scopes_.clear();
  scopes_full_ = false;
  ++logs_;
}

void BudgetCheck::add(const log::LogEvent& event) {
  summary_->add(event);
  const std::string* path = nullptr;
  bool pass = false;
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) {
    const bool own = !kernel->launch.captured && kernel->launch.seq.slot() != event::kGpuSlot;
    if (own && kernel->scope) path = &*kernel->scope;
  } else if (const auto* scope = std::get_if<log::ScopeLine>(&event)) {
    pass = scope->event.phase == event::ScopeEvent::Phase::kBegin;
    if (pass && scope->scope) path = &*scope->scope;
  }
  if (path == nullptr) return;
  const auto found = scopes_.find(*path);
  if (found == scopes_.end() && scopes_.size() >= kMostScopes) {
    scopes_full_ = true;
    return;
  }
  ScopeCount& count = found != scopes_.end() ? found->second : scopes_[*path];
  ++(pass ? count.passes : count.launches);
}

void BudgetCheck::end_log(const log::ReadStats& stats) {
  summary_->end_log(stats);
  const LogFacts& log = summary_->logs().front();
  for (std::size_t i = 0; i < budget_.rules.size(); ++i) {
    switch (budget_.rules[i].subject) {
      case BudgetSubject::kProgram: take_program(i, log); break;
      case BudgetSubject::kKernel: take_kernels(i, log); break;
      case BudgetSubject::kScope: take_scopes(i, log); break;
    }
  }
  summary_.reset();
}

void BudgetCheck::take(std::size_t rule, std::size_t limit, const std::string& subject, Value value) {
  values_[{{rule, limit}, subject}].push_back(std::move(value));
}

void BudgetCheck::take_program(std::size_t rule, const LogFacts& log) {
  const std::vector<BudgetLimit>& limits = budget_.rules[rule].limits;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    // A process that gave the GPU nothing to do (a parent, a worker) did not leave it idle.
    if (limits[i].key->quantity == Q::kIdlePercent && !worked(log)) continue;
    Value value = program_value(limits[i].key->quantity, log);
    value.log = log.path;
    take(rule, i, "", std::move(value));
  }
}

BudgetCheck::Value BudgetCheck::program_value(Q quantity, const LogFacts& log) const {
  Value value;
  value.too_small = quantity == Q::kLaunches ? events_missing(log) : lines_missing(log);
  const auto count = [&](std::uint64_t n) { value.value = static_cast<double>(n); };
  switch (quantity) {
    case Q::kIdlePercent:
      value.value = idle_percent(log);
      value.why_unknown = "not all kernels have GPU times (record with --timing all)";
      value.too_small = false;
      break;
    case Q::kPageableBytes: case Q::kCopiedBytes: {
      value.why_unknown = "copies are told with their bytes only where GPU times are recorded (--timing all)";
      if (!log.times_expected() && log.copies == 0) break;
      std::uint64_t bytes = 0;
      for (const auto& [key, copies] : summary_->activity().copies()) {
        const bool pageable =
            key.source == event::MemoryKind::kPageable || key.destination == event::MemoryKind::kPageable;
        if (pageable || quantity == Q::kCopiedBytes) bytes += copies.bytes;
      }
      count(bytes);
      break;
    }
    case Q::kPeakMemoryBytes: {
      // Kinds and pools peak at different times: the sum is a bound, and exact where there is one kind.
      std::map<std::int32_t, std::uint64_t> by_device;
      for (const auto& [key, row] : summary_->activity().memory()) {
        const bool on_device = key.second.kind == event::AllocationKind::kDevice ||
                               key.second.kind == event::AllocationKind::kPool ||
                               key.second.kind == event::AllocationKind::kVirtual;
        if (on_device) by_device[key.second.device] += row.peak_bytes.value_or(0);
      }
      std::uint64_t peak = 0;
      for (const auto& [device, bytes] : by_device) peak = std::max(peak, bytes);
      count(peak);
      break;
    }
    case Q::kSyncCalls: count(log.sync_calls); break;
    case Q::kLaunches: count(log.launches); break;
    case Q::kFailedLaunches: count(log.failed); break;
    case Q::kLostEvents:
      count(log.lost() + log.missing_events());
      value.too_small = false;
      break;
    default: break;
  }
  return value;
}

void BudgetCheck::take_kernels(std::size_t rule, const LogFacts& log) {
  const BudgetRule& wanted = budget_.rules[rule];
  for (const LaunchGroup& group : summary_->groups()) {
    const std::vector<std::string> names = names_(group.label);
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return matches(wanted.pattern, name); })) {
      continue;
    }
    for (std::size_t i = 0; i < wanted.limits.size(); ++i) {
      Value value = kernel_value(wanted.limits[i].key->quantity, group, log);
      value.log = log.path;
      take(rule, i, group.label, std::move(value));
    }
  }
}

BudgetCheck::Value BudgetCheck::kernel_value(Q quantity, const LaunchGroup& group, const LogFacts& log) {
  Value value;
  value.why_unknown = kNoFacts;
  switch (quantity) {
    case Q::kP95: value.value = in_us(group.gpu.quantile_ns(0.95)), value.why_unknown = kNoTimes; break;
    case Q::kMedian: value.value = in_us(group.gpu.quantile_ns(0.5)), value.why_unknown = kNoTimes; break;
    case Q::kLongest: value.value = in_us(most(group.gpu.each_ns)), value.why_unknown = kNoTimes; break;
    case Q::kLaunches:
      value.value = static_cast<double>(group.launches);
      value.too_small = events_missing(log);
      break;
    case Q::kRegisters: value.value = most(group.num_regs); break;
    case Q::kSharedBytes: value.value = most(shared_bytes(group)); break;
    case Q::kSpillBytes: value.value = most(group.local_bytes_per_thread); break;
    case Q::kLeastOccupancy:
      if (group.occupancy.known) value.value = group.occupancy.min;
      break;
    case Q::kLimiter:
      for (std::size_t i = 0; i < group.limited_by.size(); ++i) {
        if (group.limited_by[i] > 0) value.limiters |= event::limiter_bit(static_cast<event::Limiter>(i));
      }
      if (value.limiters != 0) value.value = 0;
      break;
    default: break;
  }
  return value;
}

std::uint64_t BudgetCheck::launches_within(const std::string& scope) const {
  std::uint64_t launches = 0;
  if (const auto own = scopes_.find(scope); own != scopes_.end()) launches = own->second.launches;
  const std::string below = scope + "/";
  for (auto at = scopes_.lower_bound(below); at != scopes_.end() && at->first.starts_with(below); ++at) {
    launches += at->second.launches;
  }
  return launches;
}

void BudgetCheck::take_scopes(std::size_t rule, const LogFacts& log) {
  const BudgetRule& wanted = budget_.rules[rule];
  for (const auto& [path, count] : scopes_) {
    if (!scope_matches(wanted.pattern, path)) continue;
    for (std::size_t i = 0; i < wanted.limits.size(); ++i) {
      Value value;
      value.log = log.path;
      // Summaries do not say in which scope a launch was.
      value.too_small = lines_missing(log) || log.summarised > 0 || scopes_full_;
      const auto launches = static_cast<double>(launches_within(path));
      if (wanted.limits[i].key->quantity == Q::kLaunches) {
        value.value = launches;
      } else if (count.passes > 0) {
        value.value = launches / static_cast<double>(count.passes);
      }
      value.why_unknown = "the log does not say when the scope was entered";
      take(rule, i, path, std::move(value));
    }
  }
}

BudgetFinding BudgetCheck::finding(const BudgetRule& rule, const BudgetLimit& limit, const std::string& subject,
                                   const std::vector<Value>& values, BudgetOver over) const {
  BudgetFinding out;
  out.rule = &rule;
  out.key = limit.key;
  out.subject = subject;
  out.limit = limit.value;
  out.allowed = limit.limiters;
  std::vector<double> known;
  bool too_small = false;
  std::string unknown;
  for (const Value& value : values) {
    too_small |= value.too_small;
    out.limiters |= value.limiters;
    if (!value.value) {
      unknown = value.why_unknown;
      continue;
    }
    known.push_back(*value.value);
    const bool worst = !out.value || (limit.key->at_least ? *value.value < *out.value : *value.value > *out.value);
    if (!worst) continue;
    out.value = value.value;
    out.log = value.log;
  }
  out.logs = known.size();
  if (over == BudgetOver::kMedian && out.value && limit.key->quantity != Q::kLimiter) {
    out.value = median_of(known);
    out.log.clear();
  }
  const bool met = out.value && (limit.key->quantity == Q::kLimiter ? (out.limiters & ~out.allowed) == 0
                                                                   : within(limit, *out.value));
  if (out.value && !met) {
    out.outcome = Outcome::kFail;
  } else if (!unknown.empty()) {
    out.outcome = Outcome::kUnsure;
    out.reason = unknown;
  } else if (too_small && limit.key->counts) {
    out.outcome = Outcome::kUnsure;
    out.reason = "events are missing from the log: there may be more";
  }
  return out;
}

std::vector<BudgetFinding> BudgetCheck::findings(BudgetOver over) const {
  std::vector<BudgetFinding> out;
  for (std::size_t i = 0; i < budget_.rules.size(); ++i) {
    const BudgetRule& rule = budget_.rules[i];
    const std::size_t before = out.size();
    auto at = values_.lower_bound({{i, 0}, ""});
    for (; at != values_.end() && at->first.first.first == i; ++at) {
      out.push_back(finding(rule, rule.limits[at->first.first.second], at->first.second, at->second, over));
    }
    if (out.size() > before) continue;
    BudgetFinding none;
    none.rule = &rule;
    none.outcome = rule.optional ? Outcome::kPass : Outcome::kFail;
    none.reason = "matched nothing";
    out.push_back(std::move(none));
  }
  return out;
}

}  // namespace gpuflight::analysis
