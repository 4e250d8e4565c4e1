// Streams that wait for one another: the default stream, kernels that fill the chip, urgent work behind less urgent.
#include <algorithm>
#include <deque>
#include <map>

#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostStreams = 4096;
// What waited starts within so long after what it waited for.
constexpr std::int64_t kFollowsNs = 20'000;

bool is_legacy(const event::StreamInfo* stream) {
  return stream != nullptr && stream->kind == event::StreamInfo::Kind::kLegacyDefault;
}

// Waits for the legacy default stream, and it for them.
bool is_blocking(const event::StreamInfo* stream) {
  constexpr std::uint32_t kNonBlocking = 1;
  return stream != nullptr && stream->kind == event::StreamInfo::Kind::kCreated && stream->flags &&
         (*stream->flags & kNonBlocking) == 0;
}

class DefaultStreamBarrier final : public Rule {
 public:
  explicit DefaultStreamBarrier(const RuleSettings& set)
      : min_barriers_(set.count("min_barriers")), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    const event::StreamInfo* const stream = log().stream(work.stream);
    Device& device = devices_[work.device];
    if (is_legacy(stream)) {
      if (device.counted) device.floor_ns = device.barrier.end_ns;
      device.barrier = work;
      device.from_ns = work.end_ns;
      device.any = true;
      device.counted = false;
      return;
    }
    if (!device.any || !is_blocking(stream) || work.launch_ns == kNoTime) return;
    const GpuWork& barrier = device.barrier;
    const bool after = work.launch_ns > barrier.launch_ns && work.start_ns >= barrier.end_ns &&
                       work.start_ns - barrier.end_ns < kFollowsNs;
    if (!after || work.ready_ns >= barrier.end_ns) return;
    ++device.held;
    const std::int64_t from = std::max(work.ready_ns, device.floor_ns);
    if (from < device.from_ns) {  // each moment counts once
      device.lost_ns += device.from_ns - from;
      device.from_ns = from;
    }
    if (device.counted) return;
    device.counted = true;
    ++device.barriers;
    device.evidence.add(barrier.ref, barrier.end_ns - from);
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : devices_) {
      const std::int64_t span = totals.span_ns(number);
      if (device.barriers < min_barriers_ || share(device.lost_ns, span) < min_share_) continue;
      Finding f = costed("default_stream_barrier", CostKind::kBound, device.lost_ns, span);
      f.device = number;
      f.message =
          "{barriers} pieces of work on the default stream made other streams wait: {held} times work stood ready "
          "behind one, {lost} in all";
      f.cost_how =
          "time from when nothing in its own stream kept such work to the end of the default stream's, each moment "
          "once; less is won where the chip was full anyway";
      f.remedy = "give that work a stream of its own; or create the others with cudaStreamNonBlocking, or compile with "
                 "--default-stream per-thread, and order what must be in order by events";
      f.count("barriers", device.barriers).count("held", device.held).ns("lost", static_cast<double>(device.lost_ns));
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Device {
    GpuWork barrier;  // the latest on the default stream
    bool any = false, counted = false;
    std::int64_t floor_ns = kNoTime;  // up to there waits are counted already
    std::int64_t from_ns = 0;         // from there to the end of the barrier they are too
    std::int64_t lost_ns = 0;
    std::uint64_t barriers = 0, held = 0;
    Evidence evidence;
  };
  const std::uint64_t min_barriers_;
  const double min_share_;
  std::map<std::int32_t, Device> devices_;
};

// Streams of kernels only, whose kernels stand ready beside each other and never run so, since one fills the chip.
class StreamNeverConcurrent final : public Rule {
 public:
  explicit StreamNeverConcurrent(const RuleSettings& set)
      : min_waits_(set.count("min_waits")), most_concurrent_(set["most_concurrent"]) {}

