// The words that every launch looks at, on two cache lines of one page. Between two launches the driver runs through
// megabytes of its own: each further line of ours would be a miss on each launch.
//
// Threads: any reads, relaxed or acquire; who writes which word is said beside it. The kernel wipes the page in a forked
// child (also after a raw clone), so zero there means "not this process's".
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuflight::capture {

struct HotPage {
  alignas(64) std::atomic<std::uint32_t> recording;  // 1: record launches (recorder)
  std::atomic<std::uint32_t> owned;                  // 1: this process made the recorder
  std::atomic<std::uint64_t> config_generation;      // KernelResolver: configurations cached by handle may be wrong
  std::atomic<std::uint32_t> stream_generation;      // StreamTable: ids cached by handle may be wrong
  std::atomic<std::uint32_t> graph_generation;       // GraphTable: likewise
  std::atomic<std::int32_t> captures;                // LaunchRecorder: graph captures now running in the process
  std::atomic<std::int64_t> in_doubt_until_ns;       // LaunchRecorder: captures may have begun unseen

  // LaunchClock
  alignas(64) std::atomic<std::uint32_t> counter;  // 1: the time stamp counter is used
  std::atomic<std::uint32_t> version;              // odd while the three change
  std::atomic<std::uint64_t> base_ticks;
  std::atomic<std::int64_t> base_ns;  // since t0
  std::atomic<std::uint64_t> scale;   // ns per tick, times 2^32

  static HotPage* create() noexcept;  // null: no memory
};
static_assert(sizeof(HotPage) == 128);

}  // namespace gpuflight::capture
