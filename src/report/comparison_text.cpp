// The sentences of a comparison, the same in every form.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/kernel_facts.h"
#include "report/comparison_report.h"
#include "report/kernel_name.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using analysis::ComparedKernel;
using analysis::Comparison;
using analysis::Fact;
using analysis::Range;
using analysis::Recording;
using analysis::TimeVerdict;

constexpr const char* kUnknown = "-";

template <class T>
std::string range_text(const Range<T>& range) {
  if (!range.known) return kUnknown;
  return range.single() ? fmt::format("{}", range.min) : fmt::format("{}..{}", range.min, range.max);
}

std::string dim_text(const event::Dim3& dim) { return fmt::format("({},{},{})", dim.x, dim.y, dim.z); }

std::string limiters_text(event::LimiterSet set) {
  std::string out;
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if ((set & event::limiter_bit(static_cast<event::Limiter>(i))) == 0) continue;
    if (!out.empty()) out += ", ";
    out += event::kLimiterNames[i];
  }
  return out.empty() ? kUnknown : out;
}

std::string joined(const std::set<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : ", ") + printable(value);
  return out;
}

std::string time_change_text(const char* name, const analysis::TimeChange& change) {
  std::string out = fmt::format("{} {} -> {}", name, duration_text(change.before_ns), duration_text(change.after_ns));
  if (change.p) out += fmt::format(", p {:.2g}", *change.p);
  return out;
}

void side_notes(std::vector<std::string>& notes, const std::vector<Recording>& side, const char* name) {
  std::uint64_t missing = 0;
  std::size_t open = 0;
  bool complete = true;
  for (const Recording& recording : side) {
    missing += recording.missing_events;
    open += recording.without_end;
    complete &= recording.complete;
  }
  if (missing > 0) {
    notes.push_back(fmt::format("{} event{} of the recordings {} missing: launches are counted too low",
                                count_text(missing), missing == 1 ? "" : "s", name));
  }
  if (open > 0) {
    notes.push_back(fmt::format("{} log{} of the recordings {} {} no end: the program was killed or is still running",
                                open, open == 1 ? "" : "s", name, open == 1 ? "has" : "have"));
  }
  if (!complete) notes.push_back(fmt::format("the recordings {} have more configurations than are kept apart", name));
}

}  // namespace

std::string config_text(const analysis::KernelConfigKey& key) {
  if (!key.shape_known) return kUnknown;
  std::string out = dim_text(key.block);
  if (key.cluster.count() > 0) out += " cluster " + dim_text(key.cluster);
  if (key.dyn_shared_bytes > 0) out += fmt::format("+{} B", key.dyn_shared_bytes);
  return out;
}

std::string fact_text(Fact fact, const analysis::KernelSide& side) {
  const analysis::LaunchGroup& group = side.all;
  switch (fact) {
    case Fact::kLaunches: return range_text(side.launches);
    case Fact::kRegisters: return range_text(group.num_regs);
    case Fact::kShared: return range_text(group.static_shared_bytes) + "+" + range_text(group.dyn_shared_bytes);
    case Fact::kSpill: return range_text(group.local_bytes_per_thread);
    case Fact::kBlock: return group.block_threads.known ? dim_text(group.block) : kUnknown;
    case Fact::kCluster: return group.cluster.count() > 0 ? dim_text(group.cluster) : "none";
    case Fact::kGrid: return range_text(group.grid_blocks);
    case Fact::kBlocksPerSm: return range_text(group.max_active_blocks);
    case Fact::kLimiter: return limiters_text(group.limiters);
    case Fact::kOccupancy: break;
  }
  if (!group.occupancy.known) return kUnknown;
  return group.occupancy.single()
             ? percent_text(group.occupancy.min, 1)
             : percent_text(group.occupancy.min, 1) + ".." + percent_text(group.occupancy.max, 1);
}

