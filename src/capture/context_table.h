// Contexts by handle, for sources that are not told their ids: each gets a small id for good; a handle used again after
// its destruction is a new context.
//
// Threads: any, on a miss of the thread's own cache: locks, allocates, asks the driver outside the lock. The caller has
// set the thread's `inside` guard.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "capture/driver_api.h"
#include "capture/driver_call_reader.h"
#include "capture/hot_page.h"

namespace gpuflight::capture {

class ContextTable {
 public:
  ContextTable(const DriverApi& driver, HotPage& page) : driver_(driver), generation_(page.context_generation) {}

  // By another source's ids from here on, so that a context keeps its id when sources change.
  void number_by(ContextSource& other) noexcept { other_.store(&other, std::memory_order_release); }

  std::uint32_t uid_of(CUcontext context) noexcept;  // 0: null, or no memory
  std::int32_t device_of(CUcontext context) noexcept;  // -1: cannot be told

  // Forgets the handle; its id, or 0 where it was not known.
  std::uint32_t on_destroyed(CUcontext context) noexcept;
  std::vector<CUcontext> of_device(std::int32_t device) noexcept;

  // Grows when an id in some thread's cache may be wrong.
  std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }

 private:
  struct Entry {
    std::uint32_t uid = 0;
    std::int32_t device = -1;
  };
  std::int32_t ask_device(CUcontext context) const noexcept;

  const DriverApi& driver_;
  std::mutex mutex_;
  std::unordered_map<CUcontext, Entry> entries_;
  std::uint32_t next_ = 1;
  std::atomic<ContextSource*> other_{nullptr};
  std::atomic<std::uint32_t>& generation_;
};

}  // namespace gpuflight::capture
