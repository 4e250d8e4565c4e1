// Copies and fills: from pageable memory, synchronous ones, many small ones.
#include <map>

#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

bool to_device(const GpuWork& work) { return work.copy == event::CopyKind::kHtoD || work.copy == event::CopyKind::kHtoA; }

std::int64_t host_ns(const GpuWork& work) { return work.call_ns > 0 ? work.call_ns : 0; }

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

constexpr const char* kHostHeld = "host time in these calls";

class MemcpyAsync final : public Rule {
 public:
  explicit MemcpyAsync(const RuleSettings& set)
      : min_bytes_(set.count("min_bytes")), min_copies_(set.count("min_copies")), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (work.kind != WorkKind::kCopy || !work.async || !work.pageable() || work.size < min_bytes_) return;
    if (work.graph == 0) found_.add(work, host_ns(work));
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    const std::int64_t span = totals.span_ns();
    if (found_.count < min_copies_ || share(found_.ns, span) < min_share_) return;
    Finding f = costed("cuda_memcpy_async", CostKind::kBound, found_.ns, span);
    f.message = "{copies} asynchronous copies from or to pageable memory, {bytes}: the host waited {held} in their calls, "
                "and nothing ran beside them";
    f.cost_how = kHostHeld;
    f.remedy = "take the host memory from cudaMallocHost, or pin what is there with cudaHostRegister, once and not per copy";
    f.count("copies", found_.count).bytes("bytes", found_.bytes).ns("held", static_cast<double>(found_.ns));
    found_.evidence.give(f);
    findings.push_back(std::move(f));
  }

 private:
  const std::uint64_t min_bytes_, min_copies_;
  const double min_share_;
  Tally found_;
};

class MemcpySync final : public Rule {
 public:
  explicit MemcpySync(const RuleSettings& set)
      : min_bytes_(set.count("min_bytes")), min_copies_(set.count("min_copies")), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (work.kind != WorkKind::kCopy || work.async || work.graph != 0) return;
    if (work.copy == event::CopyKind::kDtoD) return;               // on one device: the host need not wait
    if (to_device(work) && work.size <= min_bytes_) return;        // staged: returns before it is done
    found_.add(work, host_ns(work));
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    const std::int64_t span = totals.span_ns();
    if (found_.count < min_copies_ || share(found_.ns, span) < min_share_) return;
    Finding f = costed("cuda_memcpy_sync", CostKind::kBound, found_.ns, span);
    f.message = "{copies} synchronous copies of {bytes} held the host for {held}";
    f.cost_how = kHostHeld;
    f.remedy = "cudaMemcpyAsync from pinned memory on a stream of its own, and wait only where the data is used";
    f.count("copies", found_.count).bytes("bytes", found_.bytes).ns("held", static_cast<double>(found_.ns));
    found_.evidence.give(f);
    findings.push_back(std::move(f));
  }

 private:
  const std::uint64_t min_bytes_, min_copies_;
  const double min_share_;
  Tally found_;
};

class MemsetSync final : public Rule {
 public:
  explicit MemsetSync(const RuleSettings& set) : min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (work.kind != WorkKind::kFill || work.async || work.graph != 0) return;
    const auto memory = work.destination;
    if (memory == event::MemoryKind::kPinned || memory == event::MemoryKind::kManaged ||
        memory == event::MemoryKind::kManagedStatic) {
      found_.add(work, host_ns(work));
    }
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    const std::int64_t span = totals.span_ns();
    if (found_.count == 0 || share(found_.ns, span) < min_share_) return;
    Finding f = costed("cuda_memset_sync", CostKind::kBound, found_.ns, span);
    f.message = "{fills} synchronous fills of pinned or managed memory, {bytes}, held the host for {held}";
    f.cost_how = kHostHeld;
    f.remedy = "cudaMemsetAsync on a stream; pinned memory is filled faster by the host itself (memset)";
    f.count("fills", found_.count).bytes("bytes", found_.bytes).ns("held", static_cast<double>(found_.ns));
    found_.evidence.give(f);
    findings.push_back(std::move(f));
  }

 private:
  const double min_share_;
  Tally found_;
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
      f.message = "{copies} copies {direction} of {mean} on average, one after the other: {cost} more than one big copy";
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
  const Threshold min_share{"min_share", 0.02, "host time in these calls, as share of the span"};
  return {
      {"cuda_memcpy_async", "asynchronous copies from or to pageable memory, which wait all the same", kNsys,
       {{"min_bytes", 65537, "smaller copies do not count"}, {"min_copies", 2, "fewer are no pattern"}, min_share},
       make_rule<MemcpyAsync>,
       {"missed_overlap", "cuda_api_sync", "gpu_gaps", "idle_time", "gpu_time_util", "copy_direction_wait"}},
      {"cuda_memcpy_sync", "synchronous copies, but on one device and small ones to the device", kNsys,
       {{"min_bytes", 65536, "copies to the device up to this size do not count"},
        {"min_copies", 4, "a copy in and one out are no pattern"},
        min_share},
       make_rule<MemcpySync>,
       {"cuda_api_sync", "gpu_gaps", "idle_time", "gpu_time_util"}},
      {"cuda_memset_sync", "synchronous fills of pinned or managed memory", kNsys, {min_share}, make_rule<MemsetSync>,
       {"gpu_gaps", "idle_time", "gpu_time_util"}},
      {"small_copies", "many small copies one after the other, which one big copy could replace",
       "CUDA C++ Best Practices Guide, 10.1: batch many small transfers into one larger transfer",
       {{"max_bytes", 65536, "bigger copies do not count"},
        {"min_copies", 100, "fewer are no pattern"},
        {"min_share", 0.05, "time to be won, as share of the span"},
        {"gb_per_s", 20, "rate of one big copy"}},
       make_rule<SmallCopies>,
       {"launch_bound", "idle_time", "gpu_time_util", "cuda_memcpy_sync"}},
  };
}

}  // namespace gpuflight::analysis::rules
