// The events: one plain struct for each line type of the log (docs/FORMAT.md is normative). Times are ns since the
// start of the recording. `kUnknown` / std::nullopt is written as null: never 0, never a guess.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "event/device_info.h"
#include "event/graph_contents.h"
#include "event/ids.h"
#include "event/kernel_config.h"
#include "event/plausible_time.h"

namespace gpuflight::event {

using MaybeNs = std::optional<std::int64_t>;
using MaybeStatus = std::optional<std::int32_t>;  // null: the call never came back

// From start to end; null where either is.
constexpr MaybeNs elapsed_ns(MaybeNs start, MaybeNs end) { return start && end ? MaybeNs(*end - *start) : std::nullopt; }

// Time between two events around a kernel, where nothing tells when it ran.
struct EventTime {
  MaybeNs duration_ns;
  MaybeNs error_ns;  // the kernel may have taken so much less
};

// What differs from launch to launch of one configuration.
struct KernelLaunch {
  Seq seq;
  ConfigId config;
  Dim3 grid;
  StreamId stream;
  std::int32_t device = -1;  // where it ran, told where the stream is not known; < 0: not known
  CorrelationId correlation;
  ScopeId scope;
  std::uint32_t thread = 0;  // OS thread id
  std::int64_t launch_ns = 0;
  bool between = false;     // launch_ns was not read: it lies between the times of other launches of the thread
  MaybeNs launch_error_ns;  // of such a one: how far it may be off; null: the call began at launch_ns or later
  MaybeNs call_ns;
  MaybeStatus status;
  MaybeNs start_ns, end_ns;
  EventTime by_events;  // instead of these
  GraphId graph;
  std::optional<std::uint64_t> graph_node;
  bool captured = false;  // recorded into a graph, not executed
  bool late = false;      // outside the stated order window
  // The GPU told of it, no launch of it was seen (device-side, or a graph of before): launch_ns is start_ns.
  bool unlaunched = false;

  // When its call had come back, at the latest. Of a return that was not timed it is known that it came before the thread's
  // next call, and so before any mark behind it.
  constexpr MaybeNs returned_by() const {
    if (between && !launch_error_ns) return std::nullopt;
    return sum_ns(launch_ns, launch_error_ns.value_or(call_ns.value_or(0)));
  }
  constexpr MaybeNs gpu_ns() const {
    return by_events.duration_ns ? by_events.duration_ns : elapsed_ns(start_ns, end_ns);
  }
};

struct GraphLaunch {
  Seq seq;
  GraphId graph;
  StreamId stream;
  CorrelationId correlation;
  ScopeId scope;
  std::uint32_t thread = 0;
  std::int64_t launch_ns = 0;
  MaybeNs call_ns;
  MaybeStatus status;
  MaybeNs start_ns, end_ns;  // of all its nodes together, where the graph as a whole is traced
  bool captured = false;  // launched into a stream that is itself being captured
  ContentsId contents;    // what it runs
  std::optional<bool> node_events;  // its nodes are events of their own; null: not known

