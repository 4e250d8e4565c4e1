// Copies and kernels that could run side by side and do not.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostStreams = 4096;

bool is_in(const GpuWork& work) { return work.kind == WorkKind::kCopy && work.copy == event::CopyKind::kHtoD; }
bool is_out(const GpuWork& work) { return work.kind == WorkKind::kCopy && work.copy == event::CopyKind::kDtoH; }

// Rounds of copy in, kernels, copy out in a stream, with memory that is not pageable. In N pieces over several streams
// they take (H + K + D) / N + (N - 1) / N x max(H, K, D), and each piece has its own start-up.
class MissedOverlap final : public Rule {
 public:
  explicit MissedOverlap(const RuleSettings& set)
      : min_rounds_(set.count("min_rounds")), min_share_(set["min_share"]), overlapped_(set["overlapped"]),
        piece_ns_(std::max(set["piece_us"] * 1e3, 1.0)), most_pieces_(set["most_pieces"]),
        min_bytes_(set.count("min_bytes")) {}

  void on_work(const GpuWork& work) override {
    Device& device = devices_[work.device];
    note_overlap(device, work);
    if (work.graph != 0 || (!streams_.contains(work.stream) && streams_.size() >= kMostStreams)) return;
    Stream& stream = streams_[work.stream];
    stream.device = work.device;
    const bool copies = work.size >= min_bytes_ && !work.pageable();
    if (is_in(work) && copies) {
      if (stream.kernel_ns > 0) finish_round(stream);
      stream.in_ns += work.duration_ns();
      stream.last = work.ref;
    } else if (is_out(work) && copies && stream.kernel_ns > 0) {
      stream.out_ns += work.duration_ns();
      if (stream.in_ns == 0) stream.last = work.ref;
      finish_round(stream);
    } else if (work.kind == WorkKind::kKernel && stream.in_ns > 0) {
      stream.kernel_ns += work.duration_ns();
    }
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (auto& [number, stream] : streams_) {
      if (stream.in_ns > 0 && stream.kernel_ns > 0) finish_round(stream);
    }
    for (const auto& [number, device] : devices_) {
      const double serial = device.in_ns + device.kernel_ns + device.out_ns;
      const double longest = std::max({device.in_ns, device.kernel_ns, device.out_ns});
      const double could = std::min(device.in_ns + device.out_ns, device.kernel_ns);
      if (device.rounds < min_rounds_ || device.together_ns > overlapped_ * could) continue;
      const double rounds = static_cast<double>(device.rounds);
      const double best =
          std::clamp(std::sqrt((serial - longest) / piece_ns_), std::max(2.0, rounds), most_pieces_ * rounds);
      const double per_round = std::ceil(best / rounds - 0.01), pieces = per_round * rounds;
      const double ideal = serial / pieces + (pieces - 1) / pieces * longest;
      const double won = serial - ideal - (pieces - rounds) * piece_ns_ - device.together_ns;
      const std::int64_t span = totals.span_ns(number);
      if (won < min_share_ * static_cast<double>(span)) continue;
      findings.push_back(finding(number, device, per_round, serial, ideal, static_cast<std::int64_t>(won), span));
    }
  }

