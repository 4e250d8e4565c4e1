// Launches in a row that take far longer than the same kernel with the same grid usually does.
#include <algorithm>
#include <map>
#include <utility>

#include "analysis/rules/rule_table.h"
#include "event/quantile_sketch.h"

namespace gpuflight::analysis::rules {
namespace {

class SlowBurst final : public Rule {
 public:
  explicit SlowBurst(const RuleSettings& set)
      : times_(set["times"]), min_launches_(set.count("min_launches")), warm_up_(set.count("warm_up")),
        min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    std::int64_t& until = until_[work.device];
    const bool beside = work.start_ns < until;
    until = std::max(until, work.end_ns);
    if (work.kind != WorkKind::kKernel || work.config == kNoConfig) return;
    const Key key{work.config, work.size};
    if (!kernels_.contains(key) && kernels_.size() >= kMostKernels) return;
    Kernel& kernel = kernels_[key];
    const bool known = kernel.sketch.count() >= warm_up_;
    if (known && kernel.sketch.count() >= kernel.next_look) {
      kernel.median = kernel.sketch.quantile(0.5).value_or(0);
      kernel.next_look = kernel.sketch.count() + kernel.sketch.count() / 16 + 1;
    }
    const auto length = static_cast<double>(work.duration_ns());
    if (known && length > kernel.median * times_ && length > kernel.median + kLeastNs) {
      kernel.now.add(work, length - kernel.median, beside);
      kernel.usual = 0;
    } else if (++kernel.usual > kUsualEnds) {
      close(kernel);
    }
    kernel.sketch.add(work.duration_ns(), budget_);
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (auto& [key, kernel] : kernels_) {
      close(kernel);
      const Burst& burst = kernel.all;
      const std::int64_t span = totals.span_ns();
      const auto lost = static_cast<std::int64_t>(burst.excess_ns);
      if (burst.launches == 0 || share(lost, span) < min_share_) continue;
      const LaunchConfig* const config = log().config(key.first);
      Finding f = costed("slow_burst", CostKind::kLost, lost, span);
      f.message =
          "{kernel} took {slow} on average in {launches} launches of {bursts}, {times} times its median of {median}; "
          "{beside} of them began beside other work; clocks not recorded";
      f.cost_how = "time of these launches beyond the median of the same kernel and grid";
      f.remedy =
          "look at what ran beside them and at the data they got; whether clocks or throttling explain it this log "
          "cannot tell: watch nvidia-smi -q -d CLOCK,PERFORMANCE meanwhile";
      const auto n = static_cast<double>(burst.launches);
      f.kernel("kernel", config == nullptr ? "" : config->name)
          .ns("slow", burst.total_ns / n)
          .ns("median", kernel.median);
      f.number("times", burst.total_ns / n / std::max(kernel.median, 1.0)).count("launches", burst.launches);
      f.count("bursts", kernel.bursts, "burst").ratio("beside", static_cast<double>(burst.beside) / n);
      burst.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::size_t kMostKernels = 4096;
  static constexpr double kLeastNs = 5'000;       // below it is noise
  static constexpr std::uint64_t kUsualEnds = 2;  // usual launches that end a burst
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // configuration, blocks
  struct Burst {
    std::uint64_t launches = 0, beside = 0;
    double excess_ns = 0, total_ns = 0;
    Evidence evidence;
    void add(const GpuWork& work, double excess, bool with_others) {
      ++launches;
      beside += with_others ? 1 : 0;
      excess_ns += excess;
      total_ns += static_cast<double>(work.duration_ns());
      evidence.add(work.ref, static_cast<std::int64_t>(excess));
    }
  };
  struct Kernel {
    event::QuantileSketch sketch;
    double median = 0;
    std::uint64_t next_look = 0, usual = 0, bursts = 0;
    Burst now, all;
  };
  void close(Kernel& kernel) {
    if (kernel.now.launches >= min_launches_) {
      ++kernel.bursts;
      kernel.all.launches += kernel.now.launches;
      kernel.all.beside += kernel.now.beside;
      kernel.all.excess_ns += kernel.now.excess_ns;
      kernel.all.total_ns += kernel.now.total_ns;
      kernel.all.evidence.add(kernel.now.evidence);
    }
    if (kernel.now.launches > 0) kernel.now = Burst();
  }

  const double times_;
  const std::uint64_t min_launches_, warm_up_;
  const double min_share_;
  event::SketchBudget budget_{1'000'000};
  std::map<std::int32_t, std::int64_t> until_;  // by device
  std::map<Key, Kernel> kernels_;
};

}  // namespace

std::vector<RuleInfo> burst_rules() {
  return {
      {"slow_burst", "launches in a row far slower than the same kernel and grid usually is",
       "gpuflight: a run is compared with itself, so that clocks, neighbours and data show",
       {{"times", 3, "slower than the median by this factor"},
        {"min_launches", 5, "fewer in a row are no burst"},
        {"warm_up", 50, "launches from which a median is known"},
        {"min_share", 0.02, "time beyond the median, as share of the span"}},
       make_rule<SlowBurst>, RuleInfo::Needs::kSamples},
  };
}

}  // namespace gpuflight::analysis::rules
