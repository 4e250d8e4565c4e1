#include "capture/context_table.h"

namespace gpuflight::capture {

std::uint32_t ContextTable::uid_of(CUcontext context) noexcept {
  if (context == nullptr) return 0;
  try {
    {
      std::lock_guard lock(mutex_);
      if (const auto found = entries_.find(context); found != entries_.end()) return found->second.uid;
    }
    const std::int32_t device = ask_device(context);
    ContextSource* const other = other_.load(std::memory_order_acquire);
    const std::uint32_t given = other != nullptr ? other->uid_of(context) : 0;
    std::lock_guard lock(mutex_);
    const auto [it, fresh] = entries_.try_emplace(context, Entry{given != 0 ? given : next_, device});
    if (fresh && given == 0) ++next_;
    return it->second.uid;
  } catch (...) {
    return 0;
  }
}

std::int32_t ContextTable::device_of(CUcontext context) noexcept {
  if (uid_of(context) == 0) return -1;
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(context);
  return found != entries_.end() ? found->second.device : -1;
}

// Of the current context, which may have to be exchanged for that.
std::int32_t ContextTable::ask_device(CUcontext context) const noexcept {
  if (driver_.ctx_get_current == nullptr || driver_.ctx_get_device == nullptr) return -1;
  CUcontext current = nullptr;
  const bool other = driver_.ctx_get_current(&current) != CUDA_SUCCESS || current != context;
  if (other && (driver_.ctx_push_current == nullptr || driver_.ctx_pop_current == nullptr ||
                driver_.ctx_push_current(context) != CUDA_SUCCESS)) {
    return -1;
  }
  CUdevice device = -1;
  const bool known = driver_.ctx_get_device(&device) == CUDA_SUCCESS;
  if (other) driver_.ctx_pop_current(&current);
  return known ? device : -1;
}

std::uint32_t ContextTable::on_destroyed(CUcontext context) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(context);
  if (found == entries_.end()) return 0;
  const std::uint32_t uid = found->second.uid;
  entries_.erase(found);
  generation_.fetch_add(1, std::memory_order_release);
  return uid;
}

std::vector<CUcontext> ContextTable::of_device(std::int32_t device) noexcept {
  std::vector<CUcontext> all;
  try {
    std::lock_guard lock(mutex_);
    for (const auto& [context, entry] : entries_) {
      if (entry.device == device) all.push_back(context);
    }
  } catch (...) {
  }
  return all;
}

}  // namespace gpuflight::capture
