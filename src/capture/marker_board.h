// How far the GPU has come, as far as the host can see it without asking: after some launches a stream is told to write
// a number into a page of ours (cuStreamWriteValue32). What stands there survives a device fault and needs no call to
// the driver to be read, so nothing of the host's is ever waited for or queried.
//
// Threads: `track_for` and `mark` on app threads, right after a launch of theirs returned, never while a graph capture
// runs; `track_for` on the first mark of a (thread, stream) pair only: locks, may register a page with the driver.
// `mark` makes one driver call (1.0 us on an H200) and is rate-limited by the caller. `poll` on the recorder thread.
// Owned memory is never unmapped: a stream may still write into it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "capture/driver_api.h"

namespace gpuflight::capture {

class MarkerBoard {
 public:
  // One word of one page: marks of one thread in one stream, so that they complete in the order of their numbers.
  struct Track {
    static constexpr std::uint32_t kRemembered = 32;  // marks whose time is kept; more are never in flight unanswered

    std::atomic<std::uint32_t> stream{0};  // StreamId; 0: free
    std::atomic<std::uint32_t> submitted{0};
    std::atomic<bool> retired{false};  // its thread is gone
    std::array<std::atomic<std::int64_t>, kRemembered> marked_ns{};
    std::uint32_t seen = 0;  // recorder thread's
  };
  static constexpr std::uint32_t kTracksPerBlock = 1024;  // one page of words
  static constexpr std::uint32_t kMaxBlocks = 64;         // contexts
  static constexpr std::uint32_t kNoTrack = ~0u;

  explicit MarkerBoard(const DriverApi& driver) : driver_(driver) {}

  // kNoTrack: no room, or the driver cannot do it here.
  std::uint32_t track_for(std::uint32_t stream, std::uint32_t context_uid) noexcept;
  void mark(std::uint32_t track, const void* stream, bool per_thread_default, std::int64_t now_ns) noexcept;
  void retire(std::uint32_t track) noexcept { at(track).retired.store(true, std::memory_order_release); }

  // The context is being destroyed: its marks will not come any more.
  void on_context_destroyed(std::uint32_t context_uid) noexcept;

  // Calls advanced(stream, finished_ns) for every track that has moved since the last poll, and outstanding(stream,
  // oldest_unanswered_ns, newest_ns) for every one with marks unanswered.
  template <class Advanced, class Outstanding>
  void poll(Advanced&& advanced, Outstanding&& outstanding) noexcept {
    const std::uint32_t blocks = blocks_used_.load(std::memory_order_acquire);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      Block& block = *blocks_[b].load(std::memory_order_acquire);
      // What was answered before the context went is looked at still: its error may be about to be told.
      if (block.dead.load(std::memory_order_acquire)) {
        if (block.last_polls == 0) continue;
        --block.last_polls;
      }
      const std::uint32_t used = block.used.load(std::memory_order_acquire);
      for (std::uint32_t i = 0; i < used; ++i) {
        Track& track = block.tracks[i];
        const std::uint32_t stream = track.stream.load(std::memory_order_acquire);
        if (stream == 0) continue;
        const std::uint32_t answered = __atomic_load_n(&block.words[i], __ATOMIC_ACQUIRE);
        const std::uint32_t submitted = track.submitted.load(std::memory_order_acquire);
        // The word is written from outside this program: a value that was never submitted is not believed.
        if (answered - track.seen <= submitted - track.seen && answered != track.seen) {
          track.seen = answered;
          advanced(stream, track.marked_ns[answered % Track::kRemembered].load(std::memory_order_relaxed));
        }
        if (track.seen != submitted) {
          outstanding(stream, track.marked_ns[(track.seen + 1) % Track::kRemembered].load(std::memory_order_relaxed),
                      track.marked_ns[submitted % Track::kRemembered].load(std::memory_order_relaxed));
        } else if (track.retired.load(std::memory_order_acquire)) {
          recycle(b, i);
        }
      }
    }
  }

 private:
  struct Block {
    std::uint32_t context_uid = 0;
    std::uint32_t* words = nullptr;  // written by the GPU
    CUdeviceptr device_words = 0;
    std::atomic<bool> dead{false};
    std::uint32_t last_polls = 4;  // two rounds of the recorder's; its own
    std::atomic<std::uint32_t> used{0};
    std::vector<std::uint32_t> free;  // under the lock
    std::array<Track, kTracksPerBlock> tracks;
  };

  Track& at(std::uint32_t track) noexcept {
    return blocks_[track / kTracksPerBlock].load(std::memory_order_acquire)->tracks[track % kTracksPerBlock];
  }
  std::uint32_t block_for_locked(std::uint32_t context_uid) noexcept;
  bool make_block(std::uint32_t context_uid) noexcept;
  void recycle(std::uint32_t block, std::uint32_t index) noexcept;

  const DriverApi& driver_;
  std::mutex mutex_;
  std::array<std::atomic<Block*>, kMaxBlocks> blocks_{};
  std::atomic<std::uint32_t> blocks_used_{0};
  std::vector<std::uint32_t> refused_contexts_;
};

}  // namespace gpuflight::capture
