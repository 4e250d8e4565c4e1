// Paths of nested scopes: (parent, name) gets an id for good.
//
// Threads: any. `child` locks, and allocates for a new path only. Names are cut at kMaxName bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "capture/notice_board.h"
#include "event/ids.h"
#include "flight/table_writer.h"

namespace gpuflight::capture {

class ScopeTable {
 public:
  static constexpr std::size_t kMaxName = 4096;

  // `notices`: where to say that the table is full; null: nowhere.
  ScopeTable(flight::TableWriter& rows, std::uint32_t capacity, NoticeBoard* notices = nullptr);

  // 0 where the table is full: launches then carry the nearest known parent.
  event::ScopeId child(event::ScopeId parent, std::string_view name) noexcept;
  // The scope of the same name in another parent.
  event::ScopeId moved(event::ScopeId id, event::ScopeId from, event::ScopeId to) noexcept;

  // How often a scope was asked for that had no room; `refuse` counts one that a thread remembers.
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  // "a/b/c"; the recorder's copy, stable for good. Null for 0 and for ids not given out.
  const std::string* path(event::ScopeId id) const noexcept;

 private:
  using Key = std::pair<std::uint32_t, std::string>;
  struct Less {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.first != b.first ? a.first < b.first : std::string_view(a.second) < std::string_view(b.second);
    }
  };

  flight::TableWriter& rows_;
  const std::uint32_t capacity_;
  std::mutex mutex_;
  std::map<Key, event::ScopeId, Less> ids_;
  std::unique_ptr<std::unique_ptr<const std::string>[]> paths_;  // by id; published by used_
  std::atomic<std::uint32_t> used_{1};
  NoticeBoard* const notices_;
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace gpuflight::capture
