// What the hooks library tells libgpuflight.so: the driver entry points that it stands before, and where each leads. The
// two are built together but may come from two installations, so the table says its version.
//
// Each exported entry point is one jump through its row's `target`. A row starts by finding the driver's function
// (`lazy`), leads to it from then on, and is turned to a function of the recorder's while there is a recorder: no
// prototype is needed for the jump, and a process without a recorder pays the jump alone.
//
// Threads: any, at any time, also before constructors. Words of a row are read and written atomically. Owned by the hooks
// library, never freed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuflight::hooks {

//   0  target    where the entry point leads; 8 real: the driver's function, or `lazy`
//  16  entry     the exported entry point; 24 lazy: finds the driver's function and goes on to it
//  32  name      as the driver exports it; 40 since: CUDA version from which cuGetProcAddress means it by its base name
struct alignas(64) HookRow {
  void* target;
  void* real;
  void* entry;
  void* lazy;
  const char* name;
  std::uint64_t since;
};
static_assert(sizeof(HookRow) == 64 && offsetof(HookRow, since) == 40);

struct HookTable {
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t version;
  std::uint32_t row_bytes;
  std::uint32_t rows;
  HookRow* row;
  std::uint32_t start_tried;   // libgpuflight.so: it was started, with whatever result; cuInit need not do it
  std::uint32_t init_seen;     // cuInit came through its hook
  std::uint64_t handed_out;    // entry points given in place of the driver's, by dlsym or cuGetProcAddress
};

}  // namespace gpuflight::hooks

// The one way to it, found by its name with dlsym.
extern "C" __attribute__((visibility("default"))) gpuflight::hooks::HookTable* gpuflight_hooks() noexcept;
