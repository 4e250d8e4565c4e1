#include "capture/graph_table.h"

namespace gpuflight::capture {

event::GraphId GraphTable::id_of(const void* graph_exec) noexcept {
  try {
    std::lock_guard lock(mutex_);
    const auto [it, fresh] = ids_.try_emplace(graph_exec, event::GraphId{next_});
    if (fresh) ++next_;
    return it->second;
  } catch (...) {
    return {};
  }
}

void GraphTable::on_graph_exec_destroyed(const void* graph_exec) noexcept {
  std::lock_guard lock(mutex_);
  if (ids_.erase(graph_exec) != 0) generation_.fetch_add(1, std::memory_order_release);
}

void GraphTable::forget_all() noexcept {
  std::lock_guard lock(mutex_);
  ids_.clear();
  generation_.fetch_add(1, std::memory_order_release);
}

}  // namespace gpuflight::capture
