// Instantiated graphs by handle: each gets a small id for good; a handle used again after its destruction is a new one.
//
// Threads: any; `id_of` on a miss of the thread's cache: locks, may allocate.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "capture/hot_page.h"
#include "event/ids.h"

namespace gpuflight::capture {

class GraphTable {
 public:
  explicit GraphTable(HotPage& page) : generation_(page.graph_generation) {}

  event::GraphId id_of(const void* graph_exec) noexcept;
  void on_graph_exec_destroyed(const void* graph_exec) noexcept;
  void forget_all() noexcept;
  std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, event::GraphId> ids_;
  std::uint32_t next_ = 1;
  std::atomic<std::uint32_t>& generation_;
};

}  // namespace gpuflight::capture
