// A recording as a trace to look at: JSON in the Trace Event Format that Perfetto and chrome://tracing open, with the
// categories and arguments of PyTorch's Kineto, so that tools for its traces (HTA) take it too.
//
//   a process per device     a track per stream; a second one where work of one stream ran side by side
//   a process for the host   a track per thread: scopes, and in them the calls
//   arrows                   from the call to the work on the GPU; from the recording of an event to the wait for it
//   counters                 occupancy per stream, memory by kind
//
// Written event by event as lines come: memory does not grow with the log, but for what bounds hold (kMost...).
// docs/CLI.md describes what is in it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/log_facts.h"  // and with it the lines of a log
#include "event/activity.h"
#include "event/events.h"

namespace gpuflight::report {

struct TraceOptions {
  bool counters = true;
  bool flows = true;
};

// The start of a recording on the time axis of the trace.
struct TraceClock {
  std::int64_t offset_ns = 0;   // to be added to the log's times
  bool correct_drift = false;   // by its clock_event lines: several recordings side by side
};

class ChromeTrace {
 public:
  using Sink = std::function<void(std::string_view)>;  // may throw

  ChromeTrace(Sink sink, TraceOptions options) : sink_(std::move(sink)), options_(options) {}

  // `several`: more logs come, so that numbers of devices must be kept apart.
  void begin_log(const TraceClock& clock, bool several);
  void add(const log::LogEvent& event);
  void end_log();
  void finish();

  std::uint64_t events() const { return events_; }

 private:
  static constexpr std::size_t kMostTracks = 100'000;
  static constexpr std::size_t kMostNames = 100'000;
  static constexpr std::size_t kMostScopes = 1'000;  // open in one thread
  static constexpr std::size_t kMostRecords = 65'536;
  static constexpr std::size_t kMostLanes = 8;

  struct Place {  // a track
    std::int64_t pid = 0, tid = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct OpenScope {
    std::string path;
    std::int64_t begin_ns;
  };
  struct Work {  // what copies, fills and kernels have in common
    std::int32_t device;
    std::uint32_t context, stream, correlation;
    std::uint32_t thread;
    bool of_node;  // of a graph
    event::MaybeNs launch_ns, start_ns, end_ns;
  };
  struct Lanes {
    std::vector<std::int64_t> busy_until_ns;
    std::int64_t occupied_until_ns = INT64_MIN;  // of the counter
    double occupancy = 0;
  };

  void add_session(const log::SessionStartLine& line);
  void add_kernel(const log::KernelEventLine& line);
  void add_time(const log::KernelTimeLine& line);
  void add_copy(const log::MemcpyLine& line);
  void add_fill(const log::MemsetLine& line);
  void add_graph(const log::GraphLaunchLine& line);
  void add_memory(const log::MemoryLine& line);
  void add_edge(const log::StreamEdgeLine& line);
  void add_call(const log::ApiLine& line);
  void add_scope(const log::ScopeLine& line);
  void close_scope(std::uint32_t thread, std::size_t at, std::int64_t end_ns);

  // Each returns the track of the slice.
  Place host(std::uint32_t thread);
  Place device(std::int32_t device);
  Place stream(const Work& work);
  void call(std::uint32_t thread, std::string_view name, std::int64_t time_ns, const event::MaybeNs& call_ns,
            const std::string& args);
  // The work on the GPU; its arrow. `args` beside those that all have.
  void work(const Work& work, const char* category, std::string_view quoted_name, const std::string& args);
  void arrow(const char* category, std::uint64_t id, Place from, std::int64_t from_ns, Place to, std::int64_t to_ns);
  void occupancy(const Work& work, double ratio);
  void instant(Place place, char scope, std::string_view name, std::int64_t time_ns, const std::string& args);
  void counter(Place place, std::string_view name, std::int64_t time_ns, const std::string& args);
  void name_process(std::int64_t pid, std::string_view name, std::int64_t order);
  void name_track(Place place, std::string_view name, std::int64_t order);

  std::string begin(char phase, Place place, std::int64_t time_ns);
  void write(std::string event);  // one whole event
  const std::string& quoted_kernel(std::string_view mangled);
  std::int64_t at(std::int64_t ns) const;  // on the axis of the trace
  std::uint64_t flow_id(const Work& work);
  template <class Event>
  static std::optional<Work> work_of(const Event& event, std::optional<std::int32_t> device,
                                     std::optional<std::uint32_t> context);

  Sink sink_;
  const TraceOptions options_;
  std::string buffer_;
  std::uint64_t events_ = 0;
  bool begun_ = false;
  std::uint64_t next_flow_ = std::uint64_t{1} << 40;

  // Of all logs.
  std::set<std::int64_t> processes_;
  std::map<Place, bool> tracks_;
  std::unordered_map<std::string, std::string> kernels_;
  std::string devices_json_, sessions_json_;
  std::optional<std::int64_t> rank_;
  std::size_t logs_ = 0;

  // Of the present log.
  TraceClock clock_;
  bool several_ = false, session_seen_ = false;
  std::int64_t drift_ns_ = 0, last_ns_ = 0;
  std::int64_t host_pid_ = 0;
  std::set<std::int32_t> device_infos_;
  std::unordered_map<std::uint32_t, event::StreamInfo> streams_;
  std::map<std::pair<std::int32_t, std::uint32_t>, Lanes> lanes_;
  std::map<std::uint32_t, std::vector<OpenScope>> scopes_;
  struct Recorded {
    std::uint32_t thread;
    std::int64_t time_ns;
  };
  std::unordered_map<std::uint64_t, Recorded> records_;  // latest record of each CUDA event
};

}  // namespace gpuflight::report