 private:
  struct Stream {
    std::int32_t device = -1;
    std::int64_t in_ns = 0, kernel_ns = 0, out_ns = 0;  // of the present round
    EventRef last;
  };
  struct Device {
    std::uint64_t rounds = 0;
    double in_ns = 0, kernel_ns = 0, out_ns = 0, together_ns = 0;
    std::int64_t kernel_until_ns = kNoTime, copy_until_ns = kNoTime;
    Evidence evidence;
  };
  static void note_overlap(Device& device, const GpuWork& work) {
    const bool kernel = work.kind == WorkKind::kKernel || work.kind == WorkKind::kGraph;
    std::int64_t& mine = kernel ? device.kernel_until_ns : device.copy_until_ns;
    const std::int64_t other = std::min(work.end_ns, kernel ? device.copy_until_ns : device.kernel_until_ns);
    if (other > work.start_ns) device.together_ns += static_cast<double>(other - work.start_ns);
    mine = std::max(mine, work.end_ns);
  }
  void finish_round(Stream& stream) {
    Device& device = devices_[stream.device];
    ++device.rounds;
    device.in_ns += static_cast<double>(stream.in_ns);
    device.kernel_ns += static_cast<double>(stream.kernel_ns);
    device.out_ns += static_cast<double>(stream.out_ns);
    device.evidence.add(stream.last, stream.in_ns + stream.kernel_ns + stream.out_ns);
    stream.in_ns = stream.kernel_ns = stream.out_ns = 0;
  }
  Finding finding(std::int32_t number, const Device& device, double per_round, double serial, double ideal,
                  std::int64_t won, std::int64_t span) const {
    Finding f = costed("missed_overlap", CostKind::kBound, won, span);
    f.device = number;
    f.message =
        "{rounds} rounds of copies in ({in}), kernels ({kernels}) and copies out ({out}) run one after the other, "
        "{serial} in all; side by side they could take {ideal}";
    f.cost_how =
        "serial H + K + D less (H + K + D) / N + (N - 1) / N x max(H, K, D) for N = {pieces}, less {piece} for each "
        "piece more";
    f.remedy =
        per_round > 1
            ? "cut each round into {chunks} chunks and deal them out over 2 to 4 streams with buffers of their own"
            : "deal the rounds out over 2 to 4 streams with buffers of their own; cutting them up brings no more";
    f.count("rounds", device.rounds).ns("in", device.in_ns).ns("kernels", device.kernel_ns).ns("out", device.out_ns);
    f.ns("serial", serial).ns("ideal", ideal).count("chunks", static_cast<std::uint64_t>(per_round));
    f.count("pieces", static_cast<std::uint64_t>(per_round) * device.rounds).ns("piece", piece_ns_);
    device.evidence.give(f);
    return f;
  }
  const std::uint64_t min_rounds_;
  const double min_share_, overlapped_, piece_ns_, most_pieces_;
  const std::uint64_t min_bytes_;
  std::map<std::uint32_t, Stream> streams_;
  std::map<std::int32_t, Device> devices_;
};

// The bus carries both directions at once; copies of one that wait for the other do not use it.
class CopyDirectionWait final : public Rule {
 public:
  explicit CopyDirectionWait(const RuleSettings& set)
      : min_copies_(set.count("min_copies")), min_share_(set["min_share"]), min_bytes_(set.count("min_bytes")) {}

