#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace gpuflight::cli {
namespace {

constexpr std::size_t kWidthWithoutTerminal = 120;
constexpr std::size_t kLeastWidth = 40;
constexpr std::size_t kMostWidth = 2000;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool wants_colour(const std::string& when) {
  if (when == "always") return true;
  if (when == "never") return false;
  return stdout_is_terminal() && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
}

std::size_t terminal_width() {
  std::size_t width = 0;
  const std::string_view columns = variable("COLUMNS");
  if (std::from_chars(columns.data(), columns.data() + columns.size(), width).ec != std::errc{}) width = 0;
  winsize size{};
  if (width == 0 && stdout_is_terminal() && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  if (width == 0) return kWidthWithoutTerminal;
  return width < kLeastWidth ? kLeastWidth : width > kMostWidth ? kMostWidth : width;
}

}  // namespace gpuflight::cli
