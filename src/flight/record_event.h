// A record of a ring as the event it stands for: the one place that knows which field means what. The recorder uses it
// on its way to the log, a reader on its way out of a dead process's file.
//
// Threads: any. Blocks, allocates: no.
#pragma once

#include "event/events.h"
#include "flight/layout.h"

namespace gpuflight::flight {

// `phase` as loaded once by the caller: while a call is under way the record's own may change at any time.
inline event::KernelLaunch to_kernel_launch(const Record& record, RecordPhase phase, event::Seq seq) noexcept {
  event::KernelLaunch launch;
  launch.seq = seq;
  launch.config = event::ConfigId{record.config};
  launch.grid = {record.grid_x, record.grid_y, record.grid_z};
  launch.stream = event::StreamId{record.stream};
  launch.correlation = event::CorrelationId{record.correlation};
  launch.scope = event::ScopeId{record.scope};
  launch.thread = record.thread;
  launch.launch_ns = record.launch_ns;
  if (phase == RecordPhase::kReturned) {
    launch.call_ns = record.call_ns;
    launch.status = record.status;
  }
  launch.captured = (record.flags & kFlagCaptured) != 0;
  return launch;
}

inline event::GraphLaunch to_graph_launch(const Record& record, RecordPhase phase, event::Seq seq) noexcept {
  event::GraphLaunch launch;
  launch.seq = seq;
  launch.graph = event::GraphId{record.graph};
  launch.stream = event::StreamId{record.stream};
  launch.correlation = event::CorrelationId{record.correlation};
  launch.scope = event::ScopeId{record.scope};
  launch.thread = record.thread;
  launch.launch_ns = record.launch_ns;
  if (phase == RecordPhase::kReturned) {
    launch.call_ns = record.call_ns;
    launch.status = record.status;
  }
  launch.captured = (record.flags & kFlagCaptured) != 0;
  return launch;
}

inline event::ScopeEvent to_scope_event(const Record& record, event::Seq seq) noexcept {
  using Phase = event::ScopeEvent::Phase;
  event::ScopeEvent scope;
  scope.seq = seq;
  scope.phase = record.kind == static_cast<std::uint8_t>(RecordKind::kScopeBegin) ? Phase::kBegin
                : record.kind == static_cast<std::uint8_t>(RecordKind::kScopeEnd) ? Phase::kEnd
                                                                                   : Phase::kMark;
  scope.scope = event::ScopeId{record.scope};
  scope.thread = record.thread;
  scope.time_ns = record.launch_ns;
  return scope;
}

}  // namespace gpuflight::flight
