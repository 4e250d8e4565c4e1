// Reads a log: plain or zstd, a file, standard input or a whole rotated recording, finished or still growing, larger
// than memory, damaged or hostile. What is readable is read, what is not is counted with where it was first seen;
// nothing in a file can make it throw, crash or loop.
// For tools. Threads: one owner. next() may block on the file; memory is bounded by the longest line allowed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "event/activity.h"
#include "event/api_call.h"
#include "event/events.h"
#include "event/incidents.h"
#include "event/level.h"

namespace gpuflight::log {

// A kernel_event with everything its line says: kernel, configuration, occupancy and launch. -1 / nullopt: null.
struct KernelEventLine {
  event::KernelLaunch launch;  // launch.scope is not in the log: the path is in `scope`
  event::KernelInfo kernel;    // name, device, num_regs, static_shared_bytes, local_bytes_per_thread,
                               // max_threads_per_block, binary_version, module_hash
  event::LaunchShape shape;
  event::Occupancy occupancy;
  bool config_known = false;
  bool details = false;        // the line has the occupancy part
  std::optional<std::uint32_t> context;
  std::optional<std::string> scope;
  // As printed, 6 decimals.
  std::optional<double> occupancy_ratio, waves;
  std::array<std::optional<double>, event::kLimiterCount> limit_occupancy;  // indexed by Limiter
  std::optional<std::int64_t> duration_ns, queue_ns;
  bool timed_by_events = false;  // launch.by_events says how long it took
};

struct GraphLaunchLine {
  event::GraphLaunch launch;
  std::optional<std::int32_t> device;
  std::optional<std::uint32_t> context;
  std::optional<std::string> scope;
};

struct ScopeLine {
  event::ScopeEvent event;
  std::optional<std::string> scope;
};

struct SessionStartLine {
  event::SessionStart session;
  std::uint32_t schema_major = 0, schema_minor = 0;
  std::uint32_t segment = 1;
};

struct DeviceInfoLine {
  event::Seq seq;
  event::DeviceInfo device;
};

struct KernelSummaryLine {
  event::KernelSummary summary;
  std::optional<std::uint64_t> timed;  // not in logs before format 1.1
  std::optional<std::uint64_t> calls_timed;  // nor this
  event::KernelInfo kernel;
  event::LaunchShape shape;
  event::Occupancy occupancy;
  bool config_known = false;
  bool details = false;
  std::optional<double> occupancy_ratio;
  std::array<std::optional<double>, event::kLimiterCount> limit_occupancy;
};

// One kernel of what a graph_info tells of: its configuration, and how often a launch runs it.
struct GraphKernelLine {
  event::GraphKernelInfo info;
  event::KernelInfo kernel;
  event::LaunchShape shape;
  event::Occupancy occupancy;
  bool config_known = false;
  bool details = false;
  std::optional<double> occupancy_ratio;
  std::array<std::optional<double>, event::kLimiterCount> limit_occupancy;
};

// A call that a host thread may wait in. call.call is 0 for one that this version has no number for.
struct ApiLine {
  event::ApiEvent call;  // call.scope is not in the log
  std::string name;
  std::optional<std::string> scope;
};
struct SyncLine : ApiLine {};

// The scopes, devices and contexts of these are as in KernelEventLine; scope ids are not in the log.
struct MemcpyLine {
  event::MemcpyEvent copy;
  std::optional<std::int32_t> device;
  std::optional<std::uint32_t> context;
  std::optional<std::string> scope;
};

struct MemsetLine {
  event::MemsetEvent fill;
  std::optional<std::int32_t> device;
  std::optional<std::uint32_t> context;
  std::optional<std::string> scope;
};

struct MemoryLine {
  event::MemoryEvent memory;  // memory.call is 0 for one that this version has no number for
  std::string call;
  std::optional<std::string> scope;
};

struct StreamEdgeLine {
  event::StreamEdge edge;
  std::optional<std::string> scope;
};

struct KernelTimeLine {
  event::KernelTime time;
  std::string name;  // mangled; empty: not known
  std::optional<std::int32_t> device;
  std::optional<std::uint32_t> context;
  std::optional<std::int64_t> duration_ns;
  bool timed_by_events = false;
};

struct KernelPendingLine {
  event::KernelPending pending;
  std::string name;
  std::optional<std::int32_t> device;
  std::optional<std::uint32_t> context;
};

// monostate: nothing read yet.
using LogEvent = std::variant<std::monostate, KernelEventLine, GraphLaunchLine, ScopeLine, SessionStartLine,
                              DeviceInfoLine, event::StreamInfo, KernelSummaryLine, event::Notice, event::LossEvent,
                              event::SessionEnd, SyncLine, ApiLine, event::ErrorEvent, event::HangEvent,
                              event::ForkEvent, event::ExitEvent, MemcpyLine, MemsetLine, MemoryLine, StreamEdgeLine,
                              KernelTimeLine, KernelPendingLine, event::ClockEvent, event::GraphInfo, GraphKernelLine,
                              event::LevelEvent>;

// The call of a sync_event or api_event; nullptr: another event.
inline const ApiLine* api_line(const LogEvent& event) {
  if (const auto* sync = std::get_if<SyncLine>(&event)) return sync;
  return std::get_if<ApiLine>(&event);
}

// The number of an event that the ledger counts: of one of the program's threads, then it stands in the flight file
// too, or of event::kGpuSlot. Nothing for the recorder's own lines.
inline std::optional<event::Seq> thread_seq(const LogEvent& event) {
  if (const auto* kernel = std::get_if<KernelEventLine>(&event)) return kernel->launch.seq;
  if (const auto* graph = std::get_if<GraphLaunchLine>(&event)) return graph->launch.seq;
  if (const auto* scope = std::get_if<ScopeLine>(&event)) return scope->event.seq;
  if (const ApiLine* const call = api_line(event)) return call->call.seq;
  if (const auto* copy = std::get_if<MemcpyLine>(&event)) return copy->copy.seq;
  if (const auto* fill = std::get_if<MemsetLine>(&event)) return fill->fill.seq;
  if (const auto* memory = std::get_if<MemoryLine>(&event)) return memory->memory.seq;
  if (const auto* edge = std::get_if<StreamEdgeLine>(&event)) return edge->edge.seq;
  return std::nullopt;
}

// Position in LogEvent.
enum class LineType : std::uint8_t {
  kNone, kKernel, kGraphLaunch, kScope, kSessionStart, kDeviceInfo, kStreamInfo, kKernelSummary, kNotice, kLoss,
  kSessionEnd, kSync, kApi, kError, kHang, kFork, kExit, kMemcpy, kMemset, kMemory, kStreamEdge, kKernelTime, kKernelPending,
  kClock, kGraphInfo, kGraphKernel, kLevel
};
inline constexpr int kLineTypeCount = 27;
using LineTypeSet = std::uint32_t;
constexpr LineTypeSet line_type_bit(LineType type) { return 1u << static_cast<unsigned>(type); }
inline constexpr LineTypeSet kAllLineTypes = (1u << kLineTypeCount) - 1;

// What was not understood, by kind.
enum class Trouble : std::uint8_t {
  kTornLine,     // no line end at the end of a file, and not a whole object
  kInvalidJson,
  kInvalidUtf8,
  kNotAnEvent,   // JSON, but no object with a string `type`
  kUnknownType,
  kBadValue,     // a known type with a key missing or of the wrong kind
  kUnknownKey,   // counted per key; the event is still read
  kLongLine,     // beyond max_line_bytes
  kTruncated,    // compressed data ends early or is damaged
  kOtherMajor,   // session_start of another major version of the format
  kMissedSegment,  // while following: a whole segment came and went
  kUnreadableFile,
};
inline constexpr int kTroubleCount = 12;
const char* trouble_name(Trouble trouble);

struct ReadStats {
  struct Count {
    std::uint64_t count = 0;
    std::string first_file;
    std::uint64_t first_line = 0;  // from 1; 0: not in a line
    std::string first_detail;      // the unknown type or key, the parser's words; cut at 200 bytes
  };
  std::uint64_t bytes = 0;      // as decompressed
  std::uint64_t file_bytes = 0; // as read
  std::uint64_t lines = 0;
  std::uint64_t events = 0;     // handed out
  std::uint64_t filtered = 0;   // of a type nobody asked for
  std::uint64_t blank = 0;
  std::array<Count, kTroubleCount> troubles;
  const Count& operator[](Trouble t) const { return troubles[static_cast<std::size_t>(t)]; }
  std::uint64_t trouble_total() const;  // without unknown keys
};

struct ReadOptions {
  LineTypeSet types = kAllLineTypes;  // lines of others are skipped unparsed
  bool follow = false;                // at the end kWait instead of kEnd, and on into the file that follows a rotation
  bool rotated = true;                // given the live file, read its closed segments first
  std::size_t max_line_bytes = 16 << 20;
};

// All files of the recording whose live file is `path`, oldest first, `path` last (also where it does not exist but
// segments do). A segment that is there both plain and compressed stands once.
std::vector<std::string> log_segments(const std::string& path);

class LogReader {
 public:
  enum class Status { kEvent, kWait, kEnd };

  // Opens nothing yet. `path`: a file, or "-". Files of their own: give several.
  explicit LogReader(std::string path, ReadOptions options = {});
  LogReader(std::vector<std::string> files, ReadOptions options);
  ~LogReader();
  LogReader(LogReader&&) noexcept;

  // 0, or the errno of the first file when it cannot be opened.
  int open();

  // The next event into `event`, whose storage is used again. kWait: nothing for now, come again.
  Status next(LogEvent& event);
  std::string_view line() const;  // the text of that event, without line end, until the next call
  std::uint64_t line_number() const;
  const std::string& file() const;
  const ReadStats& stats() const;
  std::uint64_t total_file_bytes() const;  // of all files, for progress; 0: not known

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpuflight::log
