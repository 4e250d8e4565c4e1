// Calls in which the host waits for the GPU: synchronisations, and allocations between launches.
#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/rules/held_calls.h"
#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostThreads = 4096, kMostKeys = 4096;
constexpr const char* kIdleAfter =
    "time the device had nothing to do from running dry while the host waited to the next work";

// A synchronisation as such costs nothing. What costs is that the device has run dry when it returns.
class ApiSync final : public Rule {
 public:
  explicit ApiSync(const RuleSettings& set) : min_calls_(set.count("min_calls")), min_share_(set["min_share"]) {}

  void on_gap(const Gap& gap, const GpuWork&) override {
    if (gap.cause != GapCause::kSync) return;
    Found& found = found_[gap.device];
    found.idle_ns += gap.length_ns();
    found.held_ns += std::max<std::int64_t>(gap.culprit.call_ns, 0);
    found.evidence.add(gap.culprit.ref, gap.length_ns());
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [device, found] : found_) {
      const std::int64_t span = totals.span_ns(device);
      if (found.evidence.total() < min_calls_ || share(found.idle_ns, span) < min_share_) continue;
      Finding f = costed("cuda_api_sync", CostKind::kLost, found.idle_ns, span);
      f.device = device;
      f.message =
          "after {calls} synchronisations the device had nothing to do for {idle}; the host stood in them for {held}";
      f.cost_how = kIdleAfter;
      f.remedy = "launch the next work before waiting; wait for an event of the one thing needed, or not at all";
      f.count("calls", found.evidence.total()).ns("idle", static_cast<double>(found.idle_ns));
      f.ns("held", static_cast<double>(found.held_ns));
      found.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Found {
    std::int64_t idle_ns = 0, held_ns = 0;
    Evidence evidence;
  };
  const std::uint64_t min_calls_;
  const double min_share_;
  std::map<std::int32_t, Found> found_;
};

// The same synchronisation again and again after the same number of calls.
class SyncInLoop final : public Rule {
 public:
  explicit SyncInLoop(const RuleSettings& set)
      : min_rounds_(set.count("min_rounds")), min_regular_(set["min_regular"]), min_share_(set["min_share"]) {}

