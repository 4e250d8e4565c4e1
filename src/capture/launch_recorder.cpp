#include "capture/launch_recorder.h"

#include "capture/launch_hit.h"
#include "capture/miss_guard.h"

#include <sys/mman.h>

namespace gpuflight::capture {
namespace {

const void* const kLegacyStream = reinterpret_cast<const void*>(1);     // CU_STREAM_LEGACY
const void* const kPerThreadStream = reinterpret_cast<const void*>(2);  // CU_STREAM_PER_THREAD

constexpr std::uint32_t kFlagCooperative = 1, kFlagCarveoutFromLaunch = 2;

}  // namespace

HotPage* HotPage::create() noexcept {
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  madvise(page, 4096, MADV_WIPEONFORK);  // Linux before 4.14 lacks it: pthread_atfork is left then
  auto* const owner = static_cast<HotPage*>(page);
  owner->owned.store(1, std::memory_order_relaxed);
  owner->config_generation.store(1, std::memory_order_relaxed);  // a thread's caches begin at 0
  owner->stream_generation.store(1, std::memory_order_relaxed);
  owner->graph_generation.store(1, std::memory_order_relaxed);
  owner->context_generation.store(1, std::memory_order_relaxed);
  owner->burst_generation.store(1, std::memory_order_relaxed);
  return owner;
}

std::optional<std::int64_t> CostCounters::median_ns() const noexcept {
  std::uint64_t total = 0;
  for (const auto& bucket : samples_) total += bucket.load(std::memory_order_relaxed);
  if (total < kFewestSamples) return std::nullopt;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    below += samples_[i].load(std::memory_order_relaxed);
    if (2 * below >= total) return static_cast<std::int64_t>(i) * kBucketNs + kBucketNs / 2;
  }
  return std::nullopt;
}

flight::Record* LaunchRecorder::begin(ThreadState& thread, flight::RecordKind kind) noexcept {
  if (thread.ring == nullptr) [[unlikely]] {
    without_slot_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  flight::Record* const record = thread.ring->begin();
  if (record == nullptr) return nullptr;
  open_record(*record, thread, kind);
  thread.burst = ThreadState::kNoBurst;  // its time is read
  thread.open_stream = nullptr;
  return record;
}

void LaunchRecorder::on_kernel_enter(ThreadState& thread, const LaunchCall& call, void* source,
                                     DeviceOf device_of) noexcept {
  std::int64_t now = now_ns();
  ThreadState::LaunchEntry* entry = nullptr;
  const std::uint32_t config = config_of(thread, call, source, device_of, entry);
  ThreadState::StreamEntry& stream = stream_of(thread, call.stream, call.per_thread_default, call.context,
                                               call.context_uid, source, device_of);
  std::uint16_t flags = config == 0 ? flight::kFlagConfigUnknown : 0;
  const bool captured = may_be_captured(stream) && is_captured(thread, stream);
  if (captured) flags |= flight::kFlagCaptured;
  const bool may_mark = !may_be_captured(stream);
  if (may_mark && !call.programmatic) mark_before(thread, stream, now);
  if (parts_.events != nullptr) {
    if (call.programmatic) parts_.events->note_programmatic(stream.id);
    if (entry != nullptr && !captured && parts_.events->count(*entry) && may_mark) {
      parts_.events->begin(thread, stream, call);
    }
  } else if (entry != nullptr) {
    entry->until_timed = 0;  // hits have counted it down all the way round
  }
  if (thread.missed) [[unlikely]] now = now_ns();  // what we had to look up is no part of the host's call
  flight::Record* const record = begin(thread, flight::RecordKind::kKernelLaunch);
  if (record == nullptr) {
    if (parts_.events != nullptr) parts_.events->cancel(thread);
    return;
  }
  fill_kernel_launch(*record, thread, call.grid.x, to_u16(call.grid.y), to_u16(call.grid.z), config, stream.id,
                     call.correlation, flags, now);
  thread.ring->publish();
  if (thread.open_count < ThreadState::kMaxOpen) thread.open[thread.open_count++] = record;
  if (call.programmatic) stream.programmatic = true;
  thread.open_stream = may_mark ? &stream : nullptr;
  if (++thread.sample % kSampleEvery == 0 && !thread.missed) thread.sampled_enter_ns = now_ns() - now;
  thread.missed = false;
}

void LaunchRecorder::on_graph_enter(ThreadState& thread, const GraphCall& call, void* source,
                                    DeviceOf device_of) noexcept {
  const std::int64_t now = now_ns();
  const std::uint32_t generation = parts_.graphs.generation();
  if (thread.graph_generation != generation) {
    thread.forget_graphs();
    thread.graph_generation = generation;
  }
  auto& entry =
      thread.graphs[(reinterpret_cast<std::uintptr_t>(call.graph_exec) >> 6) % ThreadState::kGraphSlots];
  if (entry.exec != call.graph_exec || entry.id == 0) {
    MissGuard miss(thread);
    const GraphTable::Known known = parts_.graphs.at_launch(call.graph_exec);
    entry = {call.graph_exec, known.id.value, known.contents.value};
  }
  const std::uint32_t graph = entry.id, contents = entry.contents;
  ThreadState::StreamEntry& stream = stream_of(thread, call.stream, call.per_thread_default, call.context,
                                               call.context_uid, source, device_of);
  const bool captured = may_be_captured(stream) && is_captured(thread, stream);
  const bool may_mark = !may_be_captured(stream);
  if (may_mark) mark_before(thread, stream, now);
  flight::Record* const record = begin(thread, flight::RecordKind::kGraphLaunch);
  if (record == nullptr) return;
  record->flags = captured ? flight::kFlagCaptured : 0;
  record->config = 0;
  record->launch_ns = now;
  record->grid_x = contents;
  record->grid_y = record->grid_z = 0;
  record->stream = stream.id;
  record->correlation = call.correlation;
  record->scope = thread.scope_now;
  record->graph = graph;
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kEntered), std::memory_order_relaxed);
  thread.ring->publish();
  if (thread.open_count < ThreadState::kMaxOpen) thread.open[thread.open_count++] = record;
  thread.open_stream = may_mark ? &stream : nullptr;
}

