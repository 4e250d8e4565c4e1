// The words that every launch looks at, on one cache line of a page of its own. Between two launches the driver runs
// through megabytes of its own: each further line of ours would be a miss on each launch.
//
// Threads: any reads, relaxed or acquire; who writes which word is said beside it. The kernel wipes the page in a forked
// child (also after a raw clone), so zero there means "not this process's".
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuflight::capture {

struct alignas(64) HotPage {
  std::atomic<std::uint32_t> recording;          // 1: record launches (recorder)
  std::atomic<std::int32_t> captures;            // LaunchRecorder: graph captures now running in the process
  std::atomic<std::uint32_t> doubts;             // LaunchRecorder: how often a stream may have begun to be captured unseen
  std::atomic<std::uint32_t> config_generation;  // KernelResolver: configurations cached by handle may be wrong
  std::atomic<std::uint32_t> stream_generation;  // StreamTable: ids cached by handle may be wrong
  std::atomic<std::uint32_t> graph_generation;   // GraphTable: likewise
  // LaunchClock
  std::atomic<std::uint32_t> version;  // odd while the three change
  std::atomic<std::uint32_t> burst_generation;  // what a burst of launches goes by may have changed (end_bursts)
  std::atomic<std::uint64_t> base_ticks;
  std::atomic<std::int64_t> base_ns;   // since t0
  std::atomic<std::uint64_t> scale;    // ns per tick, times 2^32; 0: the time stamp counter is not used
  std::atomic<std::uint32_t> owned;    // 1: this process made the recorder
  std::atomic<std::uint32_t> context_generation;  // ContextTable: ids cached by handle may be wrong

  // After a change of `recording` to 0, of `captures` from 0, of the generations of configurations and streams, when the
  // clock has been held against the counter, and where launches are to lie on the right side of something (a fork, a
  // change of level).
  void end_bursts() noexcept { burst_generation.fetch_add(1, std::memory_order_acq_rel); }

  static HotPage* create() noexcept;  // null: no memory
};
static_assert(sizeof(HotPage) == 64);

}  // namespace gpuflight::capture
