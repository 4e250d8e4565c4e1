#include "capture/scope_table.h"

namespace gpuflight::capture {

ScopeTable::ScopeTable(flight::TableWriter& rows, std::uint32_t capacity, NoticeBoard* notices)
    : rows_(rows), capacity_(capacity), paths_(new std::unique_ptr<const std::string>[capacity]), notices_(notices) {}

event::ScopeId ScopeTable::child(event::ScopeId parent, std::string_view name) noexcept {
  if (name.size() > kMaxName) name = name.substr(0, kMaxName);
  try {
    std::lock_guard lock(mutex_);
    const std::pair<std::uint32_t, std::string_view> key(parent.value, name);
    if (const auto it = ids_.find(key); it != ids_.end()) return it->second;
    const std::string* const above = path(parent);
    auto whole = std::make_unique<const std::string>(above != nullptr ? *above + "/" + std::string(name)
                                                                      : std::string(name));
    Key owned(parent.value, std::string(name));
    const event::ScopeId id = rows_.add_scope(parent, name);
    if (!id || id.value >= capacity_) {
      refuse();
      if (notices_ != nullptr) {
        notices_->post(event::Severity::kWarning, "scope_table_full",
                       "more than " + std::to_string(capacity_ - 1) +
                           " different scopes: launches in further ones carry the scope around these");
      }
      return {};
    }
    paths_[id.value] = std::move(whole);
    used_.store(id.value + 1, std::memory_order_release);
    ids_.emplace(std::move(owned), id);
    return id;
  } catch (...) {
    return {};
  }
}

event::ScopeId ScopeTable::moved(event::ScopeId id, event::ScopeId from, event::ScopeId to) noexcept {
  if (id == from) return to;  // it had found no room of its own
  const std::string* const whole = path(id);
  const std::string* const above = path(from);
  if (whole == nullptr) return {};
  const std::size_t cut = above != nullptr ? above->size() + 1 : 0;
  return cut <= whole->size() ? child(to, std::string_view(*whole).substr(cut)) : event::ScopeId{};
}

const std::string* ScopeTable::path(event::ScopeId id) const noexcept {
  return id && id.value < used_.load(std::memory_order_acquire) ? paths_[id.value].get() : nullptr;
}

}  // namespace gpuflight::capture
