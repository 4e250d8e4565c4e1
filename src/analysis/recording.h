// What one run of a program leaves for a comparison: its kernels by configuration, and the machine they ran on. The logs
// of the processes of one run (ranks, workers) are one recording.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/launch_group.h"
#include "analysis/log_summary.h"

namespace gpuflight::analysis {

// The same kernel launched the same way, in whichever build: without what the compiler made of it.
struct KernelConfigKey {
  std::string kernel;  // stable_name
  bool shape_known = false;
  event::Dim3 block, cluster{0, 0, 0};
  std::uint32_t dyn_shared_bytes = 0;
  auto operator<=>(const KernelConfigKey&) const = default;
};

// A mangled name in which each anonymous namespace is called the same: nvcc puts a hash of the file into it that another
// build changes.
std::string stable_name(std::string_view mangled);

enum class MachineFact : std::uint8_t { kDevice, kClocks, kDriver, kTimeSource, kBoard, kHost, kRecorder, kTiming };
inline constexpr int kMachineFactCount = 8;
inline constexpr const char* kMachineFactNames[] = {"device", "clocks", "driver",   "time_source",
                                                    "board",  "host",   "recorder", "timing"};
// Times of sides that differ in this are not compared; the others are worth a note. (A time by events holds what lies
// between them beside the kernel: of a short one as much again.)
constexpr bool decides_times(MachineFact fact) { return fact <= MachineFact::kTimeSource; }
using Machine = std::array<std::set<std::string>, kMachineFactCount>;  // all values there are; none: not known

struct Recording {
  std::vector<std::string> paths;
  std::string host;
  bool ranked = false;  // a process that says which rank it is
  std::optional<std::int64_t> begin_unix_ns, end_unix_ns;
  std::uint64_t missing_events = 0;  // lost, or not in the file any more: counts are too small by up to this
  std::size_t without_end = 0;       // logs whose program was killed or still runs
  bool complete = true;              // false: more configurations than are kept apart
  Machine machine;
  std::map<KernelConfigKey, LaunchGroup> kernels;
  double kernel_total_ns = 0;  // of launches without a time (samples were taken) what those with one took on average

  void add(const Recording& other);
};

// Of one log. The summary is by configuration.
Recording recording_of(const LogSummary& summary);

// Logs that overlap in time on one host, or on several where they tell their ranks, are of one run and become one
// recording. The order of the first logs stays.
std::vector<Recording> join_runs(std::vector<Recording> logs);

}  // namespace gpuflight::analysis
