// The common launch, from first to last instruction: a plain kernel whose configuration and stream the thread's caches
// know, no graph capture anywhere, room in the chunk. All else is refused (nothing is changed then) and goes through
// LaunchRecorder, which does the same at length. Here it is one straight piece of code over ten cache lines: between two
// launches the driver has driven ours from the nearest cache, so lines, not instructions, are what a launch pays for.
//
// Threads: the calling app thread's own state; the page is read only.
#pragma once

#include <cstdint>

#include "capture/hot_page.h"
#include "capture/launch_clock.h"
#include "capture/thread_state.h"
#include "flight/layout.h"

namespace gpuflight::capture {

// Every so many launches of a thread our own cost is timed.
inline constexpr std::uint32_t kSampleEvery = 256;

// Marks: one behind a launch at most every kMarkEvery launches and not more often than every kMarkNs, sooner of the
// two, and before a call that may wait for what has not been marked; in the one stream that is waited for not more often
// than every kMarkNs. A mark costs the host 1 us, in which 2 to 4 ms a kMarkEvery take, and lies on the GPU between the
// work and its waiter: a loop of steps of 250 us that waits at the end of each ran 3.4 % longer with one before each wait
// (H200). That its waits come back says as much: each counts as a mark.
inline constexpr std::uint32_t kMarkEvery = 1024;
inline constexpr std::int64_t kMarkNs = 10'000'000;

inline bool mark_is_due(const ThreadState::StreamEntry& stream, std::int64_t now) noexcept {
  return !stream.programmatic && (stream.due || stream.unmarked >= kMarkEvery || now - stream.marked_ns >= kMarkNs);
}
// After a pause what came before is marked off too, so that the launch now coming is the only one between two marks.
inline bool mark_is_due_before(const ThreadState::StreamEntry& stream, std::int64_t now) noexcept {
  return stream.unmarked != 0 && now - stream.marked_ns >= kMarkNs && !stream.programmatic;
}

// The time stamp counter costs 30 ns a reading within a launch on an H200's host (17 to 20 one after the other), a third of
// all that we add. Of a source without a floor of its own, a thread that launches faster than one in kDenseNs is in a
// burst once it has done so eight times: then the times of one launch in kReadEvery are read, at entry and return, and the
// others share its launch_ns (kFlagTimeShared), with no call_ns. Before that one in kReadEvery has its return timed, and
// without density all have. A burst ends with any other record, when the clock has been held against the counter (so that
// what is shared is never older than one of the recorder thread's rounds), and when the launches from one reading to the
// next took longer than kDenseNs each, as those do that wait for room in the queue.
//
// ThreadState::burst: above 0, so many more share the time last read; below 0, so many are to be dense until a burst.
inline constexpr std::uint32_t kReadEvery = 8;
inline constexpr std::int64_t kDenseNs = flight::kBurstStepNs;
static_assert(-ThreadState::kNoBurst >= kReadEvery - 1 && kSampleEvery == 256);  // ThreadState::sample has one byte

// Of a launch whose time has been read, and which says whether the next may share it: the flags of its record.
// `generation`: HotPage::burst_generation before anything of this launch was looked up.
[[gnu::noinline]] inline std::uint16_t begin_burst(ThreadState& thread, std::int64_t now, std::uint32_t generation,
                                                   std::int64_t dense_ns) noexcept {
  const std::int64_t launches = thread.burst < 0 ? 1 : kReadEvery - thread.burst;
  const bool dense = now - thread.read_ns < launches * dense_ns;
  thread.read_ns = now;
  thread.burst_generation = generation;
  if (!dense) {
    thread.burst = ThreadState::kNoBurst;
  } else if (thread.burst < -1) {
    ++thread.burst;
  } else {
    // Those that share it are to stand in the same chunk, and so is the next that is read.
    thread.burst = thread.ring->room() > kReadEvery ? kReadEvery - 1 : -1;
    return 0;
  }
  return dense && thread.sample % kReadEvery != 0 ? flight::kFlagCallUntimed : 0;
}

inline void open_record(flight::Record& record, const ThreadState& thread, flight::RecordKind kind) noexcept {
  record.kind = static_cast<std::uint8_t>(kind);
  record.thread = thread.ring->tid();
  record.call_ns = 0;
  record.status = 0;
}

// More than 65,535 blocks in y or z are refused by the driver; the record says "too many" rather than a wrong number.
inline std::uint16_t to_u16(std::uint32_t n) noexcept { return static_cast<std::uint16_t>(n < 0xFFFF ? n : 0xFFFF); }

inline void fill_kernel_launch(flight::Record& record, const ThreadState& thread, std::uint32_t grid_x,
                               std::uint16_t grid_y, std::uint16_t grid_z, std::uint32_t config, std::uint32_t stream,
                               std::uint32_t correlation, std::uint16_t flags, std::int64_t now) noexcept {
  record.flags = flags;
  record.config = config;
  record.launch_ns = now;
  record.grid_x = grid_x;
  record.grid_y = grid_y;
  record.grid_z = grid_z;
  record.stream = stream;
  record.correlation = correlation;
  record.scope = thread.scope_now;
  record.graph = 0;
  record.phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kEntered), std::memory_order_relaxed);
}

