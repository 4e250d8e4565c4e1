#include "capture/hook_link.h"

#include <dlfcn.h>

namespace gpuflight::capture {

using hooks::HookRow;
using hooks::HookTable;

HookTable* find_hooks() noexcept {
  using Find = HookTable* (*)();
  const auto find = reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "gpuflight_hooks"));
  if (find == nullptr) {
    dlerror();
    return nullptr;
  }
  HookTable* const table = find();
  const bool ours = table != nullptr && table->version == HookTable::kVersion && table->row_bytes == sizeof(HookRow);
  return ours ? table : nullptr;
}

HookRow* find_hook(const HookTable& table, std::string_view name) noexcept {
  for (std::uint32_t i = 0; i < table.rows; ++i) {
    if (name == table.row[i].name) return &table.row[i];
  }
  return nullptr;
}

void* behind_hook(void* function) noexcept {
  if (function == nullptr) return nullptr;
  const HookTable* const table = find_hooks();
  if (table == nullptr) return function;
  for (std::uint32_t i = 0; i < table->rows; ++i) {
    const HookRow& row = table->row[i];
    if (row.entry == function) return __atomic_load_n(&row.real, __ATOMIC_ACQUIRE);
  }
  return function;
}

void note_start_tried() noexcept {
  if (HookTable* const table = find_hooks()) __atomic_store_n(&table->start_tried, 1u, __ATOMIC_RELEASE);
}

}  // namespace gpuflight::capture
