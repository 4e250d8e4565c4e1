// The scopes a thread is in, and the scopes it has been in lately by name.
//
// Scopes of one domain (the API's own, NVTX's default one, each NVTX domain) nest; those of different domains need not.
// A launch lies in all of them, in the order in which they began.
//
// Threads: the thread's own. Nothing blocks or allocates.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "event/ids.h"

namespace gpuflight::capture {

// Whose scope it is, and what stands before its name in the path.
struct ScopeDomain {
  std::uint32_t tag = 0;
  std::string_view prefix;  // "domain:", or empty
};
inline constexpr ScopeDomain kApiDomain{0xFFFF'FFFF, {}};
inline constexpr ScopeDomain kNvtxDefaultDomain{0, {}};

struct ScopeStack {
  static constexpr std::uint32_t kMax = 64;  // deeper ones are counted, not named

  struct Level {
    event::ScopeId path;   // with what is around it now
    event::ScopeId begun;  // as its begin was recorded
    std::uint32_t domain = 0;
  };
  std::uint32_t depth = 0;
  std::array<Level, kMax> levels{};

  event::ScopeId path() const noexcept {
    if (depth == 0) return {};
    return levels[(depth < kMax ? depth : kMax) - 1].path;
  }
};

// Paths by parent and name. Names too long for it, and those that another has driven out, are asked of the table.
class ScopeCache {
 public:
  // False: not known. A known one may be 0: the table had no room for it.
  bool find(event::ScopeId parent, std::uint32_t domain, std::string_view name, event::ScopeId& id) const noexcept {
    const Entry& entry = entries_[slot(parent, domain, name)];
    if (!entry.used || entry.parent != parent.value || entry.domain != domain || entry.length != name.size() ||
        std::memcmp(entry.name, name.data(), name.size()) != 0) {
      return false;
    }
    id = event::ScopeId{entry.id};
    return true;
  }
  void put(event::ScopeId parent, std::uint32_t domain, std::string_view name, event::ScopeId id) noexcept {
    Entry& entry = entries_[slot(parent, domain, name)];
    if (name.size() > sizeof entry.name) return;
    entry.parent = parent.value;
    entry.domain = domain;
    entry.id = id.value;
    entry.length = static_cast<std::uint16_t>(name.size());
    entry.used = true;
    std::memcpy(entry.name, name.data(), name.size());
  }

 private:
  static constexpr std::size_t kSlots = 64;
  struct alignas(64) Entry {
    std::uint32_t parent = 0, domain = 0, id = 0;
    std::uint16_t length = 0;
    bool used = false;
    char name[113];
  };
  static_assert(sizeof(Entry) == 128);

  // By length and both ends: names of one program seldom agree in all three.
  static std::size_t slot(event::ScopeId parent, std::uint32_t domain, std::string_view name) noexcept {
    std::uint64_t head = 0, tail = 0;
    const std::size_t n = name.size() < 8 ? name.size() : 8;
    std::memcpy(&head, name.data(), n);
    std::memcpy(&tail, name.data() + name.size() - n, n);
    std::uint64_t h = head ^ (tail * 0xFF51AFD7ED558CCDull) ^ name.size();
    h ^= (std::uint64_t{parent.value} << 32 | domain) * 0xC4CEB9FE1A85EC53ull;
    return static_cast<std::size_t>((h * 0x9E3779B97F4A7C15ull) >> 58) % kSlots;
  }

  std::array<Entry, kSlots> entries_{};
};

}  // namespace gpuflight::capture
