// Devices of one process, and ranks of one run, that have unequal work; which one the others wait for.
#include <algorithm>
#include <map>

#include "analysis/rules/rank_totals.h"
#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr const char* kName = "imbalance";

struct Load {
  std::string name;
  std::int64_t busy_ns = 0;
};

// How far the busiest is above the mean of all; the index of the busiest.
struct Uneven {
  std::size_t busiest = 0, least = 0;
  double mean_ns = 0;
  double above_ns = 0;
};
Uneven compare(const std::vector<Load>& loads) {
  Uneven uneven;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    uneven.mean_ns += static_cast<double>(loads[i].busy_ns) / static_cast<double>(loads.size());
    if (loads[i].busy_ns > loads[uneven.busiest].busy_ns) uneven.busiest = i;
    if (loads[i].busy_ns < loads[uneven.least].busy_ns) uneven.least = i;
  }
  uneven.above_ns = static_cast<double>(loads[uneven.busiest].busy_ns) - uneven.mean_ns;
  return uneven;
}

bool too_uneven(const std::vector<Load>& loads, const Uneven& uneven, double bound) {
  return uneven.above_ns > bound * static_cast<double>(loads[uneven.busiest].busy_ns);
}

Finding busy_finding(const std::vector<Load>& loads, const Uneven& uneven, std::int64_t span) {
  Finding f = costed(kName, CostKind::kBound, static_cast<std::int64_t>(uneven.above_ns), span);
  f.message =
      "{straggler} was busy for {most}, {least_name} for {least}, the mean of {count} is {mean}: the others wait for "
      "{straggler}";
  f.cost_how = "busy time of the busiest less the mean";
  f.remedy =
      "deal the work out by what each takes, not by number of items; look at why the same work takes longer there";
  f.text("straggler", loads[uneven.busiest].name).ns("most", static_cast<double>(loads[uneven.busiest].busy_ns));
  f.text("least_name", loads[uneven.least].name).ns("least", static_cast<double>(loads[uneven.least].busy_ns));
  f.count("count", loads.size()).ns("mean", uneven.mean_ns);
  return f;
}

class Imbalance final : public Rule {
 public:
  explicit Imbalance(const RuleSettings& set) : bound_(set["busy"]) {}

  void on_work(const GpuWork& work) override { evidence_[work.device].add(work.ref, work.duration_ns()); }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    std::vector<Load> loads;
    std::vector<std::int32_t> numbers;
    for (const auto& [number, device] : totals.devices) {
      loads.push_back({"device " + std::to_string(number), device.busy_ns});
      numbers.push_back(number);
    }
    if (loads.size() < 2) return;
    const Uneven uneven = compare(loads);
    if (!too_uneven(loads, uneven, bound_)) return;
    Finding f = busy_finding(loads, uneven, totals.span_ns());
    f.device = numbers[uneven.busiest];
    evidence_[*f.device].give(f);
    findings.push_back(std::move(f));
  }

 private:
  const double bound_;
  std::map<std::int32_t, Evidence> evidence_;
};

// Collectives are barriers: the k-th of each rank is the same one, and ends when the last rank has come to it.
struct Arrivals {
  std::vector<std::uint64_t> last;  // by rank: how often it was the last
  std::vector<Evidence> evidence;
  std::uint64_t rounds = 0;
  double waited_ns = 0;  // of a rank on average
};

Arrivals arrivals(const std::vector<RankTotals>& ranks) {
  Arrivals found{std::vector<std::uint64_t>(ranks.size()), std::vector<Evidence>(ranks.size()), SIZE_MAX, 0};
  for (const RankTotals& rank : ranks) found.rounds = std::min<std::uint64_t>(found.rounds, rank.collectives.size());
  for (std::size_t k = 0; k < found.rounds; ++k) {
    std::size_t latest = 0;
    double sum = 0, most = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto at = static_cast<double>(ranks[i].collectives[k].at_ns + ranks[i].offset_ns);
      sum += at;
      if (i == 0 || at > most) most = at, latest = i;
    }
    const double waited = most - sum / static_cast<double>(ranks.size());
    found.waited_ns += waited;
    ++found.last[latest];
    found.evidence[latest].add(ranks[latest].collectives[k], static_cast<std::int64_t>(waited));
  }
  return found;
}

void across_ranks(const std::vector<RankTotals>& ranks, const RuleSettings& settings, std::vector<Finding>& findings) {
  std::vector<Load> loads;
  std::int64_t span = 0;
  for (const RankTotals& rank : ranks) {
    Load load{rank.name, 0};
    for (const auto& [number, device] : rank.totals.devices) load.busy_ns += device.busy_ns;
    loads.push_back(std::move(load));
    span = std::max(span, rank.totals.span_ns());
  }
  const Arrivals at = arrivals(ranks);
  if (at.rounds >= settings.count("min_collectives")) {
    const auto waited = static_cast<std::int64_t>(at.waited_ns);
    if (share(waited, span) < settings["waited"]) return;
    const auto straggler = static_cast<std::size_t>(std::max_element(at.last.begin(), at.last.end()) - at.last.begin());
    Finding f = costed(kName, CostKind::kLost, waited, span);
    f.log = ranks[straggler].log;
    f.message =
        "{straggler} came last to {times} of {rounds} collectives; the ranks waited {waited} for the last one on "
        "average";
    f.cost_how = "start of a collective on the last rank less the mean of all, on one clock, added up";
    f.remedy =
        "look at what {straggler} does between collectives that the others do not: more data, a slower device, host "
        "work; analyze its log alone";
    f.text("straggler", ranks[straggler].name).count("times", at.last[straggler]).count("rounds", at.rounds);
    f.ns("waited", at.waited_ns);
    at.evidence[straggler].give(f);
    findings.push_back(std::move(f));
    return;
  }
  const Uneven uneven = compare(loads);
  if (!too_uneven(loads, uneven, settings["busy"])) return;
  Finding f = busy_finding(loads, uneven, span);
  f.log = ranks[uneven.busiest].log;
  ranks[uneven.busiest].longest.give(f);
  findings.push_back(std::move(f));
}

}  // namespace

std::vector<RuleInfo> imbalance_rules() {
  return {
      {kName, "devices of a process or ranks of a run with unequal work, and which one the others wait for",
       "gpuflight: busy times; with kernels of NCCL in several logs when each rank came to its k-th collective",
       {{"busy", 0.15, "the busiest above the mean, as share of its busy time"},
        {"waited", 0.05, "time waited for the last rank, as share of the span"},
        {"min_collectives", 10, "in each log, to go by collectives and not by busy time"}},
       make_rule<Imbalance>, RuleInfo::Needs::kTimeline,
       {},
       across_ranks},
  };
}

}  // namespace gpuflight::analysis::rules
