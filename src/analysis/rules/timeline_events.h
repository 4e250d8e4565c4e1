// What rules are fed: the work of the GPU by the time of its start, and the calls of the host by the time of their
// entry, of one log, in one order of time. Times are ns since t0 of the recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/rules/finding.h"
#include "event/activity.h"
#include "event/device_info.h"
#include "event/kernel_config.h"

namespace gpuflight::analysis::rules {

inline constexpr std::int64_t kNoTime = INT64_MIN;
inline constexpr std::uint32_t kNoConfig = UINT32_MAX;

// A kernel and how it is launched.
struct LaunchConfig {
  std::string name;  // mangled; empty: not known
  event::LaunchShape shape;
  std::int32_t num_regs = -1, local_bytes_per_thread = -1, static_shared_bytes = -1, max_active_blocks = -1;
  std::optional<double> occupancy;
  std::optional<event::Limiter> limiter;
};

enum class WorkKind : std::uint8_t { kKernel, kCopy, kFill, kGraph };

struct GpuWork {
  EventRef ref;
  WorkKind kind = WorkKind::kKernel;
  bool async = true;  // of a copy or fill, as called
  event::CopyKind copy = event::CopyKind::kUnknown;
  event::MemoryKind source = event::MemoryKind::kUnknown;
  event::MemoryKind destination = event::MemoryKind::kUnknown;  // of a fill: the memory
  std::int32_t device = -1;
  std::uint32_t stream = 0, thread = 0, graph = 0;
  std::uint32_t config = kNoConfig;  // of a kernel: row for LogContext::config
  std::uint64_t size = 0;            // blocks of the grid, or bytes
  std::int64_t launch_ns = kNoTime;  // entry of its call
  std::int64_t call_ns = -1;         // host duration of the call; -1: not known, or a node of a graph
  std::int64_t start_ns = 0, end_ns = 0;
  // From when on nothing in its own stream kept it: launched, and what stood before it in the stream ended.
  std::int64_t ready_ns = kNoTime;
  std::int64_t duration_ns() const { return end_ns - start_ns; }
  bool pageable() const {
    return source == event::MemoryKind::kPageable || destination == event::MemoryKind::kPageable;
  }
};

enum class CallKind : std::uint8_t {
  kLaunch,
  kGraphLaunch,
  kSync,
  kCopy,
  kFill,
  kAlloc,
  kFree,
  kRecord,
  kWait,
  kOther
};

struct HostCall {
  EventRef ref;
  CallKind kind = CallKind::kOther;
  const char* name = "";  // of the driver's call, where the log tells it
  bool waits = false;     // the host waits in it for the GPU
  std::uint32_t thread = 0, stream = 0, context = 0;
  std::int32_t device = -1;
  std::int64_t time_ns = 0, call_ns = -1;
  std::uint32_t config = kNoConfig;
  std::uint64_t size = 0;  // blocks, bytes
  bool captured = false;
  bool untimed = false;  // a launch that ran, and when is not known
  event::AllocationKind allocation = event::AllocationKind::kDevice;
  std::uint64_t pool = 0;
  std::optional<std::uint64_t> total_bytes;
  std::int64_t end_ns() const { return time_ns + (call_ns > 0 ? call_ns : 0); }
};

// Why a device had nothing to do, by what the thread did that launched the work after it.
enum class GapCause : std::uint8_t {
  kQueued,        // launched long before: the work waited for something on the GPU
  kSync,          // the thread was in a synchronisation when the device ran dry
  kBlockingCopy,  // in a copy or fill that waits
  kAlloc,         // mostly in allocations and frees
  kLaunching,     // launches came too slowly
  kHost,          // doing something else than CUDA calls
  kUnknown,       // the launch was not seen
};

struct Gap {
  std::int32_t device = -1;
  std::int64_t from_ns = 0, to_ns = 0;
  GapCause cause = GapCause::kUnknown;
  HostCall culprit;  // of kSync, kBlockingCopy and kAlloc: the call
  GpuWork before;    // that ended last
  std::int64_t length_ns() const { return to_ns - from_ns; }
};

}  // namespace gpuflight::analysis::rules
