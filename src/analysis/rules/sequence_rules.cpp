// Sequences of kernels: repeated ones that a graph could launch, and tiny ones of one shape that could be one kernel.
#include <algorithm>
#include <map>
#include <memory>

#include "analysis/rules/repeat_finder.h"
#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::int64_t kLaunchGapNs = 100'000;  // a gap as long as that is no matter of launching

class GraphCandidate final : public Rule {
 public:
  explicit GraphCandidate(const RuleSettings& set)
      : min_kernels_(set.count("min_kernels")), min_rounds_(set.count("min_rounds")), min_share_(set["min_share"]),
        node_ns_(set["node_us"] * 1e3), graph_call_ns_(set["graph_call_us"] * 1e3) {}

  void on_call(const HostCall& call) override {
    if (call.kind != CallKind::kLaunch || call.captured || call.config == kNoConfig) return;
    if (!streams_.contains(call.stream) && streams_.size() >= kMostStreams) return;
    Stream& stream = streams_[call.stream];
    ++stream.launches;
    const std::uint64_t token = (std::uint64_t{call.config} << 32) ^ (call.size * 0x9e3779b97f4a7c15ull >> 16);
    const RepeatFinder::State state = stream.repeats->add(token);
    if (state.matched <= 1 || state.period != stream.period) close(stream);
    stream.period = state.period;
    if (state.matched == 0) return;
    ++stream.matched;
    if (call.call_ns >= 0) {
      stream.call_ns += call.call_ns;
      stream.least_ns = stream.timed++ == 0 ? call.call_ns : std::min(stream.least_ns, call.call_ns);
    }
    if (stream.matched == 1) stream.first = call.ref, stream.config = call.config;
  }
  void on_gap(const Gap& gap, const GpuWork& after) override {
    if (gap.cause != GapCause::kLaunching || gap.length_ns() >= kLaunchGapNs || after.graph != 0) return;
    const auto stream = after.kind == WorkKind::kKernel ? streams_.find(after.stream) : streams_.end();
    if (stream == streams_.end()) return;
    stream->second.gap_ns += gap.length_ns();
    stream->second.device = after.device;
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (auto& [number, stream] : streams_) {
      close(stream);
      if (stream.best_period == 0) continue;
      const double kernels = static_cast<double>(stream.kernels), rounds = static_cast<double>(stream.rounds);
      const double part = std::min(1.0, kernels / static_cast<double>(stream.launches));
      const bool timed = totals.whole();
      const double won = timed ? static_cast<double>(stream.gap_ns) * part - kernels * node_ns_
                               : static_cast<double>(stream.calls_ns) - rounds * graph_call_ns_;
      const std::int64_t span = totals.span_ns(stream.device);
      if (won < min_share_ * static_cast<double>(span)) continue;
      const LaunchConfig* const config = log().config(stream.best_config);
      Finding f = costed("graph_candidate", CostKind::kBound, static_cast<std::int64_t>(won), span);
      f.device = stream.device;
      f.message =
          "the same {period} launches in stream {stream} come again and again, {rounds} rounds ({kernels} kernels, "
          "beginning with {first})";
      f.cost_how = timed ? "gaps before their launches, {gaps}, less {node} for each node of a graph"
                         : "host time of their launches, less {graph} for each launch of a graph";
      f.remedy =
          "capture one round (cudaStreamBeginCapture) and launch it as a CUDA graph; what changes from round to round "
          "must be read from memory, or set in the nodes";
      f.count("period", stream.best_period).text("stream", std::to_string(number)).count("rounds", stream.rounds);
      f.count("kernels", stream.kernels).kernel("first", config == nullptr ? "" : config->name);
      f.ns("gaps", static_cast<double>(stream.gap_ns) * part).ns("node", node_ns_).ns("graph", graph_call_ns_);
      stream.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::size_t kMostStreams = 256;
  struct Stream {
    std::unique_ptr<RepeatFinder> repeats = std::make_unique<RepeatFinder>();
    std::int32_t device = -1;
    std::uint64_t launches = 0;
    std::int64_t gap_ns = 0;
    // The present run.
    std::size_t period = 0;
    std::uint64_t matched = 0;
    std::int64_t call_ns = 0, least_ns = 0;  // of `timed` calls
    std::uint64_t timed = 0;
    std::uint32_t config = kNoConfig;
    EventRef first;
    // All runs that count.
    std::size_t best_period = 0;
    std::uint64_t best_kernels = 0, kernels = 0, rounds = 0;
    std::int64_t calls_ns = 0;
    std::uint32_t best_config = kNoConfig;
    Evidence evidence;
  };
  void close(Stream& stream) {
    if (stream.period >= min_kernels_ && stream.matched >= stream.period * min_rounds_) {
      stream.kernels += stream.matched;
      stream.rounds += stream.matched / stream.period;
      // Of launches by the hooks that follow one another closely only some were timed: the others took no less.
      stream.calls_ns += stream.call_ns + static_cast<std::int64_t>(stream.matched - stream.timed) * stream.least_ns;
      stream.evidence.add(stream.first, static_cast<std::int64_t>(stream.matched));
      if (stream.matched > stream.best_kernels) {
        stream.best_kernels = stream.matched;
        stream.best_period = stream.period;
        stream.best_config = stream.config;
      }
    }
    stream.matched = stream.timed = 0;
    stream.call_ns = stream.least_ns = 0;
  }
  const std::uint64_t min_kernels_, min_rounds_;
  const double min_share_, node_ns_, graph_call_ns_;
  std::map<std::uint32_t, Stream> streams_;
};

// Neighbours of one shape in a stream, each over in no time.
class TinyKernels final : public Rule {
 public:
  explicit TinyKernels(const RuleSettings& set)
      : max_ns_(set.ns("max_us", 1e3)), min_kernels_(set.count("min_kernels")), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (!streams_.contains(work.stream) && streams_.size() >= kMostStreams) return;
    GpuWork& before = streams_.try_emplace(work.stream, work).first->second;
    const std::int64_t gap = work.start_ns - before.end_ns;
    if (gap > 0 && gap < kLaunchGapNs && is_tiny(before) && is_tiny(work) && same_shape(before, work)) {
      Device& device = devices_[work.device];
      device.gap_ns += gap;
      device.kernel_ns += work.duration_ns();
      device.config = work.config;
      device.evidence.add(work.ref, gap);
    }
    before = work;
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : devices_) {
      const std::int64_t span = totals.span_ns(number);
      const std::uint64_t kernels = device.evidence.total();
      if (kernels < min_kernels_ || share(device.gap_ns, span) < min_share_) continue;
      const LaunchConfig* const config = log().config(device.config);
      Finding f = costed("tiny_kernels", CostKind::kBound, device.gap_ns, span);
      f.device = number;
      f.message =
          "{kernels} kernels, as {kernel}, follow one of the same grid and block in their stream; they take {mean} on "
          "average with {gap} between them";
      f.cost_how = "time between them; that of reading and writing the data between them again comes on top";
      f.remedy = "put neighbours into one kernel (torch.compile, nvFuser and XLA do it), or give each more to do";
      const auto n = static_cast<double>(kernels);
      f.count("kernels", kernels).kernel("kernel", config == nullptr ? "" : config->name);
      f.ns("mean", static_cast<double>(device.kernel_ns) / n).ns("gap", static_cast<double>(device.gap_ns) / n);
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::size_t kMostStreams = 4096;
  struct Device {
    std::int64_t gap_ns = 0, kernel_ns = 0;
    std::uint32_t config = kNoConfig;
    Evidence evidence;
  };
  bool is_tiny(const GpuWork& work) const {
    return work.kind == WorkKind::kKernel && work.duration_ns() <= max_ns_ && work.config != kNoConfig;
  }
  bool same_shape(const GpuWork& a, const GpuWork& b) const {
    const LaunchConfig *const one = log().config(a.config), *const two = log().config(b.config);
    return a.size == b.size && one != nullptr && two != nullptr && one->shape.block == two->shape.block;
  }
  const std::int64_t max_ns_;
  const std::uint64_t min_kernels_;
  const double min_share_;
  std::map<std::uint32_t, GpuWork> streams_;  // the latest of each
  std::map<std::int32_t, Device> devices_;
};

}  // namespace

std::vector<RuleInfo> sequence_rules() {
  return {
      {"graph_candidate", "a sequence of launches that comes again and again while the device waits for launches",
       "CUDA C++ Programming Guide, CUDA graphs; time of a node as measured (docs/measurements.md)",
       {{"min_kernels", 3, "in the sequence"},
        {"min_rounds", 10, "in a row"},
        {"min_share", 0.05, "time to be won, as share of the device's span"},
        {"node_us", 0.6, "a node of a graph takes beside its kernel"},
        {"graph_call_us", 10, "a launch of a graph takes the host"}},
       make_rule<GraphCandidate>, RuleInfo::Needs::kSamples,
       {"launch_bound", "tiny_kernels", "idle_time", "gpu_time_util"}},
      {"tiny_kernels", "kernels over in no time, next to others of the same shape, worth being one kernel",
       "PyTorch performance tuning guide: fuse operations",
       {{"max_us", 10, "longer kernels do not count"},
        {"min_kernels", 200, "fewer are no pattern"},
        {"min_share", 0.1, "time between them, as share of the device's span"}},
       make_rule<TinyKernels>, RuleInfo::Needs::kTimeline,
       {"launch_bound", "idle_time", "gpu_time_util"}},
  };
}

}  // namespace gpuflight::analysis::rules
