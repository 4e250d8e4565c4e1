#include "recorder/cost_meter.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <string_view>
#include <unistd.h>

namespace gpuflight::recorder {
namespace {

// "QUOTA PERIOD" or "max PERIOD", of the control group that a container sees as its root. 0: no quota.
std::uint32_t quota_processors() noexcept {
  const int fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[64];
  const ssize_t n = read(fd, text, sizeof text);
  close(fd);
  if (n <= 0) return 0;
  const char* const end = text + n;
  std::uint64_t quota = 0, period = 0;
  const auto first = std::from_chars(text, end, quota);
  if (first.ec != std::errc{} || first.ptr == end) return 0;
  if (std::from_chars(first.ptr + 1, end, period).ec != std::errc{} || period == 0) return 0;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((quota + period - 1) / period, 1, 1u << 16));
}

}  // namespace

std::uint32_t usable_processors() noexcept {
  const int saved = errno;
  std::uint32_t processors = 0;
  // As many as the kernel may know of: a smaller mask is refused.
  alignas(cpu_set_t) unsigned char mask[16384 / 8];
  std::memset(mask, 0, sizeof mask);
  auto* const set = reinterpret_cast<cpu_set_t*>(mask);
  if (sched_getaffinity(0, sizeof mask, set) == 0) processors = static_cast<std::uint32_t>(CPU_COUNT_S(sizeof mask, set));
  if (const std::uint32_t quota = quota_processors(); quota != 0) {
    processors = processors == 0 ? quota : std::min(processors, quota);
  }
  errno = saved;
  return std::max(processors, 1u);
}

CostPeriod CostMeter::read(std::int64_t now_ns, const Drain::Counts& counts, std::uint64_t recorder_cpu_ns) noexcept {
  CostPeriod period;
  period.wall_ns = now_ns - last_ns_;
  const std::uint32_t slots = rings_.slots_used();
  try {
    if (seen_.size() < slots) seen_.resize(slots);
  } catch (...) {
  }
  for (std::uint32_t slot = 1; slot < slots && slot < seen_.size(); ++slot) {
    const flight::Ring* const ring = rings_.ring(slot);
    if (ring == nullptr) continue;
    const std::uint64_t seen = ring->slot().seen.load(std::memory_order_relaxed);
    const std::uint64_t made = seen - seen_[slot];
    seen_[slot] = seen;
    period.records += made;
    period.busiest = std::max(period.busiest, made);
  }
  // Of what kinds they were is known of those that were taken out of the rings meanwhile.
  const auto since = [&](std::uint64_t Drain::Counts::*count) { return counts.*count - counts_.*count; };
  using Counts = Drain::Counts;
  const std::uint64_t launches = since(&Counts::launches) + since(&Counts::captured);
  const std::uint64_t graphs = since(&Counts::graph_launches);
  const std::uint64_t calls = launches + graphs + since(&Counts::other_calls);
  const std::uint64_t taken = calls + since(&Counts::scopes);
  const auto part = [&](std::uint64_t of_taken) -> std::uint64_t {
    if (taken == 0) return 0;
    return static_cast<std::uint64_t>(static_cast<double>(of_taken) / static_cast<double>(taken) *
                                      static_cast<double>(period.records));
  };
  period.calls = taken == 0 ? period.records : part(calls);
  period.launches = taken == 0 ? period.records : part(launches);
  period.graph_launches = part(graphs);
  period.nodes = since(&Counts::graph_kernels);
  period.recorder_cpu_ns = recorder_cpu_ns - std::min(recorder_cpu_ns, cpu_ns_);
  counts_ = counts;
  cpu_ns_ = recorder_cpu_ns;
  last_ns_ = now_ns;
  return period;
}

}  // namespace gpuflight::recorder
