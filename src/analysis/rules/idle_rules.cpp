// Devices that have nothing to do: long gaps, phases, and as a whole.
#include <algorithm>
#include <map>

#include "analysis/rules/busy_bins.h"
#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr double kMs = 1e6;

const char* cause_words(GapCause cause) {
  switch (cause) {
    case GapCause::kQueued: return "waiting on the GPU for other work";
    case GapCause::kSync: return "the host had waited in a synchronisation";
    case GapCause::kBlockingCopy: return "the host had waited in a copy";
    case GapCause::kAlloc: return "the host allocated or freed memory";
    case GapCause::kLaunching: return "launches came too slowly";
    case GapCause::kHost: return "the host did something else";
    case GapCause::kUnknown: break;
  }
  return "not known";
}

class GpuGaps final : public Rule {
 public:
  explicit GpuGaps(const RuleSettings& set) : gap_ns_(set.ns("gap_ms", kMs)) {}

  void on_gap(const Gap& gap, const GpuWork& after) override {
    if (gap.length_ns() < gap_ns_) return;
    Found& found = found_[gap.device];
    found.idle_ns += gap.length_ns();
    if (gap.length_ns() > found.longest_ns) {
      found.longest_ns = gap.length_ns();
      found.cause = gap.cause;
    }
    found.evidence.add(after.ref, gap.length_ns());
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [device, found] : found_) {
      Finding f = costed("gpu_gaps", CostKind::kLost, found.idle_ns, totals.span_ns(device));
      f.device = device;
      f.message = "{gaps} of {bound} or more without any work, {idle} in all, the longest {longest}: {cause}";
      f.cost_how = "length of these gaps";
      f.remedy =
          "look at what the program did on the host then (scopes name it): reading, preparing data, waiting for others";
      f.count("gaps", found.evidence.total(), "gap").ns("bound", static_cast<double>(gap_ns_));
      f.ns("idle", static_cast<double>(found.idle_ns)).ns("longest", static_cast<double>(found.longest_ns));
      f.text("cause", cause_words(found.cause));
      found.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Found {
    std::int64_t idle_ns = 0, longest_ns = 0;
    GapCause cause = GapCause::kUnknown;
    Evidence evidence;
  };
  const std::int64_t gap_ns_;
  std::map<std::int32_t, Found> found_;
};

class GpuTimeUtil final : public Rule {
 public:
  explicit GpuTimeUtil(const RuleSettings& set)
      : chunks_(std::max<std::uint64_t>(set.count("chunks"), 1)),
        min_chunks_(set.count("min_chunks")),
        busy_(set["busy"]),
        min_idle_ns_(set.ns("min_idle_ms", kMs)) {}

  void on_work(const GpuWork& work) override {
    Device& device = devices_[work.device];
    const std::int64_t from = std::max(work.start_ns, device.until_ns);
    if (work.end_ns > from) device.bins.add(from, work.end_ns);
    device.until_ns = std::max(device.until_ns, work.end_ns);
  }
  void on_gap(const Gap& gap, const GpuWork& after) override {
    devices_[gap.device].evidence.add(after.ref, gap.length_ns());
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : devices_) {
      const std::int64_t span = totals.span_ns(number);
      const double length = static_cast<double>(span) / static_cast<double>(chunks_);
      double idle = 0;
      std::uint64_t low = 0;
      std::size_t first = chunks_, worst = 0;
      const auto busy = device.bins.chunks(chunks_, device.until_ns);
      for (std::size_t i = 0; i < busy.size(); ++i) {
        if (busy[i] < busy[worst]) worst = i;
        if (busy[i] >= busy_ * length) continue;
        ++low;
        first = std::min(first, i);
        idle += length - busy[i];
      }
      const auto idle_ns = static_cast<std::int64_t>(idle);
      if (low < min_chunks_ || idle_ns < min_idle_ns_) continue;
      Finding f = costed("gpu_time_util", CostKind::kLost, idle_ns, span);
      f.device = number;
      f.message = "in {low} of {chunks} parts of the time, {length} each, the device was busy for less than {bound}; "
                  "the first is part {first}, the worst was busy for {least}";
      f.cost_how = "idle time in these parts";
      f.remedy = "look at what the host did in these parts: the gaps named here are the longest";
      f.count("low", low).count("chunks", chunks_).ns("length", length).ratio("bound", busy_).count("first", first + 1);
      f.ratio("least", busy[worst] / length);
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Device {
    BusyBins bins;
    std::int64_t until_ns = kNoTime;
    Evidence evidence;
  };
  const std::uint64_t chunks_, min_chunks_;
  const double busy_;
  const std::int64_t min_idle_ns_;
  std::map<std::int32_t, Device> devices_;
};

class IdleTime final : public Rule {
 public:
  explicit IdleTime(const RuleSettings& set) : min_share_(set["min_share"]), min_idle_ns_(set.ns("min_idle_ms", kMs)) {}

  void on_gap(const Gap& gap, const GpuWork& after) override { evidence_[gap.device].add(after.ref, gap.length_ns()); }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : totals.devices) {
      const std::int64_t span = device.span_ns(), idle = device.idle_ns();
      if (idle < min_idle_ns_ || share(idle, span) < min_share_) continue;
      Finding f = costed("idle_time", CostKind::kLost, idle, span);
      f.device = number;
      f.message =
          "the device had nothing to do for {share} of the time, {idle}: host wait {host}, kernel wait {kernel}, "
          "other {other}";
      f.cost_how = "time from its first work to its last, less the union of all work";
      const bool host = device.host_wait_ns * 2 > idle;
      f.remedy =
          host ? "the host launches too late: take synchronisations and work of the host out of its way, or launch "
                 "ahead from a thread of its own"
               : "work was launched and waited: look at dependencies between streams, and at graphs for the gaps "
                 "between kernels";
      f.ratio("share", share(idle, span)).ns("idle", static_cast<double>(idle));
      f.ns("host", static_cast<double>(device.host_wait_ns)).ns("kernel", static_cast<double>(device.kernel_wait_ns));
      f.ns("other", static_cast<double>(device.other_idle_ns));
      evidence_[number].give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  const double min_share_;
  const std::int64_t min_idle_ns_;
  std::map<std::int32_t, Evidence> evidence_;
};

}  // namespace

std::vector<RuleInfo> idle_rules() {
  return {
      {"gpu_gaps", "a device without any work for long", "Nsight Systems, expert system rule of this name",
       {{"gap_ms", 500, "shorter gaps do not count"}},
       make_rule<GpuGaps>, RuleInfo::Needs::kTimeline,
       {"idle_time", "gpu_time_util"}},
      {"gpu_time_util", "parts of the time in which a device was hardly busy",
       "Nsight Systems, expert system rule of this name",
       {{"chunks", 30, "parts"},
        {"busy", 0.5, "a part that was busy for less counts"},
        {"min_chunks", 3, "fewer parts are no phase"},
        {"min_idle_ms", 5, "idle time in these parts"}},
       make_rule<GpuTimeUtil>},
      {"idle_time", "a device that was idle for most of the time, split into host wait, kernel wait and other",
       "HolisticTraceAnalysis, idle time breakdown: host wait, kernel wait (below 30 us), other",
       {{"min_share", 0.5, "idle share of the device's span"}, {"min_idle_ms", 5, "idle time"}},
       make_rule<IdleTime>, RuleInfo::Needs::kTimeline,
       {"gpu_time_util"}},
  };
}

}  // namespace gpuflight::analysis::rules