  void on_call(const HostCall& call) override {
    if (!threads_.contains(call.thread) && threads_.size() >= kMostThreads) return;
    Thread& thread = threads_[call.thread];
    ++thread.position;
    if (call.kind == CallKind::kLaunch) thread.last_config = call.config;
    if (call.kind != CallKind::kSync) return;
    const Key key{call.thread, call.name, call.stream};
    if (!loops_.contains(key) && loops_.size() >= kMostKeys) return;
    Loop& loop = loops_[key];
    if (loop.calls++ > 0) {
      const std::uint64_t distance = thread.position - loop.last_position;
      if (loop.distances.size() < kMostDistances || loop.distances.contains(distance)) ++loop.distances[distance];
    }
    if (loop.calls > 1) loop.round_ns += call.time_ns - loop.last_ns;
    loop.last_position = thread.position;
    loop.last_ns = call.time_ns;
    loop.config = thread.last_config;
  }
  void on_gap(const Gap& gap, const GpuWork&) override {
    if (gap.cause != GapCause::kSync) return;
    const auto loop = loops_.find({gap.culprit.thread, gap.culprit.name, gap.culprit.stream});
    if (loop == loops_.end()) return;
    loop->second.idle_ns += gap.length_ns();
    loop->second.device = gap.device;
    loop->second.evidence.add(gap.culprit.ref, gap.length_ns());
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [key, loop] : loops_) {
      const std::int64_t span = totals.span_ns(loop.device);
      if (loop.calls < min_rounds_ || share(loop.idle_ns, span) < min_share_) continue;
      const auto usual = std::max_element(loop.distances.begin(), loop.distances.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
      const double regular = static_cast<double>(usual->second) / static_cast<double>(loop.calls - 1);
      if (regular < min_regular_) continue;
      Finding f = costed("sync_in_loop", CostKind::kLost, loop.idle_ns, span);
      f.device = loop.device;
      const LaunchConfig* const config = log().config(loop.config);
      f.message = "{call} is every {ordinal} call of thread {thread}, {calls} times, each {round}";
      if (config != nullptr) {
        f.message += ", after {kernel}";
        f.kernel("kernel", config->name);
      }
      f.message += "; the device then had nothing to do for {idle} in all";
      f.cost_how = kIdleAfter;
      f.remedy =
          "take the synchronisation out of the loop: work of one stream is in order without it. Where the host needs "
          "a result each round, launch the next round before waiting for it";
      f.text("call", std::get<1>(key)).count("period", usual->first).text("ordinal", ordinal(usual->first));
      f.text("thread", std::to_string(std::get<0>(key))).count("calls", loop.calls);
      f.ns("round", static_cast<double>(loop.round_ns) / static_cast<double>(loop.calls - 1));
      f.ns("idle", static_cast<double>(loop.idle_ns));
      loop.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr std::size_t kMostDistances = 32;
  using Key = std::tuple<std::uint32_t, const char*, std::uint32_t>;  // thread, call, stream
  struct Thread {
    std::uint64_t position = 0;  // calls so far
    std::uint32_t last_config = kNoConfig;
  };
  struct Loop {
    std::uint64_t calls = 0, last_position = 0;
    std::int64_t last_ns = 0, round_ns = 0, idle_ns = 0;
    std::map<std::uint64_t, std::uint64_t> distances;  // in calls of the thread
    std::uint32_t config = kNoConfig;                  // of the launch before it
    std::int32_t device = -1;
    Evidence evidence;
  };
  static std::string ordinal(std::uint64_t n) {
    const bool teen = n % 100 >= 11 && n % 100 <= 13;
    const char* const end = teen ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
    return std::to_string(n) + end;
  }
  const std::uint64_t min_rounds_;
  const double min_regular_, min_share_;
  std::map<std::uint32_t, Thread> threads_;
  std::map<Key, Loop> loops_;
};

class AllocInLoop final : public Rule {
 public:
  explicit AllocInLoop(const RuleSettings& set) : min_rounds_(set.count("min_rounds")), min_share_(set["min_share"]) {}

  void on_call(const HostCall& call) override {
    if (!threads_.contains(call.thread) && threads_.size() >= kMostThreads) return;
    Thread& thread = threads_[call.thread];
    if (call.kind == CallKind::kLaunch || call.kind == CallKind::kGraphLaunch) {
      thread.launched = thread.between = true;
    } else if ((call.kind == CallKind::kAlloc || call.kind == CallKind::kFree) && thread.launched && is_slow(call)) {
      if (thread.between) ++thread.rounds;
      thread.between = false;
      ++thread.calls;
      thread.held_ns += std::max<std::int64_t>(call.call_ns, 0);
      if (call.kind == CallKind::kAlloc) ++thread.allocs, thread.bytes += call.size;
      Named& named = thread.names[call.name];
      ++named.calls;
      named.ns += std::max<std::int64_t>(call.call_ns, 0);
      calls_.hold(call.device, call.time_ns, call.end_ns(), call.ref, call.thread);
    }
  }
  void on_work(const GpuWork& work) override { calls_.saw_work(work); }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    calls_.settle_all();
    for (const auto& [number, thread] : threads_) {
      const std::int64_t span = totals.span_ns();
      // Without GPU times it is not known what ran meanwhile.
      const std::int64_t cost = totals.whole() ? thread.lost_ns : thread.held_ns;
      if (thread.rounds < min_rounds_ || share(cost, span) < min_share_) continue;
      Finding f = costed("alloc_in_loop", CostKind::kBound, cost, span);
      f.message =
          "{calls} allocations and frees in {rounds} rounds between launches held thread {thread} for {held}: mostly "
          "{call}";
      f.cost_how = totals.whole() ? "host time in these calls while no kernel ran" : "host time in these calls";
      f.remedy =
          "allocate once before the loop, or use cudaMallocAsync and cudaFreeAsync, which keep the memory in a pool";
      const auto worst = std::max_element(thread.names.begin(), thread.names.end(),
                                          [](const auto& a, const auto& b) { return a.second.ns < b.second.ns; });
      f.count("calls", thread.calls).count("rounds", thread.rounds).text("thread", std::to_string(number));
      f.ns("held", static_cast<double>(thread.held_ns)).text("call", worst->first);
      f.bytes("bytes", thread.bytes).count("allocations", thread.allocs);
      thread.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Named {
    std::uint64_t calls = 0;
    std::int64_t ns = 0;
  };
  struct Thread {
    bool launched = false, between = false;  // a launch at all; since the last such call
    std::uint64_t rounds = 0, calls = 0, allocs = 0, bytes = 0;
    std::int64_t held_ns = 0, lost_ns = 0;
    std::map<std::string, Named> names;  // of a fixed list
    Evidence evidence;
  };
  // Stream-ordered ones are what the remedy is; virtual memory is what pools are made of.
  static bool is_slow(const HostCall& call) {
    return call.allocation != event::AllocationKind::kPool && call.allocation != event::AllocationKind::kVirtual &&
           call.allocation != event::AllocationKind::kMapping;
  }
  const std::uint64_t min_rounds_;
  const double min_share_;
  HeldCalls calls_{[this](std::uint32_t thread, const EventRef& ref, std::int64_t idle_ns) {
    threads_[thread].lost_ns += idle_ns;
    threads_[thread].evidence.add(ref, idle_ns);
  }};
  std::map<std::uint32_t, Thread> threads_;
};

}  // namespace

std::vector<RuleInfo> sync_rules() {
  return {
      {"cuda_api_sync",
       "synchronisations after which the device has nothing to do",
       "Nsight Systems, expert system rule of this name; counted is the idle time they leave",
       {{"min_calls", 2, "fewer are no pattern"}, {"min_share", 0.02, "idle time, as share of the device's span"}},
       make_rule<ApiSync>,
       RuleInfo::Needs::kTimeline,
       {"gpu_gaps", "idle_time", "gpu_time_util", "launch_bound"}},
      {"sync_in_loop",
       "the same synchronisation at regular distance in a thread's calls",
       "CUDA C++ Best Practices Guide, 9.1: synchronisation stalls the pipeline; keep work queued",
       {{"min_rounds", 10, "fewer are no loop"},
        {"min_regular", 0.7, "share of the rounds with the usual number of calls"},
        {"min_share", 0.02, "idle time, as share of the device's span"}},
       make_rule<SyncInLoop>,
       RuleInfo::Needs::kTimeline,
       {"cuda_api_sync", "gpu_gaps", "idle_time", "gpu_time_util", "launch_bound", "tiny_kernels", "graph_candidate"}},
      {"alloc_in_loop",
       "allocations and frees between launches",
       "CUDA C++ Best Practices Guide, 11.2: allocation is expensive, reuse memory or use stream-ordered allocation",
       {{"min_rounds", 10, "fewer are no loop"},
        {"min_share", 0.02, "host time in these calls while no kernel ran, as share of the span"}},
       make_rule<AllocInLoop>,
       RuleInfo::Needs::kSamples,
       {"cuda_api_sync", "sync_in_loop", "gpu_gaps", "idle_time", "gpu_time_util", "launch_bound"}},
  };
}

}  // namespace gpuflight::analysis::rules