// Of the launch that returns, and of no call that came after one which another source has closed.
std::uint32_t LaunchRecorder::end_timed(ThreadState& thread, bool succeeded) noexcept {
  if (parts_.events == nullptr) return 0;
  const bool is_launch = thread.open_count == 1 &&
                         thread.open[0]->kind == static_cast<std::uint8_t>(flight::RecordKind::kKernelLaunch);
  if (is_launch) return parts_.events->end(thread, succeeded);
  parts_.events->cancel(thread);
  return 0;
}

void LaunchRecorder::on_return(ThreadState& thread, std::int32_t status) noexcept {
  if (thread.open_count == 0) {  // refused room, recording began inside the call, or another source has closed it
    if (parts_.events != nullptr) parts_.events->cancel(thread);
    return;
  }
  const std::int64_t now = now_ns();
  // Before anything else of ours: what comes between the kernel and the event counts as the kernel's.
  const std::uint32_t ticket = end_timed(thread, status == 0);
  for (std::uint32_t i = 0; i < thread.open_count; ++i) {
    flight::Record* const record = thread.open[i];
    if (ticket != 0) {
      record->correlation = ticket;
      record->flags |= flight::kFlagEventTimed;
    }
    // A recalibration of the clock in between may have set it back by a fraction of a microsecond.
    if ((record->flags & flight::kFlagTimeShared) == 0) {
      record->call_ns = now > record->launch_ns ? now - record->launch_ns : 0;
      record->flags &= static_cast<std::uint16_t>(~flight::kFlagCallUntimed);
    }
    record->status = status;
    record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kReturned), std::memory_order_release);
  }
  thread.open_count = 0;
  if (ticket != 0) parts_.events->submit(thread);
  if (thread.open_stream != nullptr) {
    if (status == 0 && thread.marks) {
      ThreadState::StreamEntry& stream = *thread.open_stream;
      ++stream.unmarked;
      if (mark_is_due(stream, now)) mark_behind(thread, stream);
    }
    thread.open_stream = nullptr;
  }
  if (thread.sampled_enter_ns >= 0) [[unlikely]] {
    cost_.add(thread.sampled_enter_ns + (now_ns() - now));
    thread.sampled_enter_ns = -1;
  }
}

