// The functions that the hooked driver entry points lead to while there is a recorder.
//
// Threads: turn_hooks by whoever controls the source; the functions themselves by any app thread, at any time: one that
// is being turned off may still be running.
#pragma once

#include "hooks/hook_table.h"

namespace gpuflight::capture {

enum class Hooks : std::uint8_t {
  kNone,
  kState,  // those that say what handles and captures there are
  kAll,    // launches and the calls beside them too
};
class InterposeSource;
// `source` is told from here on.
void turn_hooks(InterposeSource& source, const hooks::HookTable& table, Hooks which, bool edges) noexcept;

}  // namespace gpuflight::capture
