// Copies and fills: from pageable memory, synchronous ones, many small ones.
#include <algorithm>
#include <map>

#include "analysis/rules/held_calls.h"
#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

bool to_device(const GpuWork& work) {
  return work.copy == event::CopyKind::kHtoD || work.copy == event::CopyKind::kHtoA;
}

struct Tally {
  std::uint64_t count = 0, bytes = 0;
  std::int64_t ns = 0;
  Evidence evidence;
  void add(const GpuWork& work, std::int64_t cost_ns) {
    ++count;
    bytes += work.size;
    ns += cost_ns;
    evidence.add(work.ref, cost_ns);
  }
};

// Copies or fills that hold the host, and how long no kernel ran meanwhile.
class HoldingRule : public Rule {
 public:
  void on_work(const GpuWork& work) final {
    if (work.graph == 0 && counts(work)) {
      ++count_;
      bytes_ += work.size;
      const std::int64_t call_ns = std::max<std::int64_t>(work.call_ns, 0);
      held_ns_ += call_ns;
      if (work.launch_ns != kNoTime) calls_.hold(work.device, work.launch_ns, work.launch_ns + call_ns, work.ref);
    }
    calls_.saw_work(work);
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) final {
    calls_.settle_all();
    const std::int64_t span = totals.span_ns();
    if (count_ < min_count_ || share(lost_ns_, span) < min_share_) return;
    Finding f = costed(name_, CostKind::kBound, lost_ns_, span);
    f.message = message_;
    f.cost_how = "host time in these calls while no kernel ran";
    f.remedy = remedy_;
    f.count("count", count_).bytes("bytes", bytes_).ns("held", static_cast<double>(held_ns_));
    evidence_.give(f);
    findings.push_back(std::move(f));
  }

 protected:
  HoldingRule(const char* name, const char* message, const char* remedy, std::uint64_t min_count, double min_share)
      : name_(name), message_(message), remedy_(remedy), min_count_(min_count), min_share_(min_share) {}
  virtual bool counts(const GpuWork& work) const = 0;

 private:
  const char *name_, *message_, *remedy_;
  const std::uint64_t min_count_;
  const double min_share_;
  HeldCalls calls_{[this](std::uint32_t, const EventRef& ref, std::int64_t idle_ns) {
    lost_ns_ += idle_ns;
    evidence_.add(ref, idle_ns);
  }};
  std::uint64_t count_ = 0, bytes_ = 0;
  std::int64_t held_ns_ = 0, lost_ns_ = 0;
  Evidence evidence_;
};

class MemcpyAsync final : public HoldingRule {
 public:
  explicit MemcpyAsync(const RuleSettings& set)
      : HoldingRule("cuda_memcpy_async",
                    "{count} asynchronous copies from or to pageable memory, {bytes}: they wait as synchronous ones "
                    "do, the host stood in their calls for {held}",
                    "take the host memory from cudaMallocHost, or pin what is there with cudaHostRegister, once and "
                    "not per copy",
                    set.count("min_copies"), set["min_share"]),
        min_bytes_(set.count("min_bytes")) {}

 private:
  bool counts(const GpuWork& work) const override {
    return work.kind == WorkKind::kCopy && work.async && work.pageable() && work.size >= min_bytes_;
  }
  const std::uint64_t min_bytes_;
};

class MemcpySync final : public HoldingRule {
 public:
  explicit MemcpySync(const RuleSettings& set)
      : HoldingRule("cuda_memcpy_sync", "{count} synchronous copies of {bytes} held the host for {held}",
                    "cudaMemcpyAsync from pinned memory on a stream of its own, and wait only where the data is used",
                    set.count("min_copies"), set["min_share"]),
        min_bytes_(set.count("min_bytes")) {}

 private:
  bool counts(const GpuWork& work) const override {
    if (work.kind != WorkKind::kCopy || work.async) return false;
    if (work.copy == event::CopyKind::kDtoD) return false;    // on one device: the host need not wait
    return !to_device(work) || work.size > min_bytes_;        // small ones are staged, the call returns before
  }
  const std::uint64_t min_bytes_;
};

class MemsetSync final : public HoldingRule {
 public:
  explicit MemsetSync(const RuleSettings& set)
      : HoldingRule("cuda_memset_sync",
                    "{count} synchronous fills of pinned or managed memory, {bytes}, held the host for {held}",
                    "cudaMemsetAsync on a stream; pinned memory is filled faster by the host itself (memset)", 1,
                    set["min_share"]) {}

 private:
  bool counts(const GpuWork& work) const override {
    using event::MemoryKind;
    const MemoryKind memory = work.destination;
    return work.kind == WorkKind::kFill && !work.async &&
           (memory == MemoryKind::kPinned || memory == MemoryKind::kManaged || memory == MemoryKind::kManagedStatic);
  }
};