std::uint32_t LaunchRecorder::config_of(ThreadState& thread, const LaunchCall& call, void* source,
                                        DeviceOf device_of, ThreadState::LaunchEntry*& entry) noexcept {
  const std::uint32_t generation = parts_.page.config_generation.load(std::memory_order_acquire);
  if (thread.config_generation != generation) [[unlikely]] {
    thread.forget_launches();
    thread.config_generation = generation;
  }
  LaunchKey key;
  key.function = call.function;
  key.context_uid = call.context_uid;
  key.block_x = call.shape.block.x;
  key.block_y = call.shape.block.y;
  key.block_z = call.shape.block.z;
  key.dyn_shared_bytes = call.shape.dyn_shared_bytes;
  key.cluster_x = static_cast<std::uint16_t>(call.shape.cluster.x);
  key.cluster_y = static_cast<std::uint16_t>(call.shape.cluster.y);
  key.cluster_z = static_cast<std::uint16_t>(call.shape.cluster.z);
  key.carveout = static_cast<std::int16_t>(call.shape.carveout);
  key.flags = (call.shape.cooperative ? kFlagCooperative : 0) |
              (call.shape.carveout_from_launch ? kFlagCarveoutFromLaunch : 0);
  auto& ways = thread.launches[ThreadState::launch_slot(key.function, key.context_uid, key.block_x, key.block_y,
                                                        key.block_z, key.dyn_shared_bytes)];
  for (ThreadState::LaunchEntry& way : ways) {
    if (!way.valid || way.key != key) continue;
    entry = &way;
    return way.config;
  }
  MissGuard miss(thread);
  cost_.misses.fetch_add(1, std::memory_order_relaxed);
  const KernelResolver::Result result = parts_.resolver.resolve(call, device_of(source, call.context));
  if (result.lasting) {
    ways[1] = ways[0];
    const bool plain = call.shape.cluster == event::Dim3{0, 0, 0} && call.shape.carveout == -1 && key.flags == 0 &&
                       result.config.value != 0;
    ways[0] = {key, result.config.value, true, plain};
    entry = &ways[0];
  }
  return result.config.value;
}

// After a pause what came before is marked off too, so that the launch now coming is the only one between two marks.
void LaunchRecorder::mark_before(ThreadState& thread, ThreadState::StreamEntry& entry, std::int64_t now) noexcept {
  if (!mark_is_due_before(entry, now)) [[likely]] return;
  if (!thread.marks) return;
  mark_stream(thread, entry);
  entry.due = true;
}

void LaunchRecorder::mark_behind(ThreadState& thread, ThreadState::StreamEntry& entry) noexcept {
  entry.due = false;
  mark_stream(thread, entry);
}

void LaunchRecorder::mark_stream(ThreadState& thread, ThreadState::StreamEntry& entry) noexcept {
  MissGuard guard(thread);
  if (entry.track == 0) {
    RelaxedCapture relaxed(parts_.driver);
    entry.track = parts_.markers->track_for(entry.id, entry.context_uid) + 1;
    // No room, or the driver cannot: 0 again, and asked again after as many launches as a mark would have come.
  }
  const std::int64_t now = now_ns();
  if (entry.track != 0 && parts_.streams.begin_use(thread.stream_generation)) {
    parts_.markers->mark(entry.track - 1, entry.stream, entry.kind == 2, now);
    parts_.streams.end_use();
  }
  entry.unmarked = 0;
  entry.marked_ns = now;
}

void LaunchRecorder::retire_tracks(ThreadState& thread) noexcept {
  if (parts_.markers == nullptr) return;
  thread.each_stream([this](ThreadState::StreamEntry& entry) {
    if (entry.track != 0) parts_.markers->retire(entry.track - 1);
    entry.track = 0;
  });
}

