#include "capture/launch_recorder.h"

#include <cerrno>
#include <pthread.h>
#include <sys/mman.h>

namespace gpuflight::capture {
namespace {

// A miss runs driver calls, locks and allocations in the host's thread: none of it may be cut short by a cancellation,
// come back to us as a callback, or leave a trace in errno.
class MissGuard {
 public:
  explicit MissGuard(ThreadState& thread) noexcept : thread_(thread), errno_(errno) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    thread_.inside = true;
    thread_.missed = true;
  }
  ~MissGuard() {
    thread_.inside = false;
    pthread_setcancelstate(cancel_state_, nullptr);
    errno = errno_;
  }
  MissGuard(const MissGuard&) = delete;
  MissGuard& operator=(const MissGuard&) = delete;

 private:
  ThreadState& thread_;
  int errno_;
  int cancel_state_ = 0;
};

std::size_t slot_of(const LaunchKey& key) {
  std::uint64_t h = reinterpret_cast<std::uint64_t>(key.function) ^ (std::uint64_t{key.context_uid} << 48);
  h ^= (std::uint64_t{key.block_x} << 7) ^ (std::uint64_t{key.block_y} << 21) ^ (std::uint64_t{key.block_z} << 33);
  h ^= std::uint64_t{key.dyn_shared_bytes} << 29 ^ std::uint64_t{key.cluster_x} << 41 ^ key.flags;
  h *= 0x9E3779B97F4A7C15ull;
  return static_cast<std::size_t>(h >> 56) % ThreadState::kLaunchSlots;
}

// More than 65,535 blocks in y or z are refused by the driver; the record says "too many" rather than a wrong number.
std::uint16_t to_u16(std::uint32_t n) { return static_cast<std::uint16_t>(n < 0xFFFF ? n : 0xFFFF); }

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
  return owner;
}

std::optional<std::int64_t> CostCounters::median_ns() const noexcept {
  std::uint64_t total = 0;
  for (const auto& bucket : samples_) total += bucket.load(std::memory_order_relaxed);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < kBuckets && total > 0; ++i) {
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
  record->kind = static_cast<std::uint8_t>(kind);
  record->thread = thread.tid;
  record->call_ns = 0;
  record->status = 0;
  return record;
}

void LaunchRecorder::on_kernel_enter(ThreadState& thread, const LaunchCall& call, void* source,
                                     DeviceOf device_of) noexcept {
  std::int64_t now = now_ns();
  const std::uint32_t config = config_of(thread, call, source, device_of);
  ThreadState::StreamEntry& stream = stream_of(thread, call.stream, call.per_thread_default, call.context,
                                               call.context_uid, source, device_of);
  if (thread.missed) [[unlikely]] now = now_ns();  // what we had to look up is no part of the host's call
  std::uint16_t flags = config == 0 ? flight::kFlagConfigUnknown : 0;
  const bool capturing = may_be_capturing(now);
  if (!capturing && !call.programmatic) mark_before(thread, stream, now);
  if (capturing && being_captured(thread, call.stream, call.per_thread_default)) flags |= flight::kFlagCaptured;
  flight::Record* const record = begin(thread, flight::RecordKind::kKernelLaunch);
  if (record == nullptr) return;
  record->flags = flags;
  record->config = config;
  record->launch_ns = now;
  record->grid_x = call.grid.x;
  record->grid_y = to_u16(call.grid.y);
  record->grid_z = to_u16(call.grid.z);
  record->stream = stream.id;
  record->correlation = call.correlation;
  record->scope = thread.scope().value;
  record->graph = 0;
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kEntered), std::memory_order_relaxed);
  thread.ring->publish();
  if (thread.open_count < ThreadState::kMaxOpen) thread.open[thread.open_count++] = record;
  if (call.programmatic) stream.programmatic = true;
  thread.open_stream = capturing ? nullptr : &stream;
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
    entry = {call.graph_exec, parts_.graphs.id_of(call.graph_exec).value};
  }
  const std::uint32_t graph = entry.id;
  ThreadState::StreamEntry& stream = stream_of(thread, call.stream, call.per_thread_default, call.context,
                                               call.context_uid, source, device_of);
  const bool capturing = may_be_capturing(now);
  if (!capturing) mark_before(thread, stream, now);
  const bool captured = capturing && being_captured(thread, call.stream, call.per_thread_default);
  flight::Record* const record = begin(thread, flight::RecordKind::kGraphLaunch);
  if (record == nullptr) return;
  record->flags = captured ? flight::kFlagCaptured : 0;
  record->config = 0;
  record->launch_ns = now;
  record->grid_x = 0;
  record->grid_y = record->grid_z = 0;
  record->stream = stream.id;
  record->correlation = call.correlation;
  record->scope = thread.scope().value;
  record->graph = graph;
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kEntered), std::memory_order_relaxed);
  thread.ring->publish();
  if (thread.open_count < ThreadState::kMaxOpen) thread.open[thread.open_count++] = record;
  thread.open_stream = capturing ? nullptr : &stream;
}