// Begins to fetch a line for writing; nothing is waited for, and nothing happens where the address is not mapped.
inline void prefetch_for_write(const void* address) noexcept {
#if defined(__x86_64__)
  // Without -mprfchw the compiler would fetch it for reading. Older processors take it for a no-op.
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// The entry of a plain launch in the thread's cache, if it is there and its stream is known; else null. `Geometry` has
// gridDimX to blockDimZ, sharedMemBytes and hStream as the driver's own structs name them. `kind`: of StreamEntry.
template <class Geometry>
[[gnu::always_inline]] inline ThreadState::LaunchEntry* find_hit(const HotPage& page, ThreadState& thread,
                                                                 const Geometry& launch, const void* function,
                                                                 const ThreadState::StreamEntry& stream,
                                                                 std::uint32_t context_uid, std::uint32_t kind) noexcept {
  auto& entry =
      thread.launches[ThreadState::launch_slot(function, context_uid, launch.blockDimX, launch.blockDimY,
                                               launch.blockDimZ, launch.sharedMemBytes)][0];
  const auto differ = [](const void* a, const void* b) {
    return reinterpret_cast<std::uintptr_t>(a) ^ reinterpret_cast<std::uintptr_t>(b);
  };
  // All at once: shorter than one after the other. A grid that the driver will refuse is told of at length.
  const std::uint64_t difference =
      differ(entry.key.function, function) | differ(stream.stream, launch.hStream) |
      (ThreadState::pair_at(entry.key.context_uid) ^ ThreadState::pair_of(context_uid, launch.blockDimX)) |
      (ThreadState::pair_at(entry.key.block_y) ^ ThreadState::pair_of(launch.blockDimY, launch.blockDimZ)) |
      (ThreadState::pair_at(stream.context_uid) ^ ThreadState::pair_of(context_uid, kind)) |
      (entry.key.dyn_shared_bytes ^ launch.sharedMemBytes) | ((launch.gridDimY | launch.gridDimZ) >> 16) |
      (stream.sure_at ^ page.doubts.load(std::memory_order_relaxed));
  return (difference != 0) | !entry.plain ? nullptr : &entry;
}

// Writes and publishes the record of a launch that is one. From then on it is open.
template <class Geometry>
[[gnu::always_inline]] inline void write_hit(flight::Record& record, ThreadState& thread, const Geometry& launch,
                                             std::uint32_t config, std::uint32_t stream, std::uint32_t correlation,
                                             std::uint16_t flags, std::int64_t now) noexcept {
  fill_kernel_launch(record, thread, launch.gridDimX, static_cast<std::uint16_t>(launch.gridDimY),
                     static_cast<std::uint16_t>(launch.gridDimZ), config, stream, correlation, flags, now);
  thread.ring->publish();
  // While the driver works: a program that launches in a loop is back here at once, and what the driver then waits for
  // with its first lock would be this line.
  if (const void* const place = thread.ring->next_place()) [[likely]] prefetch_for_write(place);
  thread.open[0] = &record;
  thread.open_count = 1;
}

// The thread is in a burst, and nothing that the launch read last went by has changed since.
inline bool in_burst(const HotPage& page, const ThreadState& thread) noexcept {
  return thread.burst > 0 && thread.burst_generation == page.burst_generation.load(std::memory_order_acquire) &&
         !thread.busy();
}

// A launch of a burst, that shares the time of the one read last. Only where launches are not timed by events.
template <class Geometry>
[[gnu::always_inline]] inline bool enter_shared(const HotPage& page, ThreadState& thread, const Geometry& launch,
                                                const void* function, const ThreadState::StreamEntry& stream,
                                                std::uint32_t context_uid, std::uint32_t kind) noexcept {
  const ThreadState::LaunchEntry* const entry = find_hit(page, thread, launch, function, stream, context_uid, kind);
  if (entry == nullptr) [[unlikely]] return false;
  flight::Record* const record = thread.ring->begin_in_chunk();
  if (record == nullptr) [[unlikely]] return false;
  --thread.burst;
  open_record(*record, thread, flight::RecordKind::kKernelLaunch);
  record->call_ns = flight::kTimeNotKnown;
  write_hit(*record, thread, launch, entry->config, stream.id, 0, flight::kFlagTimeShared | flight::kFlagCallUntimed,
            thread.read_ns);
  return true;
}

// Its return. No mark comes behind it, only behind one whose time is read: so the launches before a mark are known to be.
[[gnu::always_inline]] inline bool return_shared(ThreadState& thread, ThreadState::StreamEntry& stream,
                                                 std::int32_t status) noexcept {
  if ((thread.open_count != 1) | (status != 0)) [[unlikely]] {
    thread.open_stream = &stream;
    return false;
  }
  thread.open[0]->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kReturned), std::memory_order_release);
  thread.open_count = 0;
  stream.unmarked += thread.marks;
  return true;
}

