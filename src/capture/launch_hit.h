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

// The time stamp counter costs 30 ns a reading within a launch on an H200's host (17 to 20 one after the other), half of
// all that we add. A source without a floor of its own times the return of one launch in kTimeReturnEvery where a thread
// launches faster than one in kDenseNs, and of every other: a launch that blocks ends such a burst.
inline constexpr std::uint32_t kTimeReturnEvery = 8;
static_assert(kSampleEvery % kTimeReturnEvery == 0);
inline constexpr std::int64_t kDenseNs = 10'000;

// ThreadState::entered.
inline std::uint32_t to_entered(std::int64_t ns) noexcept { return static_cast<std::uint32_t>(ns >> 6); }

inline void open_record(flight::Record& record, const ThreadState& thread, flight::RecordKind kind) noexcept {
  record.kind = static_cast<std::uint8_t>(kind);
  record.thread = thread.tid;
  record.call_ns = 0;
  record.status = 0;
}

// More than 65,535 blocks in y or z are refused by the driver; the record says "too many" rather than a wrong number.
inline std::uint16_t to_u16(std::uint32_t n) noexcept { return static_cast<std::uint16_t>(n < 0xFFFF ? n : 0xFFFF); }

inline void fill_kernel_launch(flight::Record& record, const ThreadState& thread, std::uint32_t grid_x,
                               std::uint32_t grid_y, std::uint32_t grid_z, std::uint32_t config, std::uint32_t stream,
                               std::uint32_t correlation, std::uint16_t flags, std::int64_t now) noexcept {
  record.flags = flags;
  record.config = config;
  record.launch_ns = now;
  record.grid_x = grid_x;
  record.grid_y = to_u16(grid_y);
  record.grid_z = to_u16(grid_z);
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

// `Geometry` has gridDimX to blockDimZ, sharedMemBytes and hStream as the driver's own structs name them. `kind`: of
// StreamEntry. `dense`: launches of a thread that follow one another faster than that (to_entered) have not all their
// return timed; 0: all have.
template <class Geometry>
[[gnu::always_inline]] inline bool enter_hit(const HotPage& page, ThreadState& thread, const Geometry& launch,
                                             const void* function, ThreadState::StreamEntry& stream,
                                             std::uint32_t context_uid, std::uint32_t kind, std::uint32_t correlation,
                                             std::uint32_t dense) noexcept {
  if ((thread.open_count != 0) | (thread.ring == nullptr) | (page.captures.load(std::memory_order_relaxed) > 0) |
      (thread.config_generation != page.config_generation.load(std::memory_order_acquire)) |
      (thread.stream_generation != page.stream_generation.load(std::memory_order_acquire))) [[unlikely]] {
    return false;
  }
  auto& entry =
      thread.launches[ThreadState::launch_slot(function, context_uid, launch.blockDimX, launch.blockDimY,
                                               launch.blockDimZ, launch.sharedMemBytes)][0];
  if ((entry.key.function != function) | (entry.key.context_uid != context_uid) |
      (entry.key.block_x != launch.blockDimX) | (entry.key.block_y != launch.blockDimY) |
      (entry.key.block_z != launch.blockDimZ) | (entry.key.dyn_shared_bytes != launch.sharedMemBytes) |
      !entry.valid | !entry.plain | (entry.config == 0) | (entry.until_timed == 1) | (stream.stream != launch.hStream) |
      (stream.context_uid != context_uid) | (stream.kind != kind) |
      (stream.sure_at != page.doubts.load(std::memory_order_relaxed))) [[unlikely]] {
    return false;
  }
  std::int64_t now;
  if (!LaunchClock::counter_ns(page, now)) [[unlikely]] return false;
  if (mark_is_due_before(stream, now)) [[unlikely]] return false;
  flight::Record* const record = thread.ring->begin_in_chunk();
  if (record == nullptr) [[unlikely]] return false;
  open_record(*record, thread, flight::RecordKind::kKernelLaunch);
  const std::uint32_t entered = to_entered(now);
  thread.untimed = (entered - thread.entered < dense) & (++thread.sample % kTimeReturnEvery != 0);
  thread.entered = entered;
  fill_kernel_launch(*record, thread, launch.gridDimX, launch.gridDimY, launch.gridDimZ, entry.config, stream.id,
                     correlation, thread.untimed ? flight::kFlagCallUntimed : 0, now);
  thread.ring->publish();
  // While the driver works: a program that launches in a loop is back here at once, and what the driver then waits for
  // with its first lock would be this line.
  if (const void* const place = thread.ring->next_place()) [[likely]] prefetch_for_write(place);
  --entry.until_timed;
  thread.open[0] = record;
  thread.open_count = 1;
  thread.open_stream = &stream;
  if (thread.sample % kSampleEvery == 0) [[unlikely]] {
    std::int64_t end;
    if (LaunchClock::counter_ns(page, end)) thread.sampled_enter_ns = end - now;
  }
  return true;
}

// The return of a launch that succeeded. `mark` (thread, stream) is called where a mark is due behind it.
template <class Mark>
[[gnu::always_inline]] inline bool return_hit(const HotPage& page, ThreadState& thread, std::int32_t status,
                                              Mark&& mark) noexcept {
  if ((thread.open_count != 1) | (status != 0) | (thread.open_stream == nullptr) |
      (thread.sample % kSampleEvery == 0)) [[unlikely]] {
    return false;
  }
  flight::Record& record = *thread.open[0];
  std::int64_t now = record.launch_ns;
  if (!thread.untimed) {
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
