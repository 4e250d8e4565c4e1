// Driver handles: addresses of slots in one reserved range per kind. A handle can be checked without a lock and without
// touching foreign memory, and a freed one is given out again by the very next create, as hostile as the real driver's.
// Threads: any. `find` neither blocks nor allocates; `create` and `destroy` take the pool's lock.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace gpuflight::sim {

template <class T, std::size_t Capacity>
class HandlePool {
 public:
  template <class... Args>
  T* create(Args&&... args) {
    Slot* slot = take_slot();
    if (slot == nullptr) return nullptr;
    T* object = new (slot->bytes) T(std::forward<Args>(args)...);
    slot->live.store(true, std::memory_order_release);
    return object;
  }

  void destroy(T* object) {
    Slot* slot = reinterpret_cast<Slot*>(object);
    slot->live.store(false, std::memory_order_relaxed);
    object->~T();
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
  }

  // nullptr: not a live handle of this kind.
  T* find(const void* handle) const {
    const std::uintptr_t base = base_.load(std::memory_order_acquire);
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(handle) - base;
    if (base == 0 || offset >= Capacity * sizeof(Slot) || offset % sizeof(Slot) != 0) return nullptr;
    Slot* slot = reinterpret_cast<Slot*>(base + offset);
    return slot->live.load(std::memory_order_acquire) ? reinterpret_cast<T*>(slot->bytes) : nullptr;
  }

 private:
  struct Slot {
    alignas(64) unsigned char bytes[sizeof(T)];  // first: the slot's address is the object's
    std::atomic<bool> live;
  };

  Slot* take_slot() {
    const std::lock_guard lock(mutex_);
    if (base_.load(std::memory_order_relaxed) == 0) {
      void* range = mmap(nullptr, Capacity * sizeof(Slot), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (range == MAP_FAILED) return nullptr;
      base_.store(reinterpret_cast<std::uintptr_t>(range), std::memory_order_release);
    }
    if (!free_.empty()) {
      Slot* slot = free_.back();  // last freed, first reused
      free_.pop_back();
      return slot;
    }
    if (used_ == Capacity) return nullptr;
    Slot* slot = reinterpret_cast<Slot*>(base_.load(std::memory_order_relaxed)) + used_++;
#ifdef __SANITIZE_ADDRESS__
    // What a host leaves open at its exit is held by memory the leak checker would not look into.
    __lsan_register_root_region(slot, sizeof(Slot));
#endif
    return slot;
  }

  std::atomic<std::uintptr_t> base_{0};
  std::mutex mutex_;
  std::vector<Slot*> free_;
  std::size_t used_ = 0;
};

}  // namespace gpuflight::sim
