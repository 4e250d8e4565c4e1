#include "analysis/recording.h"

#include <algorithm>

namespace gpuflight::analysis {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "13.0" of 13000.
std::string cuda_version(std::int32_t version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string mhz(std::int32_t khz) { return khz > 0 ? std::to_string(khz / 1000) + " MHz" : std::string("unknown"); }

// `summed_up`: there are GPU times in the summaries of the logs.
void add_machine(Machine& machine, const LogFacts& log, bool summed_up) {
  const auto add = [&](MachineFact fact, std::string value) {
    if (!value.empty()) machine[static_cast<std::size_t>(fact)].insert(std::move(value));
  };
  for (const event::DeviceInfo& device : log.devices) {
    add(MachineFact::kDevice, device.name + " (sm_" + std::to_string(device.compute_major) +
                                  std::to_string(device.compute_minor) + ", " + std::to_string(device.sm_count) +
                                  " SMs)");
    if (device.sm_clock_khz > 0 || device.memory_clock_khz > 0) {
      add(MachineFact::kClocks, "SM " + mhz(device.sm_clock_khz) + ", memory " + mhz(device.memory_clock_khz));
    }
    add(MachineFact::kBoard, device.uuid);
  }
  add(MachineFact::kTiming, std::string(log.timing()));
  // Of times that stand in summaries only it is known by what launches were seen.
  const std::uint64_t in_lines = log.timed_kernels + log.late_times;
  const bool by_hooks = log.start && log.start->capture == "interpose";
  const bool by_events = in_lines > 0 ? log.event_timed > 0 : summed_up && by_hooks;
  const bool by_cupti = in_lines > 0 ? in_lines > log.event_timed : summed_up && !by_hooks;
  if (by_events) add(MachineFact::kTimeSource, "events");
  if (by_cupti) add(MachineFact::kTimeSource, "CUPTI");
  if (!log.start) return;
  if (log.start->driver_version) add(MachineFact::kDriver, cuda_version(*log.start->driver_version));
  add(MachineFact::kHost, log.start->host);
  add(MachineFact::kRecorder, log.start->library_version);
}

bool overlap(const Recording& a, const Recording& b) {
  if (!a.begin_unix_ns || !b.begin_unix_ns || !a.end_unix_ns || !b.end_unix_ns) return false;
  const bool together = a.host == b.host || (a.ranked && b.ranked);
  return together && *a.begin_unix_ns < *b.end_unix_ns && *b.begin_unix_ns < *a.end_unix_ns;
}

}  // namespace

std::string stable_name(std::string_view mangled) {
  constexpr std::string_view kMark = "_GLOBAL__N_", kPlain = "12_GLOBAL__N_1";
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = mangled.find(kMark, done)) != std::string_view::npos;) {
    std::size_t digits = at;
    while (digits > done && is_digit(mangled[digits - 1])) --digits;
    std::size_t length = 0;
    for (std::size_t i = digits; i < at; ++i) length = std::min<std::size_t>(length * 10 + (mangled[i] - '0'), 1 << 20);
    if (length < kMark.size() || length > mangled.size() - at) {  // no name of an anonymous namespace
      out += mangled.substr(done, at + 1 - done);
      done = at + 1;
      continue;
    }
    out += mangled.substr(done, digits - done);
    out += kPlain;
    done = at + length;
  }
  out += mangled.substr(done);
  return out;
}

Recording recording_of(const LogSummary& summary) {
  Recording recording;
  recording.complete = !summary.groups_full();
  const bool summed_up = std::any_of(summary.groups().begin(), summary.groups().end(),
                                     [](const LaunchGroup& group) { return group.gpu.count > 0; });
  for (const LogFacts& log : summary.logs()) {
    recording.paths.push_back(log.path);
    recording.missing_events += log.lost() + log.missing_events();
    recording.without_end += log.end ? 0 : 1;
    add_machine(recording.machine, log, summed_up);
    if (!log.start) continue;
    recording.host = log.start->host;
    recording.ranked |= !log.start->rank.empty();
    const std::int64_t begin = log.start->t0_unix_ns;
    std::int64_t end = begin;
    if (__builtin_add_overflow(begin, log.duration_ns(), &end)) end = begin;
    recording.begin_unix_ns = std::min(recording.begin_unix_ns.value_or(begin), begin);
    recording.end_unix_ns = std::max(recording.end_unix_ns.value_or(end), end);
  }
  event::SketchBudget budget{SIZE_MAX};  // the summary's own has bounded them
  for (const LaunchGroup& group : summary.groups()) {
    if (group.label == kOtherGroups) continue;
    const KernelConfigKey key{stable_name(group.label), group.block_threads.known, group.block, group.cluster,
                              group.dyn_shared_bytes.known ? group.dyn_shared_bytes.min : 0};
    const auto [at, fresh] = recording.kernels.try_emplace(key, group);
    if (!fresh) at->second.add(group, budget);
    recording.kernel_total_ns += group.estimated_total_ns().value_or(0);
  }
  return recording;
}

void Recording::add(const Recording& other) {
  paths.insert(paths.end(), other.paths.begin(), other.paths.end());
  ranked |= other.ranked;
  if (other.begin_unix_ns) begin_unix_ns = std::min(begin_unix_ns.value_or(*other.begin_unix_ns), *other.begin_unix_ns);
  if (other.end_unix_ns) end_unix_ns = std::max(end_unix_ns.value_or(*other.end_unix_ns), *other.end_unix_ns);
  missing_events += other.missing_events;
  without_end += other.without_end;
  complete &= other.complete;
  for (std::size_t i = 0; i < machine.size(); ++i) machine[i].insert(other.machine[i].begin(), other.machine[i].end());
  event::SketchBudget budget{SIZE_MAX};
  for (const auto& [key, group] : other.kernels) {
    const auto [at, fresh] = kernels.try_emplace(key, group);
    if (!fresh) at->second.add(group, budget);
  }
  kernel_total_ns += other.kernel_total_ns;
}

std::vector<Recording> join_runs(std::vector<Recording> logs) {
  std::vector<Recording> runs;
  for (Recording& log : logs) {
    // It may join several that had nothing in common before.
    std::vector<Recording> apart;
    std::optional<std::size_t> into;
    for (Recording& run : runs) {
      if (!overlap(run, log)) {
        apart.push_back(std::move(run));
      } else if (!into) {
        into = apart.size();
        apart.push_back(std::move(run));
      } else {
        apart[*into].add(run);
      }
    }
    if (into) {
      apart[*into].add(log);
    } else {
      apart.push_back(std::move(log));
    }
    runs = std::move(apart);
  }
  return runs;
}

}  // namespace gpuflight::analysis
