// Launching: too slow for the kernels, and too far ahead of them.
#include <algorithm>
#include <deque>
#include <map>

#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostStreams = 4096;
// A gap as long as that is no matter of launching.
constexpr std::int64_t kLaunchGapNs = 100'000;

class LaunchBound final : public Rule {
 public:
  explicit LaunchBound(const RuleSettings& set)
      : min_launches_(set.count("min_launches")), min_share_(set["min_share"]) {}

  void on_gap(const Gap& gap, const GpuWork& after) override {
    Device& device = devices_[gap.device];
    if (gap.cause == GapCause::kLaunching && gap.length_ns() < kLaunchGapNs && after.kind == WorkKind::kKernel &&
        after.graph == 0) {
      Phase& now = device.now;
      if (now.launches == 0) now.first = after.ref, now.from_ns = gap.from_ns;
      ++now.launches;
      now.ahead = 0;
      now.idle_ns += gap.length_ns();
      now.kernel_ns += after.duration_ns();
      now.call_ns += std::max<std::int64_t>(after.call_ns, 0);
      now.until_ns = after.end_ns;
    } else if (gap.length_ns() >= kLaunchGapNs) {
      close(device);
    }
  }
  void on_work(const GpuWork& work) override {
    // Kernels that follow without a gap: the host is ahead again.
    Device& device = devices_[work.device];
    if (work.kind == WorkKind::kKernel && device.now.launches > 0 && ++device.now.ahead > kAheadEnds) close(device);
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (auto& [number, device] : devices_) {
      close(device);
      const std::int64_t span = totals.span_ns(number);
      if (device.all.launches == 0 || share(device.all.idle_ns, span) < min_share_) continue;
      const auto n = static_cast<double>(device.all.launches);
      Finding f = costed("launch_bound", CostKind::kLost, device.all.idle_ns, span);
      f.device = number;
      f.message = "in {phases}, {length} in all, the device waited for each launch: {launches} kernels of {kernel} on "
                  "average with {gap} between them; a launch call takes {call}";
      f.cost_how = "time between these kernels";
      f.remedy =
          "fewer and bigger kernels, a CUDA graph where the sequence repeats, launches from fewer layers of host code";
      f.count("phases", device.phases, "phase")
          .ns("length", static_cast<double>(device.length_ns))
          .count("launches", device.all.launches);
      f.ns("kernel", static_cast<double>(device.all.kernel_ns) / n)
          .ns("gap", static_cast<double>(device.all.idle_ns) / n);
      f.ns("call", static_cast<double>(device.all.call_ns) / n);
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::uint64_t kAheadEnds = 16;
  struct Phase {
    std::uint64_t launches = 0, ahead = 0;
    std::int64_t from_ns = 0, until_ns = 0, idle_ns = 0, kernel_ns = 0, call_ns = 0;
    EventRef first;
  };
  struct Device {
    Phase now, all;
    std::uint64_t phases = 0;
    std::int64_t length_ns = 0;
    Evidence evidence;  // where phases begin
  };
  void close(Device& device) {
    const Phase& now = device.now;
    if (now.launches >= min_launches_) {
      ++device.phases;
      device.length_ns += now.until_ns - now.from_ns;
      device.all.launches += now.launches;
      device.all.idle_ns += now.idle_ns;
      device.all.kernel_ns += now.kernel_ns;
      device.all.call_ns += now.call_ns;
      device.evidence.add(now.first, now.idle_ns);
    }
    device.now = Phase();
  }
  const std::uint64_t min_launches_;
  const double min_share_;
  std::map<std::int32_t, Device> devices_;
};

// A launch call that waits since so many launches stand before it in its stream.
class QueueFull final : public Rule {
 public:
  explicit QueueFull(const RuleSettings& set)
      : min_ns_(set.ns("min_us", 1e3)), min_depth_(set.count("min_depth")), min_calls_(set.count("min_calls")),
        min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (work.kind != WorkKind::kKernel || work.graph != 0 || work.launch_ns == kNoTime) return;
    if (!streams_.contains(work.stream) && streams_.size() >= kMostStreams) return;
    std::deque<std::int64_t>& starts = streams_[work.stream];  // ascending: of those before it
    if (work.call_ns >= min_ns_) {
      const auto waiting = std::upper_bound(starts.begin(), starts.end(), work.launch_ns);
      const auto depth = static_cast<std::uint64_t>(starts.end() - waiting);
      if (depth >= min_depth_) {
        held_ns_ += work.call_ns;
        deepest_ = std::max(deepest_, depth);
        evidence_.add(work.ref, work.call_ns);
      }
    }
    starts.push_back(work.start_ns);
    if (starts.size() > kMostStarts) starts.pop_front();
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    const std::int64_t span = totals.span_ns();
    if (evidence_.total() < min_calls_ || share(held_ns_, span) < min_share_) return;
    Finding f = costed("queue_full", CostKind::kAtStake, held_ns_, span);
    f.message =
        "{calls} launch calls waited for room in the queue, {held} in all, with up to {deepest} launches before them";
    f.cost_how = "host time in these calls; the device had work meanwhile, the host could do nothing else";
    f.remedy =
        "nothing, if the host has nothing else to do; else launch such stretches from a thread of its own, as a graph, "
        "or with fewer and bigger kernels";
    f.count("calls", evidence_.total()).ns("held", static_cast<double>(held_ns_)).count("deepest", deepest_);
    evidence_.give(f);
    findings.push_back(std::move(f));
  }

 private:
  static constexpr std::size_t kMostStarts = 2048;
  const std::int64_t min_ns_;
  const std::uint64_t min_depth_, min_calls_;
  const double min_share_;
  std::map<std::uint32_t, std::deque<std::int64_t>> streams_;
  std::int64_t held_ns_ = 0;
  std::uint64_t deepest_ = 0;
  Evidence evidence_;
};

}  // namespace

std::vector<RuleInfo> launch_rules() {
  return {
      {"launch_bound",
       "phases in which the device waits for each launch",
       "gpuflight: gaps before kernels whose launch call had not returned when the device ran dry",
       {{"min_launches", 50, "in a phase; fewer are none"},
        {"min_share", 0.1, "time between, as share of the device's span"}},
       make_rule<LaunchBound>,
       RuleInfo::Needs::kTimeline,
       {"idle_time", "gpu_time_util"}},
      {"queue_full",
       "launch calls that wait for room in the queue of launches",
       "gpuflight, measured: a stream takes about a thousand launches ahead, then the call waits",
       {{"min_us", 20, "shorter calls do not count"},
        {"min_depth", 500, "launches before it in its stream that had not begun"},
        {"min_calls", 10, "fewer are no pattern"},
        {"min_share", 0.05, "host time in these calls, as share of the span"}},
       make_rule<QueueFull>},
  };
}

}  // namespace gpuflight::analysis::rules