// A launch whose time is read. `dense_ns`: launches of a thread that follow one another faster share times; 0: each has its
// own.
template <class Geometry>
[[gnu::always_inline]] inline bool enter_hit(const HotPage& page, ThreadState& thread, const Geometry& launch,
                                             const void* function, ThreadState::StreamEntry& stream,
                                             std::uint32_t context_uid, std::uint32_t kind, std::uint32_t correlation,
                                             std::uint32_t dense_ns) noexcept {
  const std::uint32_t generation = page.burst_generation.load(std::memory_order_acquire);
  if ((thread.open_count != 0) | (thread.ring == nullptr) | (page.captures.load(std::memory_order_relaxed) > 0) |
      (thread.config_generation != page.config_generation.load(std::memory_order_acquire)) |
      (thread.stream_generation != page.stream_generation.load(std::memory_order_acquire))) [[unlikely]] {
    return false;
  }
  ThreadState::LaunchEntry* const entry = find_hit(page, thread, launch, function, stream, context_uid, kind);
  if (entry == nullptr || entry->until_timed == 1) [[unlikely]] return false;
  std::int64_t now;
  if (!LaunchClock::counter_ns(page, now)) [[unlikely]] return false;
  if (mark_is_due_before(stream, now)) [[unlikely]] return false;
  flight::Record* const record = thread.ring->begin_in_chunk();
  if (record == nullptr) [[unlikely]] return false;
  open_record(*record, thread, flight::RecordKind::kKernelLaunch);
  ++thread.sample;
  std::uint16_t flags = 0;
  if (dense_ns != 0) {
    flags = begin_burst(thread, now, generation, dense_ns);
  } else {
    thread.burst = ThreadState::kNoBurst;
  }
  write_hit(*record, thread, launch, entry->config, stream.id, correlation, flags, now);
  --entry->until_timed;
  thread.open_stream = &stream;
  if (thread.sample == 0) [[unlikely]] {
    std::int64_t end;
    if (LaunchClock::counter_ns(page, end)) thread.sampled_enter_ns = end - now;
  }
  return true;
}

// The return of a launch that succeeded. `mark` (thread, stream) is called where a mark is due behind it.
template <class Mark>
[[gnu::always_inline]] inline bool return_hit(const HotPage& page, ThreadState& thread, std::int32_t status,
                                              Mark&& mark) noexcept {
  if ((thread.open_count != 1) | (status != 0) | (thread.open_stream == nullptr)) [[unlikely]] return false;
  flight::Record& record = *thread.open[0];
  std::int64_t now = record.launch_ns;
  if ((record.flags & flight::kFlagCallUntimed) == 0) {
    if (thread.sample == 0) [[unlikely]] return false;
    if (!LaunchClock::counter_ns(page, now)) [[unlikely]] return false;
    // A recalibration of the clock in between may have set it back by a fraction of a microsecond.
    record.call_ns = now > record.launch_ns ? now - record.launch_ns : 0;
  }
  record.phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kReturned), std::memory_order_release);
  thread.open_count = 0;
  ThreadState::StreamEntry& stream = *thread.open_stream;
  thread.open_stream = nullptr;
  if (thread.marks) {
    ++stream.unmarked;
    if (mark_is_due(stream, now)) [[unlikely]] mark(thread, stream);
  }
  return true;
}

}  // namespace gpuflight::capture
