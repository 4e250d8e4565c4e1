#include "capture/stream_table.h"

namespace gpuflight::capture {

StreamTable::StreamTable(const DriverApi& driver, flight::TableWriter& rows, std::uint32_t capacity,
                         NoticeBoard* notices)
    : driver_(driver),
      rows_(rows),
      capacity_(capacity),
      notices_(notices),
      infos_(new std::unique_ptr<event::StreamInfo>[capacity]) {}

event::StreamId StreamTable::id_of(const StreamKey& key, std::int32_t device) noexcept {
  try {
    {
      std::lock_guard lock(mutex_);
      if (const auto it = ids_.find(key); it != ids_.end()) return it->second;
    }
    auto info = std::make_unique<event::StreamInfo>();
    info->context = event::ContextId{key.context_uid};
    info->device = device;
    info->handle = reinterpret_cast<std::uint64_t>(key.handle);
    info->thread = key.thread;
    using Kind = event::StreamInfo::Kind;
    info->kind = key.handle != nullptr ? Kind::kCreated : key.thread != 0 ? Kind::kPerThreadDefault : Kind::kLegacyDefault;
    if (info->kind == Kind::kCreated) {
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
    return id;
  } catch (...) {
    return {};
  }
}

void StreamTable::on_stream_destroyed(const void* handle, std::uint32_t context_uid) noexcept {
  std::lock_guard lock(mutex_);
  if (ids_.erase(StreamKey{handle, context_uid, 0}) != 0) generation_.fetch_add(1, std::memory_order_release);
}

void StreamTable::on_context_destroyed(std::uint32_t context_uid) noexcept {
  std::lock_guard lock(mutex_);
  std::erase_if(ids_, [&](const auto& entry) { return entry.first.context_uid == context_uid; });
  generation_.fetch_add(1, std::memory_order_release);
}

const event::StreamInfo* StreamTable::row(std::uint32_t id) const noexcept {
  return id > 0 && id < used() ? infos_[id].get() : nullptr;
}

}  // namespace gpuflight::capture