std::string change_text(const ComparedKernel& kernel) {
  if (!kernel.before) return "added";
  if (!kernel.after) return "removed";
  std::vector<std::string> parts;
  if (kernel.verdict == TimeVerdict::kUnsure) {
    parts.push_back("unsure: " + kernel.reason);
  } else if (kernel.verdict == TimeVerdict::kSlower || kernel.verdict == TimeVerdict::kFaster) {
    const bool by_tail = kernel.median.verdict != *kernel.verdict;
    const analysis::TimeChange& change = by_tail ? kernel.p95 : kernel.median;
    const bool slower = kernel.verdict == TimeVerdict::kSlower;
    const double ratio = change.ratio.value_or(1);
    parts.push_back(fmt::format("{} by {} ({})", slower ? "slower" : "faster",
                                percent_text(slower ? ratio - 1 : 1 - ratio, 1),
                                time_change_text(by_tail ? "p95" : "median", change)));
  } else if (kernel.verdict) {
    parts.push_back("same time");
  }
  for (const analysis::FactChange& change : kernel.changes) {
    parts.push_back(fmt::format("{} {} -> {}", analysis::kFactNames[static_cast<std::size_t>(change.fact)],
                                fact_text(change.fact, *kernel.before), fact_text(change.fact, *kernel.after)));
  }
  return parts.empty() ? "no fact changed" : fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> comparison_notes(const Comparison& comparison) {
  std::vector<std::string> notes;
  for (const analysis::MachineDifference& difference : comparison.differences) {
    notes.push_back(fmt::format("{} differs: {} | {}",
                                analysis::kMachineFactNames[static_cast<std::size_t>(difference.fact)],
                                joined(difference.before), joined(difference.after)));
  }
  if (comparison.refused) notes.push_back("times are not compared, as the machines differ (--force compares them)");
  side_notes(notes, comparison.before, "before");
  side_notes(notes, comparison.after, "after");
  if (comparison.options.facts_only) return notes;
  const std::size_t fewest = std::min(comparison.before.size(), comparison.after.size());
  if (!comparison.has_times) {
    notes.push_back("no GPU times: record with --timing all, or compare facts alone with --facts");
  } else if (fewest < analysis::kLeastRecordings && !comparison.refused) {
    notes.push_back("a verdict on time needs three recordings a side: runs drift, and launches of one run are not "
                    "independent");
  } else if (!comparison.in_turns && !comparison.refused) {
    notes.push_back("one side was recorded before the other: what changed between them on the machine looks like a "
                    "change of the program (record in turns)");
  }
  // Of each of its two times where both are looked at.
  const double chance = comparison.options.rule.alpha_for(comparison.before.size(), comparison.after.size()) /
                        (comparison.options.judge == analysis::Judge::kBoth ? 1 : 2);
  if (comparison.judged() > 1 && fewest >= analysis::kLeastRecordings && !comparison.refused && comparison.has_times) {
    notes.push_back(fmt::format("{} kernels were judged, each SLOWER by chance alone in at most {} of comparisons",
                                comparison.judged(), percent_text(chance, 1)));
  }
  return notes;
}

std::string comparison_summary(const Comparison& comparison) {
  std::vector<std::string> parts;
  for (const TimeVerdict verdict : {TimeVerdict::kSlower, TimeVerdict::kUnsure, TimeVerdict::kFaster, TimeVerdict::kSame}) {
    const std::size_t count = comparison.count(verdict);
    if (count > 0) parts.push_back(fmt::format("{} {}", count, analysis::kTimeVerdictNames[static_cast<int>(verdict)]));
  }
  std::size_t added = 0, removed = 0, changed = 0;
  for (const ComparedKernel& kernel : comparison.kernels) {
    added += kernel.before ? 0 : 1;
    removed += kernel.after ? 0 : 1;
    changed += kernel.changes.empty() ? 0 : 1;
  }
  if (changed > 0) parts.push_back(fmt::format("facts of {} changed", changed));
  if (added > 0) parts.push_back(fmt::format("{} added", added));
  if (removed > 0) parts.push_back(fmt::format("{} removed", removed));
  if (parts.empty()) parts.push_back(comparison.kernels.empty() ? "no kernels" : "no fact changed");
  return fmt::format("{}: {}", analysis::kOutcomeNames[static_cast<int>(comparison.outcome)], fmt::join(parts, ", "));
}

}  // namespace gpuflight::report
