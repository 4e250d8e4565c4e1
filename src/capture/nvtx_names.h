// NVTX's domains and registered strings: objects of ours behind the handles that a program is given. Made once for each
// name, never freed, since a program may use a handle at any time.
//
// Threads: any. Making one locks and allocates; using one does neither. Bounded: beyond, domains are the default one and
// strings have no text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "capture/scope_stack.h"

namespace gpuflight::capture {

class NvtxNames {
 public:
  static constexpr std::size_t kMostDomains = 4'096, kMostStrings = 65'536;

  struct Domain {
    std::uint64_t magic;
    std::string prefix;  // "name:"
    ScopeDomain scopes;
  };
  struct String {
    std::uint64_t magic;
    std::string text;
  };

  // Null: no room.
  static const Domain* domain(std::string_view name) noexcept;
  static const String* string(const ScopeDomain& domain, std::string_view text) noexcept;

  // What a handle of the program's means.
  static ScopeDomain scopes_of(const void* domain) noexcept;
  static std::string_view text_of(const void* string) noexcept;

  // The child's locks may be held by threads that it does not have. Handles given out stay good.
  static void on_fork_in_child() noexcept;
};

// As UTF-8; what is no character becomes U+FFFD.
std::string utf8_of(const wchar_t* text);

}  // namespace gpuflight::capture
