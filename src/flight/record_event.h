// A record of a ring as the event it stands for: the one place that knows which field means what. The recorder uses it
// on its way to the log, a reader on its way out of a dead process's file.
//
// Threads: any. Blocks, allocates: no.
#pragma once

#include "event/activity.h"
#include "event/api_call.h"
#include "event/events.h"
#include "event/incidents.h"
#include "flight/layout.h"
#include "flight/shared_time.h"

namespace gpuflight::flight {

// `phase` as loaded once by the caller: while a call is under way the record's own may change at any time.
inline event::KernelLaunch to_kernel_launch(const Record& record, RecordPhase phase, event::Seq seq) noexcept {
  event::KernelLaunch launch;
  launch.seq = seq;
  launch.config = event::ConfigId{record.config};
  launch.grid = {record.grid_x, record.grid_y, record.grid_z};
  launch.stream = event::StreamId{record.stream};
  if ((record.flags & kFlagEventTimed) == 0) launch.correlation = event::CorrelationId{record.correlation};
  launch.scope = event::ScopeId{record.scope};
  launch.thread = record.thread;
  launch.launch_ns = record.launch_ns;
  launch.between = shares_time(record);
  if (launch.between && record.call_ns != kTimeNotKnown) launch.launch_error_ns = record.call_ns;
  if (phase == RecordPhase::kReturned) {
    if ((record.flags & kFlagCallUntimed) == 0) launch.call_ns = record.call_ns;
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
  launch.contents = event::ContentsId{record.grid_x};
  if (!launch.correlation) launch.node_events = false;  // seen without CUPTI, which tells of nodes
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
  if (scope.phase != Phase::kMark) scope.range = record.correlation;
  return scope;
}

// What every call beside launches has.
template <class Event>
void set_call(Event& event, const Record& record, RecordPhase phase, event::Seq seq) noexcept {
  event.seq = seq;
  event.stream = event::StreamId{record.stream};
  event.scope = event::ScopeId{record.scope};
  event.thread = record.thread;
  event.time_ns = record.launch_ns;
  if (phase == RecordPhase::kReturned) {
    event.call_ns = record.call_ns;
    event.status = record.status;
  }
}

inline event::ApiEvent to_api_event(const Record& record, RecordPhase phase, event::Seq seq) noexcept {
  event::ApiEvent call;
  set_call(call, record, phase, seq);
  call.call = record.config;
  return call;
}

// --- calls beside launches: what layout.h draws above Record ---

inline event::ApiCall call_of(const Record& record) noexcept { return static_cast<event::ApiCall>(record.config); }

inline event::ApiKind kind_of_call(const Record& record) noexcept { return event::facts(call_of(record)).kind; }

inline bool is_memory_call(event::ApiKind kind) noexcept {
  return kind == event::ApiKind::kAlloc || kind == event::ApiKind::kFree;
}

// Whether the record names an owner in place of context and device.
constexpr bool has_owner(event::ApiCall call) noexcept {
  return call == event::ApiCall::kMemAllocFromPoolAsync || call == event::ApiCall::kMemMap;
}

inline constexpr std::uint64_t kMaxPacked = (std::uint64_t{1} << 48) - 1;

inline void pack_handle(Record& record, std::uint64_t handle) noexcept {
  record.correlation = static_cast<std::uint32_t>(handle);
  record.graph = static_cast<std::uint32_t>(handle >> 32);
}
inline std::uint64_t handle_of(const Record& record) noexcept {
  return record.correlation | std::uint64_t{record.graph} << 32;
}

inline void pack_bytes(Record& record, std::uint64_t bytes) noexcept {
  if (bytes > kMaxPacked) bytes = 0;
  record.bytes_low = static_cast<std::uint32_t>(bytes);
  record.grid_y = static_cast<std::uint16_t>(bytes >> 32);
}
inline std::uint64_t bytes_of(const Record& record) noexcept {
  return record.bytes_low | std::uint64_t{record.grid_y} << 32;
}

inline void pack_owner(Record& record, std::uint64_t owner) noexcept {
  if (owner > kMaxPacked) owner = 0;
  record.grid_x = static_cast<std::uint32_t>(owner);
  record.grid_z = static_cast<std::uint16_t>(owner >> 32);
}
inline std::uint64_t owner_of(const Record& record) noexcept {
  return has_owner(call_of(record)) ? record.grid_x | std::uint64_t{record.grid_z} << 32 : 0;
}

inline void pack_device(Record& record, std::int32_t device) noexcept {
  record.grid_z = static_cast<std::uint16_t>(device >= 0 && device < 0xFFFF ? device + 1 : 0);
}

// In which context it was made; 0: the record does not say.
inline std::uint32_t context_of_call(const Record& record) noexcept {
  return has_owner(call_of(record)) ? 0 : record.grid_x;
}

inline event::AllocationKind allocation_kind(event::ApiCall call) noexcept {
  using event::AllocationKind;
  using event::ApiCall;
  switch (call) {
    case ApiCall::kMemAlloc:
    case ApiCall::kMemAllocPitch: return AllocationKind::kDevice;
    case ApiCall::kMemAllocAsync:
    case ApiCall::kMemAllocFromPoolAsync:
    case ApiCall::kMemFreeAsync: return AllocationKind::kPool;
    case ApiCall::kMemAllocManaged: return AllocationKind::kManaged;
    case ApiCall::kMemAllocHost:
    case ApiCall::kMemHostAlloc:
    case ApiCall::kMemFreeHost: return AllocationKind::kPinned;
    case ApiCall::kMemHostRegister:
    case ApiCall::kMemHostUnregister: return AllocationKind::kRegistered;
    case ApiCall::kMemCreate:
    case ApiCall::kMemRelease: return AllocationKind::kVirtual;
    case ApiCall::kMemMap:
    case ApiCall::kMemUnmap: return AllocationKind::kMapping;
    default: return event::kUnknownAllocation;  // cuMemFree: device, managed and pool memory go that way
  }
}

// What the record alone tells; `stream`: its row, of stream-ordered calls, null: not known. What was allocated before
// (bytes and kind of a free, totals) is not in it.
inline event::MemoryEvent to_memory_event(const Record& record, RecordPhase phase, event::Seq seq,
                                          const event::StreamInfo* stream) noexcept {
  const event::ApiCall call = call_of(record);
  event::MemoryEvent memory;
  set_call(memory, record, phase, seq);
  memory.operation = kind_of_call(record) == event::ApiKind::kAlloc ? event::MemoryEvent::Operation::kAlloc
                                                                    : event::MemoryEvent::Operation::kFree;
  memory.kind = allocation_kind(call);
  memory.call = record.config;
  memory.address = handle_of(record);
  if (const std::uint64_t bytes = bytes_of(record); bytes != 0) memory.bytes = bytes;
  memory.context = event::ContextId{context_of_call(record)};
  if (!has_owner(call)) memory.device = record.grid_z - 1;
  if (stream != nullptr) {
    memory.context = stream->context;
    memory.device = stream->device;
  }
  if (call == event::ApiCall::kMemAllocFromPoolAsync && owner_of(record) != 0) memory.pool = owner_of(record);
  return memory;
}

inline event::StreamEdge to_stream_edge(const Record& record, RecordPhase phase, event::Seq seq) noexcept {
  event::StreamEdge edge;
  set_call(edge, record, phase, seq);
  edge.operation = call_of(record) == event::ApiCall::kStreamWaitEvent ? event::StreamEdge::Operation::kWait
                                                                       : event::StreamEdge::Operation::kRecord;
  edge.event = handle_of(record);
  edge.captured = (record.flags & kFlagCaptured) != 0;
  return edge;
}

}  // namespace gpuflight::flight
