// The hooks library, where it was preloaded too: found by name, and only if it speaks the same table.
//
// Threads: any; find() may block as dlsym does. Not on the launch path.
#pragma once

#include <string_view>

#include "hooks/hook_table.h"

namespace gpuflight::capture {

// Null: not in the process, or of another version.
hooks::HookTable* find_hooks() noexcept;

hooks::HookRow* find_hook(const hooks::HookTable& table, std::string_view name) noexcept;

// The driver's own function, where `function` is the hook before it: our own calls need not come back to us.
void* behind_hook(void* function) noexcept;

// From here on the hook of cuInit need not start the recorder.
void note_start_tried() noexcept;

}  // namespace gpuflight::capture
