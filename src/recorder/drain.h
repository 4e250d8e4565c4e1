// From rings to log: takes committed records in order, renders them, writes batches, and gives chunks back once their
// lines are written. Keeps the ledger.
//
// Threads: the recorder thread only. Blocks in the sink's write; allocates buffers and caches, all bounded by the
// tables' sizes. Never throws.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/device_query.h"
#include "capture/graph_table.h"
#include "capture/kernel_resolver.h"
#include "capture/kernel_table.h"
#include "capture/launch_recorder.h"
#include "capture/scope_table.h"
#include "capture/stream_table.h"
#include "event/level.h"
#include "flight/ring.h"
#include "log/sink.h"
#include "recorder/activity_join.h"
#include "recorder/black_box.h"
#include "recorder/call_lines.h"
#include "recorder/dump_rule.h"
#include "recorder/incident_watch.h"
#include "recorder/line_writer.h"
#include "recorder/summariser.h"

namespace gpuflight::recorder {

class Drain final : private JoinClient {
 public:
  struct Parts {
    flight::FlightFile& file;
    flight::RingSet& rings;
    capture::KernelTable& kernels;
    const capture::KernelResolver& resolver;
    const capture::StreamTable& streams;
    const capture::ScopeTable& scopes;
    capture::DeviceQuery& devices;
    const capture::LaunchRecorder& launches;
    const capture::GraphTable& graphs;
    log::LogSink& sink;
    CallLines& calls;
    IncidentWatch* watch;  // null: errors and hangs are not looked for
  };
  struct Options {
    bool details = true;
    bool summaries_only = false;  // black box
    std::uint64_t dump_events = 0;
    std::optional<DumpRule> rule;
  };
  struct Counts {
    std::uint64_t launches = 0, graph_launches = 0, captured = 0, failed = 0;
    std::uint64_t graph_kernels = 0, unlaunched = 0;  // that the GPU told of
    std::uint64_t replayed_kernels = 0;               // of launches of graphs whose nodes it does not tell of
    std::uint64_t other_calls = 0, scopes = 0;        // records of other driver calls; of scopes and marks
  };

  Drain(const Parts& parts, const Options& options);

  // The session's own lines; kept for the head of every segment.
  void set_session(event::SessionStart session) { lines_.set_session(std::move(session)); }
  log::SegmentPrologue& prologue() noexcept { return lines_; }

  // One round over all rings. Returns how many records it took. `bounded`: of each ring what it has by then, so
  // that it ends also where a thread makes records faster than they are taken.
  std::uint64_t round(bool bounded = false) noexcept;

  // GPU times: whether they come, and what comes. settle() once after all of a round.
  ActivityJoin& join() noexcept { return join_; }
  NodeEvents& node_events() noexcept { return nodes_; }
  void settle() noexcept;
  // Records of the GPU's that were given up, by CUPTI or at the memory bound, since the start; `nodes`: those of which
  // it is known that they were of nodes of graphs.
  void note_gpu_records_lost(std::uint64_t others, std::uint64_t nodes) noexcept {
    gpu_records_lost_ = others;
    gpu_nodes_lost_ = nodes;
  }
  void finish_times() noexcept;  // no more will come
  // An eighth of the rings is taken by records that wait for their times.
  bool crowded() const noexcept {
    return join_.held() > std::uint64_t{parts_.file.chunk_count()} * flight::kRecordsPerChunk / 8;
  }

  // Lines of the recorder itself.
  void say(event::Notice notice) noexcept;
  void write_incidents(IncidentWatch::Incidents incidents) noexcept;
  void write_fork(event::ForkEvent fork) noexcept { lines_.fork(fork); }
  void write_clock(event::ClockEvent clock) noexcept { lines_.clock(clock); }
  void write_level(event::LevelEvent level) noexcept { lines_.level(level); }
  // How many of the launches taken from now on get lines; what waits for its times by now gets its own. Other calls,
  // graph launches and scopes keep theirs: their counts come from the lines.
  void set_level(event::RecordLevel level) noexcept;
  // The last events of a black box, one by one; how many. In stream mode they are in the log already.
  std::uint64_t dump(const char* reason) noexcept;
  bool take_rule_match() noexcept;  // whether a launch has matched the rule since the last call
  const std::vector<Watchdog::WaitingCall>& waiting() const noexcept { return waiting_; }  // as of the last round
  void write_due_summaries(bool now) noexcept;  // of the second that has passed
  void write_losses() noexcept;                 // since the last loss_event, if any
  void write_end(event::SessionEnd end) noexcept;  // with the summary of the whole recording before it

