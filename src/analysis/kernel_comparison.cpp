#include "analysis/kernel_comparison.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/kernel_facts.h"

namespace gpuflight::analysis {
namespace {

using Side = std::map<KernelConfigKey, KernelSide>;

Side side_of(const std::vector<Recording>& recordings) {
  Side side;
  event::SketchBudget budget{0};  // the spread of all recordings together is not looked at
  double whole_ns = 0, whole_launches = 0;
  for (const Recording& recording : recordings) {
    for (const auto& [key, group] : recording.kernels) {
      const auto [at, fresh] = side.try_emplace(key);
      KernelSide& kernel = at->second;
      if (fresh) {
        kernel.key = key;
        kernel.all.label = group.label;
      }
      LaunchGroup plain = group;
      plain.gpu.sketch = event::QuantileSketch();
      kernel.all.add(plain, budget);
      kernel.launches.add(group.launches);
      ++kernel.recordings;
      whole_ns += group.estimated_total_ns().value_or(0);
      whole_launches += static_cast<double>(group.launches);
    }
  }
  for (auto& [key, kernel] : side) {
    if (kernel.recordings < recordings.size()) kernel.launches.add(std::uint64_t{0});
    const double part =
        whole_ns > 0 ? kernel.all.estimated_total_ns().value_or(0) : static_cast<double>(kernel.all.launches);
    const double whole = whole_ns > 0 ? whole_ns : whole_launches;
    kernel.share = whole > 0 ? part / whole : 0;
  }
  return side;
}

// Pairs what has the same part of its key, where that names one of each side. A change of a launch configuration is so
// seen as one, not as a kernel gone and another come.
template <class Part>
void pair_by(Side& before, Side& after, std::vector<ComparedKernel>& out, Part part) {
  using Value = decltype(part(std::declval<const KernelConfigKey&>()));
  std::map<Value, std::pair<std::vector<KernelConfigKey>, std::vector<KernelConfigKey>>> found;
  for (const auto& [key, kernel] : before) found[part(key)].first.push_back(key);
  for (const auto& [key, kernel] : after) found[part(key)].second.push_back(key);
  for (const auto& [value, keys] : found) {
    if (keys.first.size() != 1 || keys.second.size() != 1) continue;
    ComparedKernel pair;
    pair.before = std::move(before.extract(keys.first.front()).mapped());
    pair.after = std::move(after.extract(keys.second.front()).mapped());
    out.push_back(std::move(pair));
  }
}

std::vector<ComparedKernel> paired(Side before, Side after) {
  std::vector<ComparedKernel> out;
  pair_by(before, after, out, [](const KernelConfigKey& key) { return key; });
  pair_by(before, after, out, [](const KernelConfigKey& key) {
    return std::tuple(key.kernel, key.shape_known, key.block, key.cluster);
  });
  pair_by(before, after, out, [](const KernelConfigKey& key) { return key.kernel; });
  for (auto& [key, kernel] : before) {
    out.emplace_back();
    out.back().before = std::move(kernel);
  }
  for (auto& [key, kernel] : after) {
    out.emplace_back();
    out.back().after = std::move(kernel);
  }
  for (ComparedKernel& kernel : out) kernel.name = (kernel.after ? kernel.after : kernel.before)->all.label;
  return out;
}

std::vector<TimeSample> samples_of(const std::vector<Recording>& recordings, const std::optional<KernelSide>& side,
                                   double q, std::uint64_t least) {
  std::vector<TimeSample> samples;
  if (!side) return samples;
  for (const Recording& recording : recordings) {
    const auto found = recording.kernels.find(side->key);
    if (found == recording.kernels.end()) continue;
    const SpreadDurations& gpu = found->second.gpu;
    const auto ns = gpu.quantile_ns(q);
    if (ns && gpu.sketch.count() >= least) samples.push_back({*ns, recording.begin_unix_ns, gpu.sketch.error()});
  }
  return samples;
}

// Slower by either time is slower: a tail that grows is one. A 95th percentile that spreads too far takes nothing away
// from a median that does not.
void judge(ComparedKernel& kernel, Judge by) {
  const TimeChange& first = by == Judge::kP95 ? kernel.p95 : kernel.median;
  kernel.verdict = first.verdict;
  kernel.reason = first.reason;
  if (by == Judge::kBoth && kernel.p95.verdict == TimeVerdict::kSlower) {
    kernel.verdict = TimeVerdict::kSlower;
    kernel.reason.clear();
  }
}

void refuse(TimeChange& change, const std::string& reason) {
  change.verdict = TimeVerdict::kUnsure;
  change.reason = reason;
}

void compare_times_of(ComparedKernel& kernel, const Comparison& comparison, const std::string& refusal) {
  if (comparison.options.facts_only || !kernel.before || !kernel.after) return;
  const TimeRule& rule = comparison.options.rule;
  kernel.median = compare_times(samples_of(comparison.before, kernel.before, 0.5, 1),
                                samples_of(comparison.after, kernel.after, 0.5, 1), rule);
  kernel.p95 = compare_times(samples_of(comparison.before, kernel.before, 0.95, kLeastLaunchesForP95),
                             samples_of(comparison.after, kernel.after, 0.95, kLeastLaunchesForP95), rule);
  if (kernel.p95.before.empty() && !kernel.median.before.empty()) kernel.p95.reason = "fewer than 20 launches";
  if (kernel.p95.after.empty() && !kernel.median.after.empty()) kernel.p95.reason = "fewer than 20 launches";
  if (!refusal.empty()) {
    refuse(kernel.median, refusal);
    refuse(kernel.p95, refusal);
  }
  judge(kernel, comparison.options.judge);
}

bool fails(FailOnSet set, FailOn reason) { return (set & fail_bit(reason)) != 0; }

std::optional<FailOn> fail_of(Fact fact) {
  switch (fact) {
    case Fact::kLaunches: return FailOn::kLaunches;
    case Fact::kRegisters: return FailOn::kRegisters;
    case Fact::kShared: return FailOn::kShared;
    case Fact::kSpill: return FailOn::kSpill;
    case Fact::kOccupancy: return FailOn::kOccupancy;
    case Fact::kLimiter: return FailOn::kLimiter;
    case Fact::kBlock: case Fact::kCluster: case Fact::kGrid: case Fact::kBlocksPerSm: break;
  }
  return std::nullopt;
}

void decide(ComparedKernel& kernel, FailOnSet set) {
  const auto fail = [&](const char* by) {
    kernel.outcome = Outcome::kFail;
    if (!kernel.failed_by.empty()) kernel.failed_by += ", ";
    kernel.failed_by += by;
  };
  if (!kernel.before && fails(set, FailOn::kAdded)) fail("added");
  if (!kernel.after && fails(set, FailOn::kRemoved)) fail("removed");
  if (kernel.verdict == TimeVerdict::kSlower && kernel.counted && fails(set, FailOn::kSlower)) fail("slower");
  for (const FactChange& change : kernel.changes) {
    const auto reason = fail_of(change.fact);
    if (change.worse && reason && (fails(set, *reason) || fails(set, FailOn::kFacts))) {
      fail(kFactNames[static_cast<std::size_t>(change.fact)]);
    }
  }
  if (kernel.verdict == TimeVerdict::kUnsure && kernel.counted && fails(set, FailOn::kSlower)) {
    kernel.outcome = worse(kernel.outcome, Outcome::kUnsure);
  }
}

std::set<std::string> values_of(const std::vector<Recording>& recordings, int fact) {
  std::set<std::string> values;
  for (const Recording& recording : recordings) {
    values.insert(recording.machine[fact].begin(), recording.machine[fact].end());
  }
  return values;
}

std::vector<MachineDifference> differences_of(const Comparison& comparison) {
  std::vector<MachineDifference> out;
  for (int i = 0; i < kMachineFactCount; ++i) {
    MachineDifference difference{static_cast<MachineFact>(i), values_of(comparison.before, i),
                                 values_of(comparison.after, i)};
    if (difference.before.empty() || difference.after.empty()) continue;  // not known
    if (difference.before != difference.after) out.push_back(std::move(difference));
  }
  return out;
}

bool in_turns(const std::vector<Recording>& before, const std::vector<Recording>& after) {
  const auto bounds = [](const std::vector<Recording>& side) {
    Range<std::int64_t> times;
    for (const Recording& recording : side) times.add(recording.begin_unix_ns);
    return times;
  };
  const auto a = bounds(before), b = bounds(after);
  return a.known && b.known && a.min < b.max && b.min < a.max;
}

TimeChange total_of(const Comparison& comparison) {
  const auto samples = [](const std::vector<Recording>& side) {
    std::vector<TimeSample> out;
    for (const Recording& r : side) {
      if (r.kernel_total_ns > 0) out.push_back({r.kernel_total_ns, r.begin_unix_ns, 0});
    }
    return out;
  };
  return compare_times(samples(comparison.before), samples(comparison.after), comparison.options.rule);
}

// Failed first, then unsure, then what changed; each by share.
int weight_of(const ComparedKernel& kernel) {
  if (kernel.outcome == Outcome::kFail) return 0;
  if (kernel.verdict == TimeVerdict::kSlower) return 1;
  if (kernel.outcome == Outcome::kUnsure) return 2;
  if (!kernel.before || !kernel.after) return 3;
  if (kernel.verdict == TimeVerdict::kFaster) return 4;
  return kernel.changes.empty() ? 6 : 5;
}

}  // namespace

double ComparedKernel::share() const {
  return std::max(before ? before->share : 0.0, after ? after->share : 0.0);
}

std::size_t Comparison::judged() const {
  return static_cast<std::size_t>(std::count_if(kernels.begin(), kernels.end(), [](const ComparedKernel& k) {
    return k.counted && k.verdict;
  }));
}

std::size_t Comparison::count(TimeVerdict verdict) const {
  return static_cast<std::size_t>(std::count_if(kernels.begin(), kernels.end(), [&](const ComparedKernel& k) {
    return k.verdict == verdict;
  }));
}

Comparison compare(std::vector<Recording> before, std::vector<Recording> after, const CompareOptions& options) {
  Comparison comparison;
  comparison.options = options;
  comparison.before = std::move(before);
  comparison.after = std::move(after);
  comparison.differences = differences_of(comparison);
  comparison.in_turns = in_turns(comparison.before, comparison.after);
  comparison.kernels = paired(side_of(comparison.before), side_of(comparison.after));
  std::string refusal;
  for (const MachineDifference& difference : comparison.differences) {
    if (!decides_times(difference.fact) || options.force) continue;
    refusal += refusal.empty() ? "the sides differ in " : " and ";
    refusal += kMachineFactNames[static_cast<std::size_t>(difference.fact)];
  }
  comparison.refused = !refusal.empty() && !options.facts_only;
  if (!options.facts_only) comparison.total = total_of(comparison);
  if (comparison.refused) refuse(comparison.total, refusal);
  for (ComparedKernel& kernel : comparison.kernels) {
    kernel.changes = fact_changes(kernel.before, kernel.after);
    kernel.counted = kernel.share() >= options.least_share;
    compare_times_of(kernel, comparison, refusal);
    comparison.has_times |= !kernel.median.before.empty() || !kernel.median.after.empty();
    decide(kernel, options.fail_on);
    comparison.outcome = worse(comparison.outcome, kernel.outcome);
  }
  if (fails(options.fail_on, FailOn::kTotal)) {
    if (comparison.total.verdict == TimeVerdict::kSlower) comparison.outcome = Outcome::kFail;
    if (comparison.total.verdict == TimeVerdict::kUnsure) comparison.outcome = worse(comparison.outcome, Outcome::kUnsure);
  }
  std::stable_sort(comparison.kernels.begin(), comparison.kernels.end(),
                   [](const ComparedKernel& a, const ComparedKernel& b) {
                     const auto rank = [](const ComparedKernel& k) { return std::tuple(weight_of(k), -k.share()); };
                     return rank(a) != rank(b) ? rank(a) < rank(b) : a.name < b.name;
                   });
  for (std::vector<Recording>* side : {&comparison.before, &comparison.after}) {
    for (Recording& recording : *side) recording.kernels.clear();
  }
  return comparison;
}

std::optional<FailOn> fail_on(std::string_view name) {
  for (std::size_t i = 0; i < kFailOnNames.size(); ++i) {
    if (name == kFailOnNames[i]) return static_cast<FailOn>(i);
  }
  return std::nullopt;
}

}  // namespace gpuflight::analysis
