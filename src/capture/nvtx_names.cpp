#include "capture/nvtx_names.h"

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace gpuflight::capture {
namespace {

constexpr std::uint64_t kDomainMagic = 0x6e69616d6f642d67, kStringMagic = 0x676e697274732d67;
constexpr std::string_view kNoText = "(no text)";

struct Tables {
  std::mutex mutex;
  std::map<std::string, const NvtxNames::Domain*, std::less<>> domains;
  std::map<std::pair<std::uint32_t, std::string>, const NvtxNames::String*> strings;
};

std::atomic<Tables*> g_tables{nullptr};

// Null: no memory.
Tables* tables() noexcept {
  Tables* known = g_tables.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  auto* const made = new (std::nothrow) Tables;
  if (made == nullptr) return nullptr;
  if (g_tables.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
  delete made;
  return known;
}

// Tags are those of the process and its forks, so that they are not given out twice.
std::atomic<std::uint32_t> g_next_tag{1};

}  // namespace

const NvtxNames::Domain* NvtxNames::domain(std::string_view name) noexcept {
  Tables* const all = tables();
  if (all == nullptr) return nullptr;
  try {
    const std::lock_guard lock(all->mutex);
    const auto known = all->domains.find(name);
    if (known != all->domains.end()) return known->second;
    if (all->domains.size() >= kMostDomains) return nullptr;
    auto* const made = new Domain{kDomainMagic, std::string(name) + ":", {}};
    made->scopes = {g_next_tag.fetch_add(1, std::memory_order_relaxed), made->prefix};
    all->domains.emplace(std::string(name), made);
    return made;
  } catch (...) {
    return nullptr;
  }
}

const NvtxNames::String* NvtxNames::string(const ScopeDomain& domain, std::string_view text) noexcept {
  Tables* const all = tables();
  if (all == nullptr) return nullptr;
  try {
    std::pair key(domain.tag, std::string(text));
    const std::lock_guard lock(all->mutex);
    const auto known = all->strings.find(key);
    if (known != all->strings.end()) return known->second;
    if (all->strings.size() >= kMostStrings) return nullptr;
    auto* const made = new String{kStringMagic, key.second};
    all->strings.emplace(std::move(key), made);
    return made;
  } catch (...) {
    return nullptr;
  }
}

ScopeDomain NvtxNames::scopes_of(const void* domain) noexcept {
  const auto* const known = static_cast<const Domain*>(domain);
  return known != nullptr && known->magic == kDomainMagic ? known->scopes : kNvtxDefaultDomain;
}

std::string_view NvtxNames::text_of(const void* string) noexcept {
  const auto* const known = static_cast<const String*>(string);
  return known != nullptr && known->magic == kStringMagic ? std::string_view(known->text) : kNoText;
}

void NvtxNames::on_fork_in_child() noexcept { g_tables.store(nullptr, std::memory_order_release); }

std::string utf8_of(const wchar_t* text) {
  std::string out;
  for (; *text != 0; ++text) {
    auto c = static_cast<std::uint32_t>(*text);
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      tail(0);
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
      tail(6);
      tail(0);
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return out;
}

}  // namespace gpuflight::capture