  void flush() noexcept;  // what is buffered goes to the file, chunks go back

  // Whether a reader of the flight file could still want the chunk: a ring stands in it, or it has lines not written.
  bool chunk_needed(std::uint32_t chunk) const noexcept;

  // `pending`: records begun and not returned, and what is committed but not taken yet.
  event::Ledger ledger() noexcept;
  const Counts& counts() const noexcept { return counts_; }
  std::uint64_t lines_failed() const noexcept { return write_failed_; }
  int last_error() const noexcept { return last_error_; }  // errno of the last write, 0 when it went well
  bool summarising() const noexcept { return summarising_; }

 private:
  struct Cursor {
    std::uint32_t chunk = flight::kNoChunk;
    std::uint32_t taken = 0;
  };
  struct Progress {
    std::uint32_t chunk;
    std::uint32_t taken;
  };

  struct ChunkUse {
    std::uint32_t taken = 0;
    std::uint32_t held = 0;  // of these: wait for their times
  };

  static constexpr std::uint32_t kSampleEvery = 100;  // at level sampled: launches of a configuration

  bool without_line(const event::KernelLaunch& launch) noexcept;
  std::uint64_t drain_slot(std::uint32_t slot, bool bounded) noexcept;
  void write_second(std::int64_t ends_ns) noexcept;
  // `summarised`: it gets no line. False: the record is lost and counted.
  bool take(const flight::Record& record, flight::RecordPhase phase, event::Seq seq, bool& summarised) noexcept;
  void write(const flight::Record& record, flight::RecordPhase phase, event::Seq seq, const Cursor& at) noexcept;
  void count_kernel(const event::KernelLaunch& launch) noexcept;
  void count_graph(const event::GraphLaunch& launch) noexcept;
  void count_replays(Summariser& summary) noexcept;
  void note_waiting(const flight::Record& record) noexcept;
  void summarise(bool on) noexcept;
  void publish_counters() noexcept;
  std::uint64_t gpu_events_lost() const noexcept;
  void publish_taken(std::uint32_t chunk) noexcept;

  void on_line(Fate fate, std::uint32_t chunk) noexcept override;
  void on_own_line(Fate fate) noexcept override;
  void on_own_kernel(const event::KernelLaunch& launch) noexcept override;
  void on_time(const event::KernelLaunch& launch) noexcept override;
  void on_room_needed() noexcept override;
  bool summarises() const noexcept override { return summaries_only_ || summarising_; }
  bool on_summarised(const event::KernelLaunch& launch) noexcept override;
  void count(Fate fate) noexcept;

  Parts parts_;
  const bool summaries_only_;
  const std::uint64_t dump_events_;
  const std::optional<DumpRule> rule_;
  bool rule_matched_ = false;
  BlackBox black_box_;
  std::vector<Watchdog::WaitingCall> waiting_;
  NodeEvents nodes_;
  LineWriter lines_;
  capture::ActivityConfigs activity_configs_;
  ActivityJoin join_;
  std::vector<Cursor> cursors_;         // by slot
  std::vector<Progress> progress_;      // of this batch, marked in the file when its lines are written
  std::vector<ChunkUse> chunks_;        // by chunk
  std::vector<std::uint32_t> released_; // chunks of records whose lines are in this batch
  std::vector<std::uint32_t> emptied_;  // chunks to give back then
  std::vector<std::uint32_t> refused_;  // chunks that hold records still, or that the pool could not take at once
  // A launch belongs to the second in which it was made, whenever its record is taken: recover tells by that time alone
  // which events the last summary has.
  Summariser second_, next_second_, session_summary_;
  std::int64_t second_began_ns_ = 0;
  std::int64_t second_ends_ns_ = 0;  // of the summary that this round completes; 0: none is due
  std::uint64_t summarised_until_second_ = 0;
  bool summarising_ = false;
  event::RecordLevel level_ = event::RecordLevel::kEvents;
  std::vector<std::uint32_t> until_line_;  // by configuration, at level sampled: launches to go
  Counts counts_;
  std::uint64_t written_ = 0, summarised_ = 0, write_failed_ = 0, unknown_records_ = 0, rotated_away_ = 0;
  std::uint64_t table_full_ = 0, taken_total_ = 0;
  std::uint64_t gpu_records_lost_ = 0, gpu_nodes_lost_ = 0;
  bool ended_ = false;  // no more times will come
  std::array<std::uint64_t, event::kLossCauseCount> losses_said_{};
  int last_error_ = 0;
};

}  // namespace gpuflight::recorder