void LaunchRecorder::on_blocking_enter(ThreadState& thread, const BlockingCall& call, void* source,
                                       DeviceOf device_of) noexcept {
  if (parts_.markers != nullptr && !may_be_capturing(now_ns())) {
    for (ThreadState::StreamEntry& entry : thread.streams) {
      if (entry.kind != 0 && entry.unmarked > 0 && entry.context_uid == call.context_uid) mark_stream(thread, entry);
    }
  }
  const std::uint32_t stream = call.has_stream ? stream_of(thread, call.stream, call.per_thread_default, call.context,
                                                           call.context_uid, source, device_of)
                                                     .id
                                               : 0;
  const std::int64_t now = now_ns();
  flight::Record* const record = begin(thread, flight::RecordKind::kApiCall);
  if (record == nullptr) return;
  record->flags = 0;
  record->config = static_cast<std::uint32_t>(call.call);
  record->launch_ns = now;
  record->grid_x = call.context_uid;
  record->grid_y = record->grid_z = 0;
  record->stream = stream;
  record->correlation = record->graph = 0;
  record->scope = thread.scope().value;
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kEntered), std::memory_order_relaxed);
  thread.ring->publish();
  if (thread.open_count < ThreadState::kMaxOpen) thread.open[thread.open_count++] = record;
}

void LaunchRecorder::on_return(ThreadState& thread, std::int32_t status) noexcept {
  if (thread.open_count == 0) return;  // refused room, or recording began inside the call
  const std::int64_t now = now_ns();
  for (std::uint32_t i = 0; i < thread.open_count; ++i) {
    flight::Record* const record = thread.open[i];
    // A recalibration of the clock in between may have set it back by a fraction of a microsecond.
    record->call_ns = now > record->launch_ns ? now - record->launch_ns : 0;
    record->status = status;
    record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kReturned), std::memory_order_release);
  }
  thread.open_count = 0;
  if (thread.open_stream != nullptr) {
    if (status == 0 && parts_.markers != nullptr) mark_if_due(thread, now);
    thread.open_stream = nullptr;
  }
  if (thread.sampled_enter_ns >= 0) [[unlikely]] {
    cost_.add(thread.sampled_enter_ns + (now_ns() - now));
    thread.sampled_enter_ns = -1;
  }
}

std::uint32_t LaunchRecorder::config_of(ThreadState& thread, const LaunchCall& call, void* source,
                                        DeviceOf device_of) noexcept {
  const std::uint64_t generation = parts_.resolver.generation();
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
  auto& ways = thread.launches[slot_of(key)];
  if (ways[0].valid && ways[0].key == key) [[likely]] return ways[0].config;
  if (ways[1].valid && ways[1].key == key) return ways[1].config;
  MissGuard miss(thread);
  cost_.misses.fetch_add(1, std::memory_order_relaxed);
  const KernelResolver::Result result = parts_.resolver.resolve(call, device_of(source, call.context));
  if (result.lasting) {
    ways[1] = ways[0];
    ways[0] = {key, result.config.value, true};
  }
  return result.config.value;
}

// After a pause what came before is marked off too, so that the launch now coming is the only one between two marks.
void LaunchRecorder::mark_before(ThreadState& thread, ThreadState::StreamEntry& entry, std::int64_t now) noexcept {
  if (entry.unmarked == 0 || now - entry.marked_ns < kMarkNs || entry.programmatic) [[likely]] return;
  if (parts_.markers == nullptr) return;
  mark_stream(thread, entry);
  entry.due = true;
}

void LaunchRecorder::mark_if_due(ThreadState& thread, std::int64_t now) noexcept {
  ThreadState::StreamEntry& entry = *thread.open_stream;
  ++entry.unmarked;
  if (entry.programmatic) return;
  if (!entry.due && entry.unmarked < kMarkEvery && now - entry.marked_ns < kMarkNs) [[likely]] return;
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
  for (ThreadState::StreamEntry& entry : thread.streams) {
    if (entry.kind != 0 && entry.track != 0) parts_.markers->retire(entry.track - 1);
    entry.track = 0;
  }
}

