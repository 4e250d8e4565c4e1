// Calls beside launches: synchronisations, copies, fills, allocations, edges between streams.
#include "capture/launch_hit.h"
#include "capture/launch_recorder.h"
#include "capture/miss_guard.h"
#include "flight/record_event.h"

namespace gpuflight::capture {
namespace {

using event::ApiCall;
using event::ApiKind;

// Memory of the context's own device; other kinds are of the host, of all devices, or say themselves where they are.
constexpr bool is_of_context_device(ApiCall call) noexcept {
  return call == ApiCall::kMemAlloc || call == ApiCall::kMemAllocPitch;
}

// Null: of none, or of one that the thread does not know.
ThreadState::StreamEntry* stream_of_call(ThreadState& thread, const DriverCall& call) noexcept {
  if (!call.has_stream) return nullptr;
  return thread.find_stream(call.stream, call.context_uid, ThreadState::stream_kind(call.per_thread_default));
}

}  // namespace

// What was launched is marked off before the thread may wait for it, or nothing would be known of it meanwhile. Of the one
// stream that is waited for the wait itself tells.
void LaunchRecorder::mark_before_wait(ThreadState& thread, const DriverCall& call, std::int64_t now) noexcept {
  const ThreadState::StreamEntry* const waited_for = stream_of_call(thread, call);
  thread.each_stream([&](ThreadState::StreamEntry& entry) {
    if (entry.unmarked == 0 || entry.context_uid != call.context_uid || may_be_captured(entry)) return;
    if (&entry != waited_for || entry.marked_ns <= now - kMarkNs) mark_stream(thread, entry);
  });
}

void LaunchRecorder::on_call_enter(ThreadState& thread, const DriverCall& call, void* source,
                                   DeviceOf device_of) noexcept {
  const ApiKind kind = event::facts(call.call).kind;
  std::int64_t now = now_ns();
  if (call.may_wait && thread.marks) mark_before_wait(thread, call, now);
  std::uint32_t stream = 0;
  std::uint16_t flags = 0;
  if (call.has_stream) {
    ThreadState::StreamEntry& entry = stream_of(thread, call.stream, call.per_thread_default, call.context,
                                                call.context_uid, source, device_of);
    stream = entry.id;
    if (kind != ApiKind::kEdge && may_be_captured(entry) && is_captured(thread, entry)) flags = flight::kFlagCaptured;
  }
  const std::int32_t device = is_of_context_device(call.call) ? device_of_context(thread, call, source, device_of) : -1;
  if (thread.missed) [[unlikely]] now = now_ns();  // what we did ourselves is no part of the host's call
  thread.missed = false;
  flight::Record* const record = begin(thread, flight::RecordKind::kApiCall);
  if (record == nullptr) return;
  record->flags = flags;
  record->config = static_cast<std::uint32_t>(call.call);
  record->launch_ns = now;
  record->grid_x = call.context_uid;
  record->grid_y = record->grid_z = 0;
  record->stream = stream;
  record->correlation = record->graph = record->bytes_low = 0;
  record->scope = thread.scope_now;
  switch (kind) {
    case ApiKind::kAlloc:
    case ApiKind::kFree:
      flight::pack_handle(*record, call.memory.address);
      flight::pack_bytes(*record, call.memory.bytes);
      flight::has_owner(call.call) ? flight::pack_owner(*record, call.memory.owner)
                                   : flight::pack_device(*record, device);
      break;
    case ApiKind::kEdge:
      flight::pack_handle(*record, call.event);
      break;
    case ApiKind::kSync:
      break;
    default:
      record->correlation = call.correlation;
      break;
  }
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kEntered), std::memory_order_relaxed);
  thread.ring->publish();
  if (thread.open_count < ThreadState::kMaxOpen) thread.open[thread.open_count++] = record;
}

std::int32_t LaunchRecorder::device_of_context(ThreadState& thread, const DriverCall& call, void* source,
                                               DeviceOf device_of) noexcept {
  if (call.context_uid == 0) return -1;
  if (thread.device_context != call.context_uid) {
    MissGuard miss(thread);
    RelaxedCapture relaxed(parts_.driver);
    thread.device = device_of(source, call.context);
    thread.device_context = call.context_uid;
  }
  return thread.device;
}

// The record of the call that returns now; null: it had no room, or recording began inside the call.
flight::Record* LaunchRecorder::open_call(const ThreadState& thread, ApiCall call) noexcept {
  flight::Record* const record = thread.open_count == 1 ? thread.open[0] : nullptr;
  const bool is_it = record != nullptr && record->kind == static_cast<std::uint8_t>(flight::RecordKind::kApiCall) &&
                     flight::call_of(*record) == call;
  return is_it ? record : nullptr;
}

// What this thread had launched before is done, as the line of the call says: there is nothing left to be marked. A loop of
// short steps that waits at the end of each has no marks at all.
void LaunchRecorder::on_wait_return(ThreadState& thread, const DriverCall& call) noexcept {
  const flight::Record* const record = open_call(thread, call.call);
  if (record == nullptr || !thread.marks) return;
  const auto done = [&](ThreadState::StreamEntry& entry) {
    if (entry.context_uid != call.context_uid || entry.marked_ns == ThreadState::kNeverMarked) return;
    entry.unmarked = 0;
    if (entry.marked_ns < record->launch_ns) entry.marked_ns = record->launch_ns;
  };
  if (!call.has_stream) return thread.each_stream(done);
  if (ThreadState::StreamEntry* const entry = stream_of_call(thread, call)) done(*entry);
}

void LaunchRecorder::on_memory_return(ThreadState& thread, ApiCall call, const MemoryArguments& memory) noexcept {
  flight::Record* const record = open_call(thread, call);
  if (record == nullptr) return;
  flight::pack_handle(*record, memory.address);
  flight::pack_bytes(*record, memory.bytes);
  if (call == ApiCall::kMemCreate) flight::pack_device(*record, memory.device);
}

void LaunchRecorder::on_edge_return(ThreadState& thread, const DriverCall& call, void* source,
                                    DeviceOf device_of) noexcept {
  flight::Record* const record = open_call(thread, call.call);
  if (record == nullptr) return;
  ThreadState::StreamEntry& entry = stream_of(thread, call.stream, call.per_thread_default, call.context,
                                              call.context_uid, source, device_of);
  if (may_be_captured(entry) && is_captured(thread, entry)) record->flags |= flight::kFlagCaptured;
}

}  // namespace gpuflight::capture
