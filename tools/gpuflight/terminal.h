// What stands behind stdout and stderr.
#pragma once

#include <cstddef>
#include <string>

namespace gpuflight::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();

// "auto": only on a terminal that is not dumb, and never when NO_COLOR is set to anything. "always", "never".
bool wants_colour(const std::string& when);

// Columns of the terminal; COLUMNS or 120 where there is none.
std::size_t terminal_width();

}  // namespace gpuflight::cli
