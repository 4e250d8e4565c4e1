// The pool of ring chunks: which are free, and in what order they are used again. First in, first out, so that a chunk
// whose lines are written stays readable in the file for as long as possible.
//
// Threads: any app thread takes (lock-free, never blocks), only the recorder thread gives back. No allocation after
// construction. All state is private memory: the mapped file is never believed.
//
// Bounded queue with a turn number per cell (D. Vyukov's). Invariants:
//  1. A chunk index is either in the queue or held by exactly one ring.
//  2. cell.turn == position: the cell may be filled by the giver of that position;
//     cell.turn == position + 1: it may be taken by the taker of that position.
//  3. The queue has room for all chunks; try_give() refuses only while a taker that claimed the same cell one round
//     ago has not finished taking.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace gpuflight::flight {

inline constexpr std::uint32_t kNoChunk = ~0u;

class ChunkPool {
 public:
  explicit ChunkPool(std::uint32_t chunk_count)
      : mask_(std::bit_ceil(chunk_count < 2 ? 2u : chunk_count) - 1), cells_(new Cell[mask_ + 1]) {
    for (std::uint64_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < chunk_count; ++i) try_give(i);
  }

  // A free chunk, or kNoChunk.
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

  // False: not now, ask again later.
  bool try_give(std::uint32_t chunk) noexcept {
    const std::uint64_t position = give_.load(std::memory_order_relaxed);
    Cell& cell = cells_[position & mask_];
    if (cell.turn.load(std::memory_order_acquire) != position) return false;
    cell.chunk = chunk;
    cell.turn.store(position + 1, std::memory_order_release);
    give_.store(position + 1, std::memory_order_relaxed);
    return true;
  }

  // As of now; for decisions that may be a little wrong.
  std::uint32_t free_count() const noexcept {
    const auto given = give_.load(std::memory_order_relaxed), taken = take_.load(std::memory_order_relaxed);
    return given > taken ? static_cast<std::uint32_t>(given - taken) : 0;
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

}  // namespace gpuflight::flight
