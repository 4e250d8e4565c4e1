#include "analysis/rules/gap_finder.h"

#include <algorithm>

namespace gpuflight::analysis::rules {
namespace {

// Work whose launch began no earlier than this before the device ran dry was not queued ahead: from the launch call to
// the start on an idle GPU it takes some microseconds.
constexpr std::int64_t kLaunchLatencyNs = 10'000;
// Gaps shorter than this before work that had been launched are the GPU's own (HTA's bound).
constexpr std::int64_t kKernelWaitNs = 30'000;
// Host and GPU times agree to this.
constexpr std::int64_t kClockSlackNs = 2'000;

}  // namespace

void GapFinder::saw_call(const HostCall& call) {
  if (call.untimed) untimed_ns_ = std::max(untimed_ns_, call.time_ns);
  const auto found = threads_.find(call.thread);
  if (found == threads_.end() && threads_.size() >= kMaxThreads) return;
  Recent& recent = found == threads_.end() ? threads_[call.thread] : found->second;
  recent.calls[recent.count++ % kRecent] = call;
}

std::optional<Gap> GapFinder::saw_work(const GpuWork& work, DeviceTotals& totals) {
  ++totals.works;
  (work.kind == WorkKind::kKernel || work.kind == WorkKind::kGraph ? totals.kernel_ns : totals.copy_ns) +=
      work.duration_ns();
  const auto [at, first] = latest_.try_emplace(work.device, work);
  GpuWork& latest = at->second;
  if (first) {
    totals.first_ns = work.start_ns;
    totals.last_ns = work.end_ns;
    totals.busy_ns = work.duration_ns();
    return std::nullopt;
  }
  totals.busy_ns += std::max<std::int64_t>(0, work.end_ns - std::max(work.start_ns, latest.end_ns));
  totals.last_ns = std::max(totals.last_ns, work.end_ns);
  std::optional<Gap> gap;
  if (work.start_ns > latest.end_ns && untimed_ns_ >= latest.end_ns) {
    totals.unknown_ns += work.start_ns - latest.end_ns;
  } else if (work.start_ns > latest.end_ns) {
    gap.emplace();
    gap->device = work.device;
    gap->from_ns = latest.end_ns;
    gap->to_ns = work.start_ns;
    gap->before = latest;
    explain(*gap, work);
    const bool host = work.launch_ns != kNoTime && work.launch_ns > gap->from_ns;
    const bool brief = gap->length_ns() < kKernelWaitNs;
    (host ? totals.host_wait_ns : brief ? totals.kernel_wait_ns : totals.other_idle_ns) += gap->length_ns();
  }
  if (work.end_ns >= latest.end_ns) latest = work;
  return gap;
}

void GapFinder::explain(Gap& gap, const GpuWork& after) const {
  if (after.launch_ns == kNoTime) return;
  if (after.launch_ns < gap.from_ns - kLaunchLatencyNs) {
    gap.cause = GapCause::kQueued;
    return;
  }
  gap.cause = GapCause::kLaunching;
  std::int64_t in_calls = 0, in_allocs = 0;
  HostCall longest_alloc;
  const auto thread = threads_.find(after.thread);
  const std::uint64_t known = thread == threads_.end() ? 0 : std::min<std::uint64_t>(thread->second.count, kRecent);
  for (std::uint64_t i = 0; i < known; ++i) {
    const HostCall& call = thread->second.calls[i];
    if (call.time_ns >= after.launch_ns || call.end_ns() <= gap.from_ns) continue;
    const std::int64_t inside = std::min(call.end_ns(), after.launch_ns) - std::max(call.time_ns, gap.from_ns);
    in_calls += inside;
    if (call.waits && call.time_ns <= gap.from_ns + kClockSlackNs) {
      gap.cause = call.kind == CallKind::kSync ? GapCause::kSync : GapCause::kBlockingCopy;
      gap.culprit = call;
      return;
    }
    if (call.kind == CallKind::kAlloc || call.kind == CallKind::kFree) {
      in_allocs += inside;
      if (call.call_ns > longest_alloc.call_ns) longest_alloc = call;
    }
  }
  const std::int64_t host = after.launch_ns - gap.from_ns;
  if (in_allocs * 2 > gap.length_ns()) {
    gap.cause = GapCause::kAlloc;
    gap.culprit = longest_alloc;
  } else if ((host - in_calls) * 2 > gap.length_ns()) {
    gap.cause = GapCause::kHost;
  }
}

}  // namespace gpuflight::analysis::rules
