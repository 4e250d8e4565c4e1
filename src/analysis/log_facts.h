// What one log says about its process as a whole: who was recorded, on what, for how long, how it ended, what is
// missing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/device_timeline.h"
#include "event/events.h"
#include "log/decoder.h"

namespace gpuflight::analysis {

struct LogFacts {
  static constexpr std::size_t kMaxNotices = 50, kMaxIncidents = 50, kMaxPending = 1000, kMaxLevels = 1000;

  std::string path;
  std::optional<event::SessionStart> start;
  std::vector<event::DeviceInfo> devices;
  std::optional<event::SessionEnd> end;       // none: still running, or killed
  std::optional<event::Ledger> ledger;        // session_end's, else the last loss_event's
  std::vector<event::Notice> notices;         // the first kMaxNotices
  std::uint64_t notices_total = 0;
  std::vector<event::ErrorEvent> errors;      // the first kMaxIncidents
  std::uint64_t errors_total = 0;
  struct Hang {
    event::HangEvent begin;
    std::optional<std::int64_t> end_ns;       // none: it never went on
  };
  std::vector<Hang> hangs;                    // the first kMaxIncidents
  std::uint64_t hangs_total = 0;
  // Under a budget for the recorder's own cost.
  std::vector<event::LevelEvent> levels;      // changes, the first kMaxLevels
  std::uint64_t level_changes = 0;
  std::optional<event::LevelEvent> last_level;  // the latest line of either kind
  std::optional<event::LevelEvent> level_end;   // the mean over the recording
  std::uint64_t forks = 0;
  std::optional<event::ExitEvent> exit;       // of a recovered log: how the process ended
  std::int64_t last_ns = 0;                   // latest time in any line

  // Counted from the lines that are there; graph_launches: or by session_end, where lines are gone.
  std::uint64_t launches = 0, failed = 0, captured = 0, summarised = 0, graph_launches = 0;
  std::uint64_t gpu_kernels = 0;  // that ran without a launch of their own: nodes of graphs, and what was not seen launched
  std::uint64_t replayed_kernels = 0;  // of these: of graphs whose nodes have no lines of their own
  std::uint64_t unknown_replays = 0;   // launches of such graphs of which the log does not say what they run
  std::uint64_t sync_calls = 0, api_calls = 0;
  std::uint64_t copies = 0, fills = 0, memory_calls = 0, stream_edges = 0;

  // Times of the GPU.
  std::uint64_t timed_kernels = 0, untimed_kernels = 0;  // executed, with lines of their own
  std::uint64_t event_timed = 0;                         // by a pair of events, late ones too
  std::uint64_t late_times = 0;                          // of untimed ones, by kernel_time
  std::uint64_t unplaced_times = 0;                      // of these: their group could not be told any more
  struct DeviceBusy {
    std::optional<std::int32_t> device;
    BusyTimes times;
  };
  std::vector<DeviceBusy> busy;
  std::map<std::uint64_t, log::KernelPendingLine> pending;  // by the launch's seq: of which no times have come
  std::uint64_t pending_total = 0;                          // kernel_pending lines
  std::optional<event::ClockEvent> clock;                   // the latest
  std::uint64_t event_lines = 0;  // of the program's threads: what session_end counts as written
  log::ReadStats read;

  // Until the latest change of level, and since when the level is the present one.
  std::array<std::int64_t, event::kRecordLevelNames.size()> level_ns{};
  std::int64_t level_since_ns = 0;

  std::int64_t duration_ns() const { return end ? end->time_ns : last_ns; }
  std::uint64_t lost() const { return ledger ? ledger->lost_total() : 0; }
  // Written, as the log itself says, and neither read nor deleted by the recorder: the log is damaged.
  std::uint64_t missing_events() const {
    if (!end) return 0;
    const std::uint64_t kept = end->ledger.written - std::min(end->ledger.written, end->ledger.rotated_away);
    return kept - std::min(kept, event_lines);
  }
  std::string_view budget() const;  // "1%"; empty: none
  // Nanoseconds at each level, from the start to the end of the recording, or to the last that is known.
  std::array<std::int64_t, event::kRecordLevelNames.size()> time_at_levels() const;
  // "all", "off", "sample:N" ...; empty: the log does not say.
  std::string_view timing() const;
  std::string_view option(std::string_view name) const;  // as configured
  // "off", or of every how many launches a pair of events was to tell the time; empty: the log does not say.
  std::string_view event_times() const;
  bool times_expected() const {
    return (!timing().empty() && timing() != "off") || events_asked();
  }
  bool times_sampled() const { return timing().starts_with("sample") || event_timed > 0; }
  std::uint64_t broken_lines() const { return read.trouble_total(); }

  // Lines other than launches.
  void add(const log::LogEvent& event);
  void add_level(const event::LevelEvent& level);
  void add_hang(const event::HangEvent& hang);
  bool events_asked() const { return !event_times().empty() && event_times() != "off"; }
  void saw_time(std::int64_t ns) {
    if (ns > last_ns) last_ns = ns;
  }
};

}  // namespace gpuflight::analysis
