#include "flight/ring.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sched.h>

namespace gpuflight::flight {

// A spin lock, since it must also work where a pthread mutex may be in an unknown state (after fork in a child it is
// simply abandoned with the whole RingSet). Held for a few instructions.
class RingSet::Lock {
 public:
  explicit Lock(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

RingSet::RingSet(FlightFile& file, Reuse reuse)
    : file_(file),
      pool_(file.chunk_count(), reuse),
      next_(new std::atomic<std::uint32_t>[file.chunk_count()]),
      first_counter_(new std::atomic<std::uint64_t>[file.chunk_count()]),
      owners_(new std::atomic<std::uint32_t>[file.chunk_count()]),
      rings_(new std::atomic<Ring*>[event::kMaxThreadSlots]),
      free_slots_(new std::uint32_t[event::kMaxThreadSlots]()) {
  for (std::uint32_t i = 0; i < file.chunk_count(); ++i) {
    next_[i].store(kNoChunk, std::memory_order_relaxed);
    first_counter_[i].store(0, std::memory_order_relaxed);
    owners_[i].store(0, std::memory_order_relaxed);
  }
  for (std::uint32_t i = 0; i < event::kMaxThreadSlots; ++i) rings_[i].store(nullptr, std::memory_order_relaxed);
}

RingSet::~RingSet() {
  for (std::uint32_t i = 0; i < event::kMaxThreadSlots; ++i) delete rings_[i].load(std::memory_order_relaxed);
}

Ring* RingSet::acquire(std::uint32_t tid, const char* thread_name) noexcept {
  Ring* const spare = new (std::nothrow) Ring;  // outside the lock; freed again when an old slot is at hand
  Ring* ring = nullptr;
  bool used_spare = false;
  {
    Lock lock(lock_);
    const std::uint32_t next_new = slots_used_.load(std::memory_order_relaxed);
    if (free_count_ > 0) {
      ring = rings_[free_slots_[--free_count_]].load(std::memory_order_relaxed);
    } else if (next_new < event::kGpuSlot && spare != nullptr) {
      ring = spare;
      used_spare = true;
      ring->set_ = this;
      ring->slot_index_ = next_new;
      ring->slot_ = &file_.slots()[next_new];
      rings_[next_new].store(ring, std::memory_order_release);
      slots_used_.store(next_new + 1, std::memory_order_release);
    }
    if (ring != nullptr) {
      ThreadSlot& slot = *ring->slot_;
      ring->tid_ = tid;
      ++ring->generation_;
      slot.generation.store(ring->generation_, std::memory_order_relaxed);
      std::memset(slot.name, 0, sizeof slot.name);
      std::strncpy(slot.name, thread_name, sizeof slot.name - 1);
      slot.owner_tid.store(tid, std::memory_order_release);
    }
  }
  if (!used_spare) delete spare;
  return ring;
}

void RingSet::release(Ring* ring) noexcept {
  Lock lock(lock_);
  ring->slot_->owner_tid.store(0, std::memory_order_release);
  free_slots_[free_count_++] = ring->slot_index_;
}

void RingSet::make_ready(std::uint64_t records) noexcept {
  // 8 MiB; and of one call, during which no thread can map or unmap memory, 256 KiB.
  constexpr std::uint64_t kLeast = 4, kMost = 512;
  constexpr std::uint32_t kMostAtOnce = 16;
  if (records == 0 || !may_populate_) return;
  std::uint32_t first = 0, count = 0;
  const auto populate = [&] { may_populate_ = may_populate_ && (count == 0 || file_.populate(first, count)); };
  pool_.each_next(static_cast<std::uint32_t>(std::clamp(2 * records / kRecordsPerChunk, kLeast, kMost)),
                  [&](std::uint32_t chunk) {
                    // Upwards where the oldest is used first, downwards where the newest is.
                    const bool behind = chunk == first + count, before = chunk + 1 == first;
                    if (count > 0 && count < kMostAtOnce && (behind || before)) {
                      if (before) --first;
                      ++count;
                      return;
                    }
                    populate();
                    first = chunk;
                    count = 1;
                  });
  populate();
}

std::uint64_t RingSet::seen() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 1, n = slots_used(); i < n; ++i) {
    sum += file_.slots()[i].seen.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t RingSet::dropped() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 1, n = slots_used(); i < n; ++i) {
    sum += file_.slots()[i].dropped.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace gpuflight::flight