ThreadState::StreamEntry& LaunchRecorder::stream_of(ThreadState& thread, const void* stream, bool per_thread_default,
                                                    const void* context, std::uint32_t context_uid, void* source,
                                                    DeviceOf device_of) noexcept {
  const std::uint32_t generation = parts_.streams.generation();
  if (thread.stream_generation != generation) [[unlikely]] {
    retire_tracks(thread);
    thread.forget_streams();
    thread.stream_generation = generation;
  }
  const std::uint32_t kind = per_thread_default ? 2 : 1;
  auto& entry = thread.streams[((reinterpret_cast<std::uintptr_t>(stream) >> 4) ^ context_uid ^ kind) %
                               ThreadState::kStreamSlots];
  if (entry.kind == kind && entry.stream == stream && entry.context_uid == context_uid) [[likely]] return entry;
  if (entry.kind != 0 && entry.track != 0 && parts_.markers != nullptr) parts_.markers->retire(entry.track - 1);
  MissGuard miss(thread);
  RelaxedCapture relaxed(parts_.driver);
  StreamKey key;
  key.context_uid = context_uid;
  const bool own_default = stream == kPerThreadStream || (stream == nullptr && per_thread_default);
  if (own_default) key.thread = thread.tid;
  if (stream != nullptr && stream != kLegacyStream && stream != kPerThreadStream) key.handle = stream;
  const bool may_ask = !may_be_capturing(now_ns());
  const event::StreamId id = parts_.streams.id_of(key, device_of(source, context), may_ask);
  entry = {};
  entry.stream = stream;
  entry.context_uid = context_uid;
  entry.kind = kind;
  entry.id = id.value;
  return entry;
}

// Asked only while some capture runs in the process: the call costs 100 to 180 ns.
bool LaunchRecorder::being_captured(ThreadState& thread, const void* stream, bool per_thread_default) noexcept {
  const auto ask = per_thread_default ? parts_.driver.stream_is_capturing_ptsz : parts_.driver.stream_is_capturing;
  if (ask == nullptr) return false;
  MissGuard miss(thread);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (ask(static_cast<CUstream>(const_cast<void*>(stream)), &status) != CUDA_SUCCESS) return false;
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// What was not seen during the pause may have changed everything that is kept by handle.
void LaunchRecorder::on_resumed_blind() noexcept {
  constexpr std::int64_t kDoubtNs = 10'000'000'000;
  parts_.page.captures.store(0, std::memory_order_relaxed);
  parts_.page.in_doubt_until_ns.store(now_ns() + kDoubtNs, std::memory_order_release);
  parts_.resolver.on_handles_released();
  parts_.streams.forget_all();
  parts_.graphs.forget_all();
}

void LaunchRecorder::on_capture_ended() noexcept {
  std::int32_t now = parts_.page.captures.load(std::memory_order_relaxed);
  while (now > 0 && !parts_.page.captures.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel)) {
  }
}

void LaunchRecorder::point(ThreadState& thread, flight::RecordKind kind, event::ScopeId scope) noexcept {
  const std::int64_t now = now_ns();
  flight::Record* const record = begin(thread, kind);
  if (record == nullptr) return;
  record->flags = 0;
  record->config = 0;
  record->launch_ns = now;
  record->grid_x = record->stream = record->correlation = record->graph = 0;
  record->grid_y = record->grid_z = 0;
  record->scope = scope.value;
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kReturned), std::memory_order_relaxed);
  thread.ring->publish();
}

void LaunchRecorder::push_scope(const char* name) noexcept {
  ThreadState* const thread = enter();
  if (thread == nullptr || name == nullptr) return;
  event::ScopeId scope = thread->scope();
  {
    MissGuard miss(*thread);
    if (const event::ScopeId child = parts_.scopes.child(scope, name)) scope = child;
  }
  if (thread->scope_depth < ThreadState::kMaxScopes) thread->scopes[thread->scope_depth] = scope;
  ++thread->scope_depth;
  point(*thread, flight::RecordKind::kScopeBegin, scope);
}

void LaunchRecorder::pop_scope() noexcept {
  ThreadState* const thread = enter();
  if (thread == nullptr || thread->scope_depth == 0) return;
  const event::ScopeId scope = thread->scope();
  --thread->scope_depth;
  point(*thread, flight::RecordKind::kScopeEnd, scope);
}

void LaunchRecorder::mark(const char* name) noexcept {
  ThreadState* const thread = enter();
  if (thread == nullptr || name == nullptr) return;
  event::ScopeId scope;
  {
    MissGuard miss(*thread);
    scope = parts_.scopes.child(thread->scope(), name);
  }
  point(*thread, flight::RecordKind::kMark, scope);
}

// The thread left a launch call other than by returning from it: cancelled, or thrown or jumped across.
void LaunchRecorder::abandon_open(ThreadState& thread) noexcept {
  for (std::uint32_t i = 0; i < thread.open_count; ++i) {
    thread.open[i]->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kAbandoned), std::memory_order_release);
  }
  thread.open_count = 0;
}

void LaunchRecorder::on_thread_exit(ThreadState& thread) noexcept {
  abandon_open(thread);
  retire_tracks(thread);
  if (thread.ring != nullptr) parts_.rings.release(thread.ring);
  thread.ring = nullptr;
}

}  // namespace gpuflight::capture
