// The pool of ring chunks: which are free, and in what order they are used again.
//   Newest first (stream mode): the few chunks in use stay in the processor's cache and their pages mapped. Going round
//   the whole pool instead cost a cache miss each record and a page fault each 64.
//   Oldest first (black box): a chunk stays readable for as long as possible, so that the file ends with the last events.
// The order may change while it is in use: what was given back for the one is used up before the other counts alone.
//
// Threads: any app thread takes (lock-free, never blocks), only the recorder thread gives back. No allocation after
// construction. All state is private memory: the mapped file is never believed.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace gpuflight::flight {

inline constexpr std::uint32_t kNoChunk = ~0u;

enum class Reuse { kNewestFirst, kOldestFirst };

// Bounded queue with a turn number per cell (D. Vyukov's). Invariants:
//  1. A chunk index is either in the queue or held by exactly one ring.
//  2. cell.turn == position: the cell may be filled by the giver of that position;
//     cell.turn == position + 1: it may be taken by the taker of that position.
//  3. The queue has room for all chunks; try_give() refuses only while a taker that claimed the same cell one round
//     ago has not finished taking.
class ChunkQueue {
 public:
  explicit ChunkQueue(std::uint32_t chunk_count)
      : mask_(std::bit_ceil(chunk_count < 2 ? 2u : chunk_count) - 1), cells_(new Cell[mask_ + 1]) {
    for (std::uint64_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  std::uint32_t try_take() noexcept {
    std::uint64_t position = take_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[position & mask_];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == position + 1) {
        if (take_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          const std::uint32_t chunk = cell.chunk;
          cell.turn.store(position + mask_ + 1, std::memory_order_release);
          return chunk;
        }
      } else if (static_cast<std::int64_t>(turn - (position + 1)) < 0) {
        return kNoChunk;
      } else {
        position = take_.load(std::memory_order_relaxed);
      }
    }
  }

  bool try_give(std::uint32_t chunk) noexcept {
    const std::uint64_t position = give_.load(std::memory_order_relaxed);
    Cell& cell = cells_[position & mask_];
    if (cell.turn.load(std::memory_order_acquire) != position) return false;
    cell.chunk = chunk;
    cell.turn.store(position + 1, std::memory_order_release);
    give_.store(position + 1, std::memory_order_relaxed);
    return true;
  }

  // At most `most` of those that are taken next; for the giver. Some may be taken meanwhile.
  template <class Visit>
  std::uint32_t each_next(std::uint32_t most, Visit&& visit) const {
    const std::uint64_t position = take_.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < most; ++i) {
      const Cell& cell = cells_[(position + i) & mask_];
      if (cell.turn.load(std::memory_order_acquire) != position + i + 1) return i;
      visit(cell.chunk);
    }
    return most;
  }

 private:
  struct Cell {
    std::atomic<std::uint64_t> turn;
    std::uint32_t chunk = kNoChunk;
  };
  const std::uint64_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<std::uint64_t> take_{0};
  alignas(64) std::atomic<std::uint64_t> give_{0};
};

// Linked list of indices (R. K. Treiber's stack). The head carries a number that grows with each change, so that a taker
// who was asleep while its chunk was taken and given back again notices.
class ChunkStack {
 public:
  explicit ChunkStack(std::uint32_t chunk_count) : below_(new std::atomic<std::uint32_t>[chunk_count]) {
    for (std::uint32_t i = 0; i < chunk_count; ++i) below_[i].store(kNoChunk, std::memory_order_relaxed);
  }

  std::uint32_t try_take() noexcept {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (index(head) != kNoChunk) {
      const std::uint32_t below = below_[index(head)].load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, pack(below, head), std::memory_order_acquire)) return index(head);
    }
    return kNoChunk;
  }

  void give(std::uint32_t chunk) noexcept {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      below_[chunk].store(index(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, pack(chunk, head), std::memory_order_release, std::memory_order_relaxed));
  }

  template <class Visit>
  std::uint32_t each_next(std::uint32_t most, Visit&& visit) const {
    std::uint32_t chunk = index(head_.load(std::memory_order_acquire)), count = 0;
    for (; count < most && chunk != kNoChunk; ++count) {
      visit(chunk);
      chunk = below_[chunk].load(std::memory_order_relaxed);
    }
    return count;
  }

 private:
  static std::uint32_t index(std::uint64_t head) { return static_cast<std::uint32_t>(head); }
  static std::uint64_t pack(std::uint32_t chunk, std::uint64_t before) {
    return ((before >> 32) + 1) << 32 | chunk;
  }

  const std::unique_ptr<std::atomic<std::uint32_t>[]> below_;
  alignas(64) std::atomic<std::uint64_t> head_{kNoChunk};
};

class ChunkPool {
 public:
  ChunkPool(std::uint32_t chunk_count, Reuse reuse) : reuse_(reuse), queue_(chunk_count), stack_(chunk_count) {
    for (std::uint32_t i = 0; i < chunk_count; ++i) {
      // Both hand out chunk 0 first.
      if (reuse == Reuse::kOldestFirst) queue_.try_give(i);
      if (reuse == Reuse::kNewestFirst) stack_.give(chunk_count - 1 - i);
    }
    free_.store(chunk_count, std::memory_order_relaxed);
  }

  // A free chunk, or kNoChunk.
  std::uint32_t try_take() noexcept {
    std::uint32_t chunk = stack_.try_take();
    if (chunk == kNoChunk) chunk = queue_.try_take();
    if (chunk != kNoChunk) free_.fetch_sub(1, std::memory_order_relaxed);
    return chunk;
  }

  // False: not now, ask again later.
  bool try_give(std::uint32_t chunk) noexcept {
    if (reuse_.load(std::memory_order_relaxed) == Reuse::kNewestFirst) {
      stack_.give(chunk);
    } else if (!queue_.try_give(chunk)) {
      return false;
    }
    free_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  // At most `most` of those that are taken next; for the giver. Some may be taken meanwhile.
  template <class Visit>
  void each_next(std::uint32_t most, Visit&& visit) const {
    const std::uint32_t newest = stack_.each_next(most, visit);
    queue_.each_next(most - newest, visit);
  }

  void set_reuse(Reuse reuse) noexcept { reuse_.store(reuse, std::memory_order_relaxed); }

  // As of now; for decisions that may be a little wrong.
  std::uint32_t free_count() const noexcept {
    const std::int32_t count = free_.load(std::memory_order_relaxed);
    return count > 0 ? static_cast<std::uint32_t>(count) : 0;
  }

 private:
  std::atomic<Reuse> reuse_;
  ChunkQueue queue_;
  ChunkStack stack_;
  std::atomic<std::int32_t> free_{0};
};

}  // namespace gpuflight::flight
