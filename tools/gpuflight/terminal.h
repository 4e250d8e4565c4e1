// What stands behind stdout and stderr.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace gpuflight::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();

// "auto": only on a terminal that is not dumb, and never when NO_COLOR is set to anything. "always", "never".
bool wants_colour(const std::string& when);

// Words for the user, on stderr. That it is closed or full, or its reader gone, is no reason to end otherwise than by
// the exit code: nothing is thrown, and no SIGPIPE comes of it.
void say_text(std::string_view text) noexcept;
template <class... Values>
void say(fmt::format_string<Values...> format, Values&&... values) {
  say_text(fmt::format(format, std::forward<Values>(values)...));
}

// A standard descriptor that is closed would be given to the next file that is opened, which our words would then go
// into. Taken here, and closed again in a program that is started.
void occupy_standard_descriptors() noexcept;

// Columns of the terminal; COLUMNS or 120 where there is none.
std::size_t terminal_width();

}  // namespace gpuflight::cli