  void on_work(const GpuWork& work) override {
    if (streams_.size() >= kMostStreams && !streams_.contains(work.stream)) return;
    Stream& stream = streams_[work.stream];
    const GpuWork& before = stream.latest;
    bool paired = false;  // with the one before; each copy runs beside one other at most
    if ((is_in(work) || is_out(work)) && work.size >= min_bytes_ && !work.pageable() && work.graph == 0) {
      Device& device = devices_[work.device];
      const bool same_stream =
          !stream.paired && opposite(before, work) && work.launch_ns != kNoTime && work.launch_ns < before.end_ns;
      const GpuWork& other = is_in(work) ? device.out : device.in;
      std::deque<GpuWork>& mine = is_in(work) ? device.ins : device.outs;
      if (same_stream) {
        const std::int64_t both =
            std::min(before.duration_ns(), work.duration_ns()) - busy_in(mine, before.start_ns, before.end_ns);
        if (both > 0) {
          found(device, work, both);
          device.in_one_stream = true;
          paired = true;
        }
      } else if (other.size > 0 && other.stream != work.stream && work.ready_ns != kNoTime &&
                 work.ready_ns < other.end_ns && work.start_ns >= other.end_ns &&
                 work.start_ns - other.end_ns < kFollowsNs) {
        const std::int64_t from = std::max(work.ready_ns, other.start_ns);
        const std::int64_t both = other.end_ns - from - busy_in(mine, from, other.end_ns);
        if (both > 0) found(device, work, both);
      }
      mine.push_back(work);
      if (mine.size() > kRecent) mine.pop_front();
      (is_in(work) ? device.in : device.out) = work;
    }
    stream = {work, paired};
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : devices_) {
      const std::int64_t span = totals.span_ns(number);
      if (device.evidence.total() < min_copies_ || share(device.lost_ns, span) < min_share_) continue;
      Finding f = costed("copy_direction_wait", CostKind::kBound, device.lost_ns, span);
      f.device = number;
      f.message = device.in_one_stream
                      ? "{copies} copies waited in their stream for one in the other direction: {lost} in all, "
                        "though the bus carries both at once"
                      : "{copies} copies waited for one in the other direction on another stream: {lost} in all, "
                        "though the bus carries both at once";
      f.cost_how = "time in which both could have run: of two in one stream the shorter one";
      f.remedy =
          "copies in on one stream, copies out on another, with events for what depends; launch both before the "
          "kernels that follow, and look whether the device has two copy engines";
      f.count("copies", device.evidence.total()).ns("lost", static_cast<double>(device.lost_ns));
      device.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::int64_t kFollowsNs = 20'000;
  static constexpr std::size_t kRecent = 16;
  struct Stream {
    GpuWork latest;
    bool paired = false;
  };
  struct Device {
    GpuWork in, out;  // the latest of each
    std::deque<GpuWork> ins, outs;
    bool in_one_stream = false;
    std::int64_t lost_ns = 0;
    Evidence evidence;
  };
  // How long copies of one direction were under way in that time: they follow one another.
  static std::int64_t busy_in(const std::deque<GpuWork>& copies, std::int64_t from, std::int64_t to) {
    std::int64_t sum = 0;
    for (const GpuWork& copy : copies) {
      sum += std::max<std::int64_t>(0, std::min(copy.end_ns, to) - std::max(copy.start_ns, from));
    }
    return sum;
  }
  static bool opposite(const GpuWork& a, const GpuWork& b) {
    return (is_in(a) && is_out(b)) || (is_out(a) && is_in(b));
  }
  static void found(Device& device, const GpuWork& work, std::int64_t lost) {
    device.lost_ns += lost;
    device.evidence.add(work.ref, lost);
  }
  const std::uint64_t min_copies_;
  const double min_share_;
  const std::uint64_t min_bytes_;
  std::map<std::uint32_t, Stream> streams_;
  std::map<std::int32_t, Device> devices_;
};

}  // namespace

std::vector<RuleInfo> overlap_rules() {
  return {
      {"missed_overlap",
       "rounds of copy in, kernels and copy out that run one after the other",
       "CUDA C++ Best Practices Guide, 10.1.2: overlapping transfers with computation; the bound is that of a "
       "pipeline of N pieces",
       {{"min_rounds", 2, "fewer are no pattern"},
        {"min_share", 0.1, "time to be won, as share of the device's span"},
        {"overlapped", 0.25, "share of what could overlap that does already; more: no finding"},
        {"piece_us", 10, "start-up of one piece"},
        {"most_pieces", 32, "pieces that one round is cut into at most"},
        {"min_bytes", 65536, "smaller copies do not count"}},
       make_rule<MissedOverlap>,
       RuleInfo::Needs::kTimeline,
       {"copy_direction_wait", "cuda_api_sync", "sync_in_loop", "cuda_memcpy_sync", "idle_time", "gpu_time_util"}},
      {"copy_direction_wait",
       "copies of one direction that wait for the other",
       "CUDA C++ Programming Guide, concurrent data transfers: devices with two copy engines copy both ways at once",
       {{"min_copies", 10, "fewer are no pattern"},
        {"min_share", 0.05, "time to be won, as share of the device's span"},
        {"min_bytes", 65536, "smaller copies do not count"}},
       make_rule<CopyDirectionWait>},
  };
}

}  // namespace gpuflight::analysis::rules
