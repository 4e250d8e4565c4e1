// The rings: one for each thread slot, a chain of chunks from the shared pool. One producer (the thread that holds the
// slot), one consumer (the recorder thread). A slot that changes hands keeps its chain and its counter, so that
// sequence numbers never repeat and short-lived threads cost no chunk each.
//
// Threads: Ring's producer side on app threads: never blocks, never allocates. Cursor: recorder thread only.
// Invariants:
//  1. `counter` of a slot grows by one for every record asked for, also for one that found no room (a gap in seq is a
//     loss, and the other way round).
//  2. Records of one chunk have consecutive counters: a chunk is left only when it is full.
//  3. committed is published (release) after the record is whole; the consumer reads it with acquire.
//  4. next_chunk of a full chunk is published (release) after the new chunk's header is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "flight/chunk_pool.h"
#include "flight/flight_file.h"
#include "flight/layout.h"

namespace gpuflight::flight {

class RingSet;

// Producer side of one slot.
class alignas(64) Ring {
 public:
  // The place for the next record, or nullptr (the loss is counted). Fill it, then publish().
  Record* begin() noexcept {
    if (used_ == kRecordsPerChunk && !refill()) [[unlikely]] {
      drop();
      return nullptr;
    }
    return begin_in_chunk();
  }

  // The same where the chunk at hand has room; else nullptr and nothing is counted.
  Record* begin_in_chunk() noexcept {
    if (used_ == kRecordsPerChunk) [[unlikely]] return nullptr;
    Record* const record = &chunk_->records[used_];
    record->counter_low = static_cast<std::uint32_t>(counter_);
    return record;
  }

  // Where the next record goes: the recorder thread had that line last, and to get it back takes longer than a launch
  // should wait for. Nothing at a chunk's end.
  const void* next_place() const noexcept {
    return used_ == kRecordsPerChunk ? nullptr : static_cast<const void*>(&chunk_->records[used_]);
  }

  // Of the chunk at hand.
  std::uint32_t room() const noexcept { return kRecordsPerChunk - used_; }

  void publish() noexcept {
    ++counter_;
    ++used_;
    slot_->seen.store(counter_, std::memory_order_relaxed);
    chunk_->header.committed.store(used_, std::memory_order_release);
  }

  std::uint64_t counter() const noexcept { return counter_; }
  std::uint32_t slot_index() const noexcept { return slot_index_; }
  std::uint32_t tid() const noexcept { return tid_; }  // of the thread that has it
  ThreadSlot& slot() const noexcept { return *slot_; }

 private:
  friend class RingSet;