ThreadState::StreamEntry& LaunchRecorder::stream_of(ThreadState& thread, const void* stream, bool per_thread_default,
                                                    const void* context, std::uint32_t context_uid, void* source,
                                                    DeviceOf device_of) noexcept {
  const std::uint32_t generation = parts_.page.stream_generation.load(std::memory_order_acquire);
  if (thread.stream_generation != generation) [[unlikely]] {
    retire_tracks(thread);
    thread.forget_streams();
    thread.stream_generation = generation;
  }
  const std::uint32_t kind = ThreadState::stream_kind(per_thread_default);
  if (ThreadState::StreamEntry* const known = thread.find_stream(stream, context_uid, kind)) [[likely]] return *known;
  const std::size_t slot = ThreadState::stream_slot(stream, context_uid, kind);
  ThreadState::StreamEntry& entry = thread.streams[slot];
  if (entry.kind != 0 && entry.track != 0 && parts_.markers != nullptr) parts_.markers->retire(entry.track - 1);
  MissGuard miss(thread);
  RelaxedCapture relaxed(parts_.driver);
  StreamKey key;
  key.context_uid = context_uid;
  const bool own_default = stream == kPerThreadStream || (stream == nullptr && per_thread_default);
  if (own_default) key.thread = thread.tid;
  if (stream != nullptr && stream != kLegacyStream && stream != kPerThreadStream) key.handle = stream;
  thread.empty_stream(slot);  // not sure of anything
  entry.stream = stream;
  entry.context_uid = context_uid;
  entry.kind = kind;
  const bool may_ask = !may_be_captured(entry);
  const event::StreamId id = parts_.streams.id_of(key, device_of(source, context), may_ask);
  entry.id = id.value;
  return entry;
}

// While some capture runs in the process, and where one may have begun unseen.
bool LaunchRecorder::may_be_captured(const ThreadState::StreamEntry& entry) const noexcept {
  return parts_.page.captures.load(std::memory_order_relaxed) > 0 ||
         entry.sure_at != parts_.page.doubts.load(std::memory_order_relaxed);
}

// Asks the driver, which costs 100 to 180 ns. A stream found free stays so until a capture is seen to begin on it or it
// waits for an event of another stream, so that after a blind pause one question a stream is enough.
bool LaunchRecorder::is_captured(ThreadState& thread, ThreadState::StreamEntry& entry) noexcept {
  const std::uint32_t doubts = parts_.page.doubts.load(std::memory_order_acquire);
  const std::optional<bool> captured = is_capturing(thread, entry.stream, entry.kind == 2);
  if (!captured) return false;
  if (!*captured) entry.sure_at = doubts;
  return *captured;
}

std::optional<bool> LaunchRecorder::is_capturing(ThreadState& thread, const void* stream,
                                                 bool per_thread_default) noexcept {
  const auto ask = per_thread_default ? parts_.driver.stream_is_capturing_ptsz : parts_.driver.stream_is_capturing;
  if (ask == nullptr) return std::nullopt;
  MissGuard miss(thread);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (ask(static_cast<CUstream>(const_cast<void*>(stream)), &status) != CUDA_SUCCESS) return std::nullopt;
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// What was not seen during the pause may have changed everything that is kept by handle.
void LaunchRecorder::on_resumed_blind() noexcept {
  parts_.page.captures.store(0, std::memory_order_relaxed);
  parts_.page.doubts.fetch_add(1, std::memory_order_acq_rel);
  parts_.resolver.on_handles_released();
  parts_.streams.forget_all();
  parts_.graphs.forget_all();
}

void LaunchRecorder::on_capture_ended() noexcept {
  std::int32_t now = parts_.page.captures.load(std::memory_order_relaxed);
  while (now > 0 && !parts_.page.captures.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel)) {
  }
}

// The thread left a launch call other than by returning from it: cancelled, or thrown or jumped across.
void LaunchRecorder::abandon_open(ThreadState& thread) noexcept {
  if (parts_.events != nullptr) parts_.events->cancel(thread);
  for (std::uint32_t i = 0; i < thread.open_count; ++i) {
    thread.open[i]->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kAbandoned), std::memory_order_release);
  }
  thread.open_count = 0;
}

void LaunchRecorder::on_thread_exit(ThreadState& thread) noexcept {
  abandon_open(thread);
  retire_tracks(thread);
  thread.burst = ThreadState::kNoBurst;
  if (thread.ring != nullptr) parts_.rings.release(thread.ring);
  thread.ring = nullptr;
}

}  // namespace gpuflight::capture
