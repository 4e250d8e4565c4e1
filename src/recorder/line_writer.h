// From records and events to lines in one buffer: keeps what is rendered once (configurations, streams, scopes), gives
// the recorder's own sequence numbers, and tells which lines come late.
//
// Threads: the recorder thread only. Blocks: no. Allocates buffer and caches, all bounded by the tables' sizes. Never
// throws.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/device_query.h"
#include "capture/graph_table.h"
#include "capture/kernel_table.h"
#include "capture/launch_recorder.h"
#include "capture/scope_table.h"
#include "capture/stream_table.h"
#include "event/activity.h"
#include "flight/layout.h"
#include "log/encoder.h"
#include "log/sink.h"
#include "recorder/call_lines.h"
#include "recorder/node_events.h"

namespace gpuflight::recorder {

class LineWriter final : public log::SegmentPrologue {
 public:
  struct Parts {
    const capture::KernelTable& kernels;
    const capture::StreamTable& streams;
    const capture::ScopeTable& scopes;
    const capture::DeviceQuery& devices;
    const capture::LaunchRecorder& launches;
    const capture::GraphTable& graphs;
    CallLines& calls;
    const NodeEvents& nodes;
  };
  // `repeat_bytes`: room in a segment for what earlier ones have had.
  LineWriter(const Parts& parts, bool details, std::size_t batch_bytes, std::size_t repeat_bytes);

  // The session's own lines; kept for the head of every segment.
  void set_session(event::SessionStart session) { session_ = std::move(session); }
  void append_prologue(log::Buffer& out, std::uint32_t segment) noexcept override;

  // Each appends one line, and the lines that must come before it. False: no memory for it.
  // What the ledger counts:
  bool record(const flight::Record& record, flight::RecordPhase phase, event::Seq seq) noexcept;
  bool kernel(event::KernelLaunch launch) noexcept;
  bool graph(event::GraphLaunch launch) noexcept;
  bool copy(const event::MemcpyEvent& copy) noexcept;
  bool fill(const event::MemsetEvent& fill) noexcept;
  // What it does not:
  void summary(event::KernelSummary summary) noexcept;
  void time(event::KernelTime time) noexcept;
  void pending(event::KernelPending pending) noexcept;
  void say(event::Notice notice) noexcept;
  void error(event::ErrorEvent error) noexcept;
  void hang(event::HangEvent hang) noexcept;
  void fork(event::ForkEvent fork) noexcept;
  void clock(event::ClockEvent clock) noexcept;
  void level(event::LevelEvent level) noexcept;
  bool loss(event::LossEvent loss) noexcept;
  void end(event::SessionEnd end) noexcept;

  void write_new_devices() noexcept;

  bool full() const noexcept { return buffer_.size() >= batch_bytes_; }  // time to write
  const log::Buffer& buffer() const noexcept { return buffer_; }
  std::uint64_t buffered_events() const noexcept { return buffered_events_; }
  std::int64_t newest_ns() const noexcept { return newest_ns_; }
  void clear() noexcept {
    buffer_.clear();
    batch_contents_.clear();
    ++batch_;
    buffered_events_ = 0;
  }

 private:
  event::Seq own_seq() noexcept { return event::Seq(event::kRecorderSlot, own_counter_++); }
  bool is_late(std::int64_t time_ns) const noexcept;
  template <class Event>
  using AppendWork = bool (*)(log::Buffer&, const log::RenderedStream&, std::string_view scope, const Event&) noexcept;
  template <class Event>
  bool work(Event event, AppendWork<Event> append) noexcept;
  bool counted(bool written, std::int64_t time_ns) noexcept;
  log::RenderedConfig& rendered_config(std::uint32_t id) noexcept;
  const log::RenderedStream& rendered_stream(std::uint32_t id) noexcept;
  const log::RenderedStream& rendered_place(std::uint32_t stream, std::int32_t device) noexcept;
  std::string_view rendered_scope(std::uint32_t id) noexcept;
  void write_new_streams() noexcept;
  void write_contents(event::ContentsId id) noexcept;
  void append_contents(log::Buffer& out, event::ContentsId id, event::Seq first) noexcept;
  bool may_repeat(event::ContentsId id) noexcept;

  Parts parts_;
  const bool details_;
  const std::size_t batch_bytes_, repeat_bytes_;
  event::SessionStart session_;
  log::Buffer buffer_;
  std::uint64_t buffered_events_ = 0;
  std::int64_t newest_ns_ = 0;
  std::uint64_t own_counter_ = 1;  // 0 is session_start's
  std::vector<log::RenderedConfig> configs_;
  std::vector<log::RenderedStream> streams_;
  std::vector<std::string> scopes_;
  log::RenderedConfig unknown_config_;
  log::RenderedStream unknown_stream_;
  std::array<std::optional<log::RenderedStream>, capture::DeviceQuery::kMaxDevices> device_places_;
  std::array<event::Seq, capture::DeviceQuery::kMaxDevices> device_seqs_{};  // of their lines; 0: not written yet
  std::vector<event::Seq> stream_seqs_;                                      // by id
  std::uint32_t streams_written_ = 1;
  // Contents of graphs: of those written the seq of the first line, and in which segment they were written last.
  struct Contents {
    event::Seq seq;
    std::uint32_t segment = 0;  // 0: not written
    std::uint64_t batch = 0;    // that referred to them last
  };
  std::vector<Contents> contents_;                // by number
  std::vector<event::ContentsId> batch_contents_; // that lines of this batch refer to
  std::uint32_t segment_ = 1;
  std::size_t repeated_bytes_ = 0;  // of contents, in this segment
  std::uint64_t batch_ = 1;
};

}  // namespace gpuflight::recorder