  bool refill() noexcept;
  void drop() noexcept {
    ++counter_;
    slot_->seen.store(counter_, std::memory_order_relaxed);
    slot_->dropped.store(slot_->dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  RingSet* set_ = nullptr;
  ThreadSlot* slot_ = nullptr;
  Chunk* chunk_ = nullptr;
  std::uint32_t chunk_index_ = kNoChunk;
  std::uint32_t used_ = kRecordsPerChunk;  // of chunk_; full: the next begin() takes a chunk
  std::uint64_t counter_ = 0;
  std::uint32_t slot_index_ = 0;
  std::uint32_t generation_ = 0;
  std::uint32_t tid_ = 0;
  std::atomic<std::uint32_t> first_chunk_{kNoChunk};  // where the consumer starts; set once
};

// All rings of a process: hands slots to threads and holds what the consumer needs. `acquire` and `release` lock (a
// thread's first and last event only).
class RingSet {
 public:
  explicit RingSet(FlightFile& file, Reuse reuse = Reuse::kNewestFirst);
  ~RingSet();  // for tests; a recorder's is never destroyed
  RingSet(const RingSet&) = delete;
  RingSet& operator=(const RingSet&) = delete;

  // A slot for the calling thread, or nullptr when all are taken. Allocates on a slot's first use.
  Ring* acquire(std::uint32_t tid, const char* thread_name) noexcept;
  void release(Ring* ring) noexcept;

  // Consumer side.
  std::uint32_t slots_used() const noexcept { return slots_used_.load(std::memory_order_acquire); }
  Ring* ring(std::uint32_t slot) const noexcept { return rings_[slot].load(std::memory_order_acquire); }
  std::uint32_t first_chunk(const Ring& ring) const noexcept {
    return ring.first_chunk_.load(std::memory_order_acquire);
  }
  std::uint32_t next_chunk(std::uint32_t chunk) const noexcept {
    return next_[chunk].load(std::memory_order_acquire);
  }
  Chunk& chunk(std::uint32_t index) const noexcept { return file_.chunks()[index]; }
  std::uint64_t first_counter(std::uint32_t chunk) const noexcept {
    return first_counter_[chunk].load(std::memory_order_relaxed);
  }
  // The slot that wrote the chunk last; 0: none has yet.
  std::uint32_t owner(std::uint32_t chunk) const noexcept { return owners_[chunk].load(std::memory_order_acquire); }
  bool give_back(std::uint32_t chunk) noexcept { return pool_.try_give(chunk); }
  void set_reuse(Reuse reuse) noexcept { pool_.set_reuse(reuse); }
  // Makes ready what the threads take next, twice as much as the `records` that they have made since the last call: a
  // page that the kernel has not mapped yet, or has written to disk since, costs whoever writes there first microseconds.
  void make_ready(std::uint64_t records) noexcept;
  std::uint32_t free_chunks() const noexcept { return pool_.free_count(); }

  std::uint64_t seen() const noexcept;     // records asked for by all slots
  std::uint64_t dropped() const noexcept;  // of these, that found no chunk

 private:
  friend class Ring;

  class Lock;
  FlightFile& file_;
  ChunkPool pool_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> next_;     // private copies of the chain
  // Written before next_ or first_chunk_ is published.
  std::unique_ptr<std::atomic<std::uint64_t>[]> first_counter_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> owners_;
  std::unique_ptr<std::atomic<Ring*>[]> rings_;
  std::unique_ptr<std::uint32_t[]> free_slots_;
  std::uint32_t free_count_ = 0;
  bool may_populate_ = true;
  std::atomic<std::uint32_t> slots_used_{1};  // slot 0 is the recorder's
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
};

inline bool Ring::refill() noexcept {
  const std::uint32_t fresh = set_->pool_.try_take();
  if (fresh == kNoChunk) return false;
  Chunk& chunk = set_->chunk(fresh);
  ChunkHeader& header = chunk.header;
  header.committed.store(0, std::memory_order_release);  // first: a reader of the file must not take old for new
  header.taken.store(0, std::memory_order_relaxed);
  header.next.store(0, std::memory_order_relaxed);
  header.first_counter.store(counter_, std::memory_order_relaxed);
  header.slot_plus_one.store(slot_index_ + 1, std::memory_order_release);
  // A live reader must not see a record of this life under the header of the life before.
  std::atomic_thread_fence(std::memory_order_release);
  // Owner 0 while it changes: whoever copies the chunk meanwhile sees that it changed under its hands.
  set_->owners_[fresh].store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  set_->first_counter_[fresh].store(counter_, std::memory_order_relaxed);
  set_->owners_[fresh].store(slot_index_, std::memory_order_release);
  set_->next_[fresh].store(kNoChunk, std::memory_order_relaxed);
  if (chunk_index_ == kNoChunk) {
    first_chunk_.store(fresh, std::memory_order_release);
  } else {
    chunk_->header.next.store(fresh + 1, std::memory_order_relaxed);
    set_->next_[chunk_index_].store(fresh, std::memory_order_release);
  }
  chunk_ = &chunk;
  chunk_index_ = fresh;
  used_ = 0;
  slot_->current_chunk.store(fresh + 1, std::memory_order_relaxed);
  return true;
}

}  // namespace gpuflight::flight
