// Scopes that NVTX told of before there was a recorder: a program may say "training" before its first CUDA call, and the
// launches to come lie in it. Kept by name, a few for each thread, until the thread's first event; in a process that
// never uses CUDA for as long as the thread lives. Nothing is started for them and nothing is written.
//
// Threads: the thread's own. A thread's first push allocates 2 KB, freed when the thread ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "capture/scope_stack.h"

namespace gpuflight::capture {

struct EarlyScopes {
  static constexpr std::uint32_t kMax = 16;  // deeper ones are counted, not named

  struct Level {
    ScopeDomain domain;
    std::uint16_t length = 0;
    char name[102];  // cut there
  };
  std::uint32_t depth = 0;
  Level levels[kMax];

  void push(const ScopeDomain& domain, std::string_view name) noexcept;
  void pop(std::uint32_t tag) noexcept;

  // The calling thread's. Null: no memory, or `make` is false and there are none.
  static EarlyScopes* of_this_thread(bool make) noexcept;
  // Takes them away from the thread.
  static std::unique_ptr<EarlyScopes> take() noexcept;
};

}  // namespace gpuflight::capture