  constexpr MaybeNs returned_by() const { return sum_ns(launch_ns, call_ns.value_or(0)); }  // as above
};

struct ScopeEvent {
  enum class Phase : std::uint8_t { kBegin, kEnd, kMark };
  Seq seq;
  Phase phase = Phase::kMark;
  ScopeId scope;
  std::uint32_t thread = 0;
  std::int64_t time_ns = 0;
  std::uint32_t range = 0;  // of one that may end on another thread: its number; 0: it is a scope of its thread
};

struct StreamInfo {
  enum class Kind : std::uint8_t { kLegacyDefault, kPerThreadDefault, kCreated };
  Seq seq;
  StreamId stream;
  ContextId context;
  std::int32_t device = -1;
  Kind kind = Kind::kCreated;
  std::uint64_t handle = 0;
  std::optional<std::int32_t> priority;
  std::optional<std::uint32_t> flags;
  std::uint32_t thread = 0;  // owner of a per-thread default stream
};

struct SessionStart {
  Seq seq;
  std::string library_version;
  std::string program;              // absolute path of the executable
  std::vector<std::string> args;    // already masked
  bool args_masked = false;
  std::string cwd;
  std::int64_t pid = 0, ppid = 0;
  std::uint64_t process_start_ticks = 0;  // /proc/self/stat field 22: with pid it names the process for good
  std::string boot_id;
  std::string host;
  std::string user;
  std::int64_t t0_unix_ns = 0;       // CLOCK_REALTIME at t0
  std::int64_t t0_monotonic_ns = 0;  // CLOCK_MONOTONIC at t0
  std::string t0_rfc3339;
  std::vector<std::pair<std::string, std::string>> rank;           // RANK, WORLD_SIZE, SLURM_PROCID ...
  std::vector<std::pair<std::string, std::string>> configuration;  // every option in force
  std::optional<std::int32_t> driver_version;  // 13000
  std::string libcuda_path;
  std::optional<std::uint32_t> cupti_version;  // 130001
  std::string cupti_path;
  std::string cupti_reason;  // why this one was chosen
  std::string capture;       // source of launches: "cupti", "interpose" or "none"
  std::string capture_reason;
  std::string flight_path;
  std::string mode;
};

struct KernelSummary {
  Seq seq;
  ConfigId config;
  std::int64_t from_ns = 0, to_ns = 0;
  std::uint64_t count = 0;
  std::uint64_t failed = 0;     // launches whose status was not 0
  std::uint64_t captured = 0;   // of count: into graphs, not executed
  std::uint64_t replayed = 0;   // of count: by launches of graphs, without a call or a line of their own
  std::uint64_t call_total_ns = 0;
  std::uint64_t calls_timed = 0;  // launches that call_total_ns is of
  bool session = false;  // over the whole recording, written at its end: not to be added to the lines of its seconds
  MaybeNs call_min_ns, call_max_ns;
  // GPU times: null where timing is off
  std::uint64_t timed = 0;  // launches that the times are of
  MaybeNs total_ns, min_ns, max_ns, p50_ns, p95_ns, p99_ns;
};

enum class Severity : std::uint8_t { kInfo, kWarning, kError };

struct Notice {
  Seq seq;
  std::int64_t time_ns = 0;
  Severity severity = Severity::kInfo;
  std::string code;  // stable short word: "cupti_slot_taken"
  std::string message;
};

// Why an event did not reach the log. Order is the order of the counters in the flight header.
enum class LossCause : std::uint8_t {
  kPoolEmpty,      // no free chunk in the ring pool
  kNoThreadSlot,   // more threads at once than slots
  kRecycled,       // black box: the oldest chunk made room
  kWriteFailed,    // the log could not be written (disk full, unwritable)
  kCuptiDropped,   // CUPTI's own dropped count
  kUnknownRecord,  // a record this version cannot read
  kShutdown,       // came after the last drain
};
inline constexpr int kLossCauseCount = 7;
inline constexpr std::array<const char*, kLossCauseCount> kLossCauseNames = {
    "pool_empty", "no_thread_slot", "recycled", "write_failed", "cupti_dropped", "unknown_record", "shutdown"};

// The ledger: seen = written + summarised + pending + lost.
struct Ledger {
  std::uint64_t seen = 0;
  std::uint64_t written = 0;
  std::uint64_t summarised = 0;
  std::uint64_t pending = 0;
  std::array<std::uint64_t, kLossCauseCount> lost{};
  // Beside the sum:
  std::uint64_t rotated_away = 0;        // written, then deleted with an old segment
  std::uint64_t null_time = 0;           // events whose GPU time is not known though timing was on
  std::uint64_t table_full = 0;          // launches whose kernel or configuration found no room in the table
  std::uint64_t occupancy_mismatch = 0;  // configurations where driver and model disagree, barriers not explaining it
  std::uint64_t lost_total() const {
    std::uint64_t sum = 0;
    for (auto n : lost) sum += n;
    return sum;
  }
  bool balanced() const { return seen == written + summarised + pending + lost_total(); }
};

struct LossEvent {
  Seq seq;
  std::int64_t time_ns = 0;
  std::array<std::uint64_t, kLossCauseCount> lost{};  // since the last loss_event
  Ledger ledger;                                      // totals so far
};

struct SessionEnd {
  Seq seq;
  std::int64_t time_ns = 0;
  std::string reason;  // "exit", "shutdown", "disabled"
  Ledger ledger;
  std::uint64_t bytes_written = 0;
  std::uint64_t recorder_cpu_ns = 0;  // CPU time of our own threads
  std::optional<std::int64_t> added_ns_per_launch;  // our part of a launch callback, sampled; null: too few samples
  std::uint64_t launches = 0, graph_launches = 0, captured = 0, failed = 0;
  std::uint64_t kernels = 0, configs = 0;
  std::uint64_t graph_kernels = 0, unlaunched = 0;  // kernel_events of nodes, and of what no launch was seen of
  std::uint64_t replayed_kernels = 0;  // kernels of launches of graphs whose nodes have no events of their own
  // Launches timed by events: of each so many at the end, how many, and what they cost the host. Null: option is off.
  struct EventTimes {
    std::uint64_t every = 0, timed = 0, cost_ns = 0;
    bool operator==(const EventTimes&) const = default;
  };
  std::optional<EventTimes> event_times;
};

}  // namespace gpuflight::event