  void on_work(const GpuWork& work) override {
    if (work.graph != 0 || (!streams_.contains(work.stream) && streams_.size() >= kMostStreams)) return;
    Stream& stream = streams_[work.stream];
    stream.device = work.device;
    if (work.kind != WorkKind::kKernel) {
      stream.copies = stream.copies || work.kind == WorkKind::kCopy;
      return;
    }
    GpuWork& latest = latest_.try_emplace(work.device, work).first->second;
    if (latest.stream != work.stream && work.ready_ns != kNoTime && work.ready_ns < latest.end_ns) {
      const std::int64_t together = std::min(latest.end_ns, work.end_ns) - work.start_ns;
      if (together * 4 > std::min(latest.duration_ns(), work.duration_ns())) {
        ++stream.together;
      } else {
        ++stream.waits;
        if (fills_chip(latest)) ++stream.full;
        stream.config = latest.config;
        stream.blocks = latest.size;
        stream.evidence.add(work.ref, work.start_ns - work.ready_ns);
      }
    }
    if (work.end_ns >= latest.end_ns) latest = work;
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    std::map<std::int32_t, Stream> devices;
    std::map<std::int32_t, std::uint64_t> count;
    for (const auto& [number, stream] : streams_) {
      if (stream.copies || stream.waits + stream.together == 0) continue;  // copies may be what it is for
      Stream& device = devices[stream.device];
      device.waits += stream.waits;
      device.together += stream.together;
      device.full += stream.full;
      if (stream.waits > 0) device.config = stream.config, device.blocks = stream.blocks;
      device.evidence.add(stream.evidence);
      ++count[stream.device];
    }
    for (const auto& [number, device] : devices) {
      const auto pairs = static_cast<double>(device.waits + device.together);
      const bool apart = static_cast<double>(device.together) <= most_concurrent_ * pairs;
      const LaunchConfig* const config = log().config(device.config);
      if (device.waits < min_waits_ || !apart || device.full * 10 < device.waits * 9 || config == nullptr) continue;
      Finding f = costed("stream_never_concurrent", CostKind::kNone, 0, totals.span_ns(number));
      f.device = number;
      f.message =
          "kernels of {streams} streams never run together: {waits} times one stood ready and waited for a kernel that "
          "fills the chip, as {kernel} with {blocks} blocks";
      f.cost_how = "the chip is full, so nothing is lost, and nothing won by these streams";
      f.remedy =
          "one stream does as well; where one result is wanted earlier use cudaStreamCreateWithPriority, where they "
          "should run together give each a grid that leaves room";
      f.count("streams", count[number]).count("waits", device.waits).kernel("kernel", config->name);
      f.count("blocks", device.blocks);
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Stream {
    bool copies = false;
    std::int32_t device = -1;
    std::uint64_t waits = 0, together = 0, full = 0, blocks = 0;
    std::uint32_t config = kNoConfig;
    Evidence evidence;
  };
  bool fills_chip(const GpuWork& work) const {
    const LaunchConfig* const config = log().config(work.config);
    const event::DeviceInfo* const device = log().device(work.device);
    if (config == nullptr || device == nullptr || config->max_active_blocks <= 0) return false;
    return work.size >=
           static_cast<std::uint64_t>(config->max_active_blocks) * static_cast<std::uint64_t>(device->sm_count);
  }
  const std::uint64_t min_waits_;
  const double most_concurrent_;
  std::map<std::uint32_t, Stream> streams_;
  std::map<std::int32_t, GpuWork> latest_;  // kernel of each device that ends last
};

class PriorityInversion final : public Rule {
 public:
  explicit PriorityInversion(const RuleSettings& set)
      : min_wait_ns_(set.ns("min_wait_us", 1e3)), min_count_(set.count("min_count")), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (work.kind != WorkKind::kKernel) return;
    const event::StreamInfo* const stream = log().stream(work.stream);
    if (stream == nullptr || !stream->priority) return;
    Device& device = devices_[work.device];
    if (work.ready_ns != kNoTime && work.start_ns - work.ready_ns >= min_wait_ns_) {
      const auto overtook = std::find_if(device.recent.begin(), device.recent.end(), [&](const Start& start) {
        return start.priority > *stream->priority && start.at_ns >= work.ready_ns &&
               start.at_ns + min_wait_ns_ <= work.start_ns;
      });
      if (overtook != device.recent.end()) {
        const std::int64_t lost = work.start_ns - std::max(overtook->at_ns, device.until_ns);
        device.lost_ns += std::max<std::int64_t>(lost, 0);
        device.until_ns = work.start_ns;
        device.urgent = *stream->priority;
        device.other = overtook->priority;
        device.evidence.add(work.ref, lost);
      }
    }
    device.recent.push_back({work.start_ns, *stream->priority});
    if (device.recent.size() > kRecent) device.recent.pop_front();
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : devices_) {
      const std::int64_t span = totals.span_ns(number);
      if (device.evidence.total() < min_count_ || share(device.lost_ns, span) < min_share_) continue;
      Finding f = costed("priority_inversion", CostKind::kLost, device.lost_ns, span);
      f.device = number;
      f.message =
          "{kernels} kernels of urgent streams (priority {urgent}) stood launched while kernels of less urgent ones "
          "(priority {other}) were begun before them: {lost} in all";
      f.cost_how =
          "from the start of the first less urgent kernel after the urgent one was launched and its stream free, to "
          "the urgent one's start, each moment once";
      f.remedy =
          "look for what the urgent stream waits for: an event of a less urgent stream (cudaStreamWaitEvent) or the "
          "default stream; give the work it depends on the same priority";
      f.count("kernels", device.evidence.total()).number("urgent", device.urgent).number("other", device.other);
      f.ns("lost", static_cast<double>(device.lost_ns));
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::size_t kRecent = 256;
  struct Start {
    std::int64_t at_ns;
    std::int32_t priority;
  };
  struct Device {
    std::deque<Start> recent;
    std::int64_t lost_ns = 0, until_ns = kNoTime;
    std::int32_t urgent = 0, other = 0;
    Evidence evidence;
  };
  const std::int64_t min_wait_ns_;
  const std::uint64_t min_count_;
  const double min_share_;
  std::map<std::int32_t, Device> devices_;
};

}  // namespace

std::vector<RuleInfo> stream_rules() {
  return {
      {"default_stream_barrier",
       "work on the default stream that made other streams wait",
       "CUDA C++ Programming Guide, implicit synchronisation: the legacy default stream waits for all blocking "
       "streams, and they for it",
       {{"min_barriers", 2, "fewer are no pattern"}, {"min_share", 0.02, "time lost, as share of the device's span"}},
       make_rule<DefaultStreamBarrier>,
       RuleInfo::Needs::kTimeline,
       {"idle_time", "gpu_time_util", "stream_never_concurrent", "partial_wave", "priority_inversion",
        "missed_overlap"}},
      {"stream_never_concurrent",
       "kernels of different streams that never run together, since one fills the chip",
       "CUDA C++ Programming Guide, concurrent kernel execution: kernels that use many resources are less likely to "
       "run beside others",
       {{"min_waits", 20, "fewer are no pattern"},
        {"most_concurrent", 0.05, "share of the pairs that run together all the same"}},
       make_rule<StreamNeverConcurrent>},
      {"priority_inversion",
       "kernels of an urgent stream that wait while less urgent ones are begun",
       "CUDA C++ Programming Guide, stream priorities",
       {{"min_wait_us", 50, "the less urgent one began at least so long before; less is no wait"},
        {"min_count", 3, "fewer are no pattern"},
        {"min_share", 0.02, "time lost, as share of the device's span"}},
       make_rule<PriorityInversion>,
       RuleInfo::Needs::kTimeline,
       {"stream_never_concurrent"}},
  };
}

}  // namespace gpuflight::analysis::rules
