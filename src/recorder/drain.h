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
#include "capture/kernel_resolver.h"
#include "capture/kernel_table.h"
#include "capture/launch_recorder.h"
#include "capture/scope_table.h"
#include "capture/stream_table.h"
#include "flight/ring.h"
#include "log/encoder.h"
#include "log/sink.h"
#include "recorder/black_box.h"
#include "recorder/dump_rule.h"
#include "recorder/incident_watch.h"
#include "recorder/summariser.h"

namespace gpuflight::recorder {

class Drain final : public log::SegmentPrologue {
 public:
  struct Parts {
    flight::FlightFile& file;
    flight::RingSet& rings;
    const capture::KernelTable& kernels;
    const capture::KernelResolver& resolver;
    const capture::StreamTable& streams;
    const capture::ScopeTable& scopes;
    const capture::DeviceQuery& devices;
    const capture::LaunchRecorder& launches;
    log::LogSink& sink;
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
  };

  Drain(const Parts& parts, const Options& options);

  // The session's own lines; kept for the head of every segment.
  void set_session(event::SessionStart session) { session_ = std::move(session); }
  void append_prologue(log::Buffer& out, std::uint32_t segment) noexcept override;

  // One round over all rings. Returns how many records it took.
  std::uint64_t round() noexcept;

  // Lines of the recorder itself.
  void say(event::Notice notice) noexcept;
  void write_incidents(IncidentWatch::Incidents incidents) noexcept;
  void write_fork(event::ForkEvent fork) noexcept;
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

  std::uint64_t drain_slot(std::uint32_t slot) noexcept;
  void write_second(std::int64_t ends_ns) noexcept;
  void take(const flight::Record& record, flight::RecordPhase phase, event::Seq seq) noexcept;
  bool write(const flight::Record& record, flight::RecordPhase phase, event::Seq seq) noexcept;
  void count_kernel(const event::KernelLaunch& launch) noexcept;
  void note_waiting(const flight::Record& record) noexcept;
  log::RenderedConfig& rendered_config(std::uint32_t id) noexcept;
  const log::RenderedStream& rendered_stream(std::uint32_t id) noexcept;
  std::string_view rendered_scope(std::uint32_t id) noexcept;
  void write_new_devices() noexcept;
  void write_new_streams() noexcept;
  void summarise(bool on) noexcept;
  event::Seq own_seq() noexcept { return event::Seq(event::kRecorderSlot, own_counter_++); }
  void publish_counters() noexcept;

  Parts parts_;
  const bool details_;
  const bool summaries_only_;
  const std::uint64_t dump_events_;
  const std::optional<DumpRule> rule_;
  bool rule_matched_ = false;
  BlackBox black_box_;
  std::vector<Watchdog::WaitingCall> waiting_;
  const std::size_t batch_bytes_;  // buffered lines are written when they are so many
  event::SessionStart session_;
  std::vector<Cursor> cursors_;        // by slot
  std::vector<Progress> progress_;     // of this batch, marked in the file when its lines are written
  std::vector<std::uint32_t> emptied_; // chunks to give back then
  std::vector<std::uint32_t> refused_; // chunks the pool could not take at once
  std::vector<log::RenderedConfig> configs_;
  std::vector<log::RenderedStream> streams_;
  std::vector<std::string> scopes_;
  log::RenderedConfig unknown_config_;
  log::RenderedStream unknown_stream_;
  std::array<event::Seq, capture::DeviceQuery::kMaxDevices> device_seqs_{};  // of their lines; 0: not written yet
  std::vector<event::Seq> stream_seqs_;                                      // by id
  std::uint32_t streams_written_ = 1;
  log::Buffer buffer_;
  std::uint64_t buffered_events_ = 0;
  std::int64_t newest_ns_ = 0;
  std::uint64_t own_counter_ = 1;  // 0 is session_start's
  // A launch belongs to the second in which it was made, whenever its record is taken: recover tells by that time alone
  // which events the last summary has.
  Summariser second_, next_second_, session_summary_;
  std::int64_t second_began_ns_ = 0;
  std::int64_t second_ends_ns_ = 0;  // of the summary that this round completes; 0: none is due
  bool summarising_ = false;
  Counts counts_;
  std::uint64_t written_ = 0, summarised_ = 0, write_failed_ = 0, unknown_records_ = 0, rotated_away_ = 0;
  std::uint64_t table_full_ = 0, taken_total_ = 0;
  std::array<std::uint64_t, event::kLossCauseCount> losses_said_{};
  int last_error_ = 0;
};

}  // namespace gpuflight::recorder
