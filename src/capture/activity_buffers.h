// The memory that CUPTI writes its records into: who holds which buffer, how many records the next one may take, and
// the bound. Memory of our own mapping, recycled; a buffer lies behind its header, so that the address CUPTI
// gives back finds it.
//
// Threads: hand_out and complete on any thread, inside CUPTI: no lock, no blocking; hand_out maps memory where no ready
// buffer is left. take_completed, recycle and replenish on the recorder thread. Never shrinks below what CUPTI holds.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuflight::capture {

// How many records a buffer may take before CUPTI has to hand it back. CUPTI keeps a buffer until each of its records
// has ended, and where one kernel follows the other the last one in it never has. So a buffer is to be full within
// kHeldNs at the rate at which the asking thread has filled its last one, and its work is to run within kHeldNs at the
// rate at which that of the last one ran: a thread may launch in a millisecond what takes the GPU a minute. (CUPTI has
// a buffer for each launching thread, and it is that thread that asks; where CUPTI's own thread asks for all, the rates
// are those of all together.)
//
// Threads: grant and filled on any, ran on the recorder thread. A wrong estimate, after a race or of two threads in one
// slot, lasts a few buffers.
class BufferRates {
 public:
  static constexpr std::int64_t kHeldNs = 100'000'000;
  static constexpr std::uint32_t kFirst = 8;     // nothing is known of the thread
  static constexpr std::uint32_t kFewest = 1;    // less than two per second: each line at once
  static constexpr std::uint32_t kMostGrowth = 16;

  struct Grant {
    std::uint32_t records = 0;  // as CUPTI takes it; 0: as many as fit
    std::uint32_t slot = 0;
    std::uint32_t serial = 0;
  };

  explicit BufferRates(std::uint32_t capacity, std::int64_t held_ns = kHeldNs) noexcept
      : capacity_(capacity), held_ns_(held_ns) {}

  Grant grant(std::uint64_t thread, std::int64_t now_ns) noexcept;
  // The buffer of that grant came back with so many.
  void filled(const Grant& grant, std::uint32_t records) noexcept;
  // Its work ran from the first start to the last end, on whatever clock.
  void ran(const Grant& grant, std::uint32_t records, std::int64_t start_ns, std::int64_t end_ns) noexcept;

 private:
  static constexpr std::uint32_t kSlots = 256;
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> thread{0};
    std::atomic<std::int64_t> asked_ns{0};
    std::atomic<std::int64_t> ended_ns{INT64_MIN};  // of the work of the buffer before
    std::atomic<std::uint32_t> serial{0};
    std::atomic<std::uint32_t> granted{0};
    std::atomic<std::uint32_t> filled{0};  // of the last grant; 0: still out, so taken as full
    std::atomic<std::uint32_t> runs{0};    // as many as run within kHeldNs; 0: not known
    std::atomic<std::uint32_t> heard{0};   // serial when that was learned
  };

  static constexpr std::uint32_t kUnheard = 8;  // grants without a word of how their work ran

  std::uint32_t allowed(std::uint32_t runs, const Slot& slot) const noexcept;
  std::uint32_t towards(std::uint32_t from, std::int64_t took_ns) const noexcept;

  const std::uint32_t capacity_;
  const std::int64_t held_ns_;
  std::array<Slot, kSlots> slots_;
};

// Records that were given up: of work that a thread asked for by itself, and of nodes of graphs.
struct RecordCounts {
  std::uint64_t single = 0, nodes = 0;
};

// What stands in a buffer; null: judged by its size. Called on any thread.
struct RecordCounter {
  RecordCounts (*count)(const void* context, std::uint8_t* data, std::size_t valid_bytes) noexcept = nullptr;
  const void* context = nullptr;
};

class ActivityBuffers {
 public:
  // What a record takes at least, about: a kernel's. Only estimates rest on it.
  static constexpr std::size_t kRecordBytes = 208;

  struct alignas(64) Buffer {
    Buffer* next = nullptr;
    std::size_t mapped_bytes = 0;
    std::size_t valid_bytes = 0;
    bool complete = false;
    BufferRates::Grant grant;