// Small copies one after the other, in one stream and direction: each pays its own start.
class SmallCopies final : public Rule {
 public:
  explicit SmallCopies(const RuleSettings& set)
      : max_bytes_(set.count("max_bytes")), min_copies_(set.count("min_copies")), min_share_(set["min_share"]),
        bytes_per_ns_(set["gb_per_s"]) {}

  void on_work(const GpuWork& work) override {
    if (work.graph != 0 || work.kind == WorkKind::kGraph) return;
    if (last_.size() >= kMostStreams && !last_.contains(work.stream)) return;
    Last& last = last_[work.stream];
    const bool small = work.kind == WorkKind::kCopy && work.size <= max_bytes_ && work.size > 0;
    if (small && last.small && last.copy == work.copy) {
      // From the end of the one before: its start-up is paid there.
      const std::int64_t took = work.end_ns - last.end_ns;
      const auto moving = static_cast<std::int64_t>(static_cast<double>(work.size) / bytes_per_ns_);
      if (took > moving && took < kOneBatchNs) found_[direction(work)].add(work, took - moving);
    }
    last = {small, work.copy, work.end_ns};
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [direction, tally] : found_) {
      const std::int64_t span = totals.span_ns();
      if (tally.count < min_copies_ || share(tally.ns, span) < min_share_) continue;
      Finding f = costed("small_copies", CostKind::kBound, tally.ns, span);
      f.message =
          "{copies} copies {direction} of {mean} on average, one after the other: {cost} more than one big copy";
      f.cost_how = "time from copy to copy, less that of the bytes at {rate} GB/s";
      f.remedy = "gather the pieces in one buffer and copy it once; for strided data cudaMemcpy2DAsync";
      f.count("copies", tally.count).text("direction", direction).bytes("mean", tally.bytes / tally.count);
      f.ns("cost", static_cast<double>(tally.ns)).number("rate", bytes_per_ns_);
      tally.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::size_t kMostStreams = 4096;
  static constexpr std::int64_t kOneBatchNs = 100'000;  // further apart they are not one piece of work
  struct Last {
    bool small = false;
    event::CopyKind copy = event::CopyKind::kUnknown;
    std::int64_t end_ns = 0;
  };
  static const char* direction(const GpuWork& work) {
    switch (work.copy) {
      case event::CopyKind::kHtoD: return "to the device";
      case event::CopyKind::kDtoH: return "to the host";
      case event::CopyKind::kDtoD: return "on the device";
      default: return "between devices or arrays";
    }
  }
  const std::uint64_t max_bytes_, min_copies_;
  const double min_share_, bytes_per_ns_;
  std::map<std::uint32_t, Last> last_;
  std::map<std::string, Tally> found_;
};

constexpr const char* kNsys = "Nsight Systems, expert system rule of this name";

}  // namespace

std::vector<RuleInfo> copy_rules() {
  const Threshold min_share{"min_share", 0.02, "host time in these calls while no kernel ran, as share of the span"};
  return {
      {"cuda_memcpy_async",
       "asynchronous copies from or to pageable memory, which wait all the same",
       kNsys,
       {{"min_bytes", 65537, "smaller copies do not count"}, {"min_copies", 2, "fewer are no pattern"}, min_share},
       make_rule<MemcpyAsync>,
       RuleInfo::Needs::kTimeline,
       {"missed_overlap", "cuda_api_sync", "gpu_gaps", "idle_time", "gpu_time_util", "copy_direction_wait"}},
      {"cuda_memcpy_sync",
       "synchronous copies, but on one device and small ones to the device",
       kNsys,
       {{"min_bytes", 65536, "copies to the device up to this size do not count"},
        {"min_copies", 4, "a copy in and one out are no pattern"},
        min_share},
       make_rule<MemcpySync>,
       RuleInfo::Needs::kTimeline,
       {"cuda_api_sync", "gpu_gaps", "idle_time", "gpu_time_util"}},
      {"cuda_memset_sync",
       "synchronous fills of pinned or managed memory",
       kNsys,
       {min_share},
       make_rule<MemsetSync>,
       RuleInfo::Needs::kTimeline,
       {"gpu_gaps", "idle_time", "gpu_time_util"}},
      {"small_copies",
       "many small copies one after the other, which one big copy could replace",
       "CUDA C++ Best Practices Guide, 10.1: batch many small transfers into one larger transfer",
       {{"max_bytes", 65536, "bigger copies do not count"},
        {"min_copies", 100, "fewer are no pattern"},
        {"min_share", 0.05, "time to be won, as share of the span"},
        {"gb_per_s", 20, "rate of one big copy"}},
       make_rule<SmallCopies>,
       RuleInfo::Needs::kTimeline,
       {"launch_bound", "idle_time", "gpu_time_util", "cuda_memcpy_sync"}},
  };
}

}  // namespace gpuflight::analysis::rules
