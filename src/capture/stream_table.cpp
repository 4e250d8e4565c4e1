#include "capture/stream_table.h"

#include <sched.h>

namespace gpuflight::capture {

StreamTable::StreamTable(const DriverApi& driver, flight::TableWriter& rows, HotPage& page, std::uint32_t capacity,
                         NoticeBoard* notices)
    : driver_(driver),
      rows_(rows),
      capacity_(capacity),
      notices_(notices),
      infos_(new std::unique_ptr<event::StreamInfo>[capacity]),
      page_(page) {}

event::StreamId StreamTable::id_of(const StreamKey& key, std::int32_t device, bool may_ask) noexcept {
  try {
    auto info = std::make_unique<event::StreamInfo>();
    bool known = false;
    {
      std::lock_guard lock(mutex_);
      if (const auto it = ids_.find(key); it != ids_.end()) return it->second;
      if (const auto it = created_.find(key); it != created_.end()) {
        info->flags = it->second.flags;
        info->priority = it->second.priority;
        known = true;
      }
    }
    info->context = event::ContextId{key.context_uid};
    info->device = device;
    info->handle = reinterpret_cast<std::uint64_t>(key.handle);
    info->thread = key.thread;
    using Kind = event::StreamInfo::Kind;
    info->kind = key.handle != nullptr ? Kind::kCreated : key.thread != 0 ? Kind::kPerThreadDefault : Kind::kLegacyDefault;
    if (info->kind == Kind::kCreated && !known && may_ask) {
      const auto stream = static_cast<CUstream>(const_cast<void*>(key.handle));
      int priority = 0;
      unsigned flags = 0;
      if (driver_.stream_get_priority != nullptr && driver_.stream_get_priority(stream, &priority) == CUDA_SUCCESS) {
        info->priority = priority;
      }
      if (driver_.stream_get_flags != nullptr && driver_.stream_get_flags(stream, &flags) == CUDA_SUCCESS) {
        info->flags = flags;
      }
    }
    std::lock_guard lock(mutex_);
    if (const auto it = ids_.find(key); it != ids_.end()) return it->second;
    const event::StreamId id = rows_.add_stream(*info);
    if (!id || id.value >= capacity_) {
      if (notices_ != nullptr) {
        notices_->post(event::Severity::kWarning, "stream_table_full",
                       "the stream table is full: streams that are used from here on are logged as null");
      }
      return {};
    }
    info->stream = id;
    infos_[id.value] = std::move(info);
    used_.store(id.value + 1, std::memory_order_release);
    ids_.emplace(key, id);
    created_.erase(key);
    return id;
  } catch (...) {
    return {};
  }
}

void StreamTable::on_stream_created(const void* handle, std::uint32_t context_uid, std::uint32_t flags,
                                    std::optional<std::int32_t> priority) noexcept {
  constexpr std::size_t kMost = 65'536;  // streams that are made and never used are somebody's leak, not ours
  try {
    std::lock_guard lock(mutex_);
    if (created_.size() < kMost) created_[StreamKey{handle, context_uid, 0}] = {flags, priority};
  } catch (...) {
  }
}

void StreamTable::on_stream_destroyed(const void* handle, std::uint32_t context_uid) noexcept {
  {
    std::lock_guard lock(mutex_);
    created_.erase(StreamKey{handle, context_uid, 0});
    if (ids_.erase(StreamKey{handle, context_uid, 0}) == 0) return;  // never launched into
  }
  invalidate();
}

// No thread uses a stream it knew from before once this returns, but for one that is stuck in the driver: the driver may
// be holding a lock here that it waits for, so the wait is bounded.
void StreamTable::invalidate() noexcept {
  constexpr int kMostYields = 10'000;
  page_.stream_generation.fetch_add(1, std::memory_order_seq_cst);
  page_.end_bursts();
  for (int i = 0; i < kMostYields && users_.load(std::memory_order_seq_cst) != 0; ++i) sched_yield();
}

void StreamTable::on_context_destroyed(std::uint32_t context_uid) noexcept {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(created_, [&](const auto& entry) { return entry.first.context_uid == context_uid; });
    std::erase_if(ids_, [&](const auto& entry) { return entry.first.context_uid == context_uid; });
  }
  invalidate();
}

void StreamTable::forget_all() noexcept {
  {
    std::lock_guard lock(mutex_);
    ids_.clear();
    created_.clear();
  }
  invalidate();
}

const event::StreamInfo* StreamTable::row(std::uint32_t id) const noexcept {
  return id > 0 && id < used() ? infos_[id].get() : nullptr;
}

}  // namespace gpuflight::capture