    std::uint8_t* data() noexcept { return reinterpret_cast<std::uint8_t*>(this + 1); }
    std::size_t capacity() const noexcept { return mapped_bytes - sizeof(Buffer); }
  };

  ActivityBuffers(std::size_t buffer_bytes, std::size_t memory_bound, RecordCounter counter = {}) noexcept;
  ~ActivityBuffers();
  ActivityBuffers(const ActivityBuffers&) = delete;
  ActivityBuffers& operator=(const ActivityBuffers&) = delete;

  // Maps the buffers that are kept for a system without memory, and the first ready ones.
  bool reserve() noexcept;

  // The bound is for what is with CUPTI: beyond it a buffer is handed out all the same, and counted, since CUPTI before
  // 12.9 crashes without. As much again may be complete and not read yet; beyond that the latest of those is used again,
  // and what was in it is counted as unread. nullptr only where the system has no memory left and the reserve is used up.
  Buffer* hand_out(std::uint64_t thread, std::int64_t now_ns) noexcept;
  void complete(std::uint8_t* data, std::size_t valid_bytes) noexcept;

  // All that are complete by now, oldest first, linked by `next`.
  Buffer* take_completed() noexcept;
  void recycle(Buffer* buffer) noexcept;
  void ran(const Buffer& buffer, std::uint32_t records, std::int64_t start_ns, std::int64_t end_ns) noexcept {
    rates_.ran(buffer.grant, records, start_ns, end_ns);
  }
  // Sees to it that the next requests find ready buffers; gives back what nobody has needed for long.
  void replenish() noexcept;

  std::uint64_t requested() const noexcept { return requested_.load(std::memory_order_relaxed); }
  RecordCounts unread() const noexcept {
    return {unread_single_.load(std::memory_order_relaxed), unread_nodes_.load(std::memory_order_relaxed)};
  }
  std::uint64_t over_bound() const noexcept { return over_bound_.load(std::memory_order_relaxed); }
  std::size_t bytes_complete() const noexcept { return complete_bytes_.load(std::memory_order_relaxed); }
  std::size_t bytes_held() const noexcept { return bytes_held_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kReadySlots = 1024;  // 128 MB
  static constexpr std::size_t kReadyAtLeast = 4;
  static constexpr std::size_t kReserve = 4;
  static constexpr std::uint32_t kTrimEvery = 64;  // calls of replenish

  Buffer* map(bool touch) noexcept;
  Buffer* take_back() noexcept;
  void unmap(Buffer* buffer) noexcept;
  bool put_ready(Buffer* buffer) noexcept;
  Buffer* take_ready(std::size_t from) noexcept;
  std::size_t ready() const noexcept {
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(ready_count_.load(std::memory_order_relaxed), 0));
  }
  void trim() noexcept;
  template <std::size_t kCount>
  static Buffer* take_one(std::array<std::atomic<Buffer*>, kCount>& slots, std::size_t from) noexcept;

  const std::size_t mapped_bytes_;
  const std::size_t memory_bound_;
  const RecordCounter counter_;
  BufferRates rates_;
  std::array<std::atomic<Buffer*>, kReadySlots> ready_{};
  std::array<std::atomic<Buffer*>, kReserve> reserve_{};
  std::atomic<std::ptrdiff_t> ready_count_{0};
  std::atomic<std::uint32_t> ready_hint_{0};
  std::atomic<Buffer*> completed_{nullptr};  // newest first
  std::atomic<std::uint64_t> requested_{0};
  std::atomic<std::uint64_t> over_bound_{0};
  std::atomic<std::uint64_t> unread_single_{0}, unread_nodes_{0};
  std::atomic<std::ptrdiff_t> out_bytes_{0};     // with CUPTI
  std::atomic<std::size_t> complete_bytes_{0};  // not recycled yet
  std::atomic<std::size_t> bytes_held_{0};

  // Recorder thread only.
  std::size_t unused_ = SIZE_MAX;  // fewest ready since the last trim: so many were of no use
  std::size_t put_hint_ = 0;
  std::uint32_t until_trim_ = kTrimEvery;
};

}  // namespace gpuflight::capture
