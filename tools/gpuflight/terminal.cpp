#include "terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

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

void say_text(std::string_view text) noexcept {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const bool blocked = pthread_sigmask(SIG_BLOCK, &pipe, &before) == 0;
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) {  // the signal waits for us, being blocked
      const timespec at_once{};
      sigtimedwait(&pipe, nullptr, &at_once);
    }
    if (written <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (blocked) pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void occupy_standard_descriptors() noexcept {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // What is meant for stdout and cannot go there is an error, as it was.
    const char* const nowhere = fd == STDOUT_FILENO ? "/dev/full" : "/dev/null";
    if (::open(nowhere, O_RDWR | O_CLOEXEC) < 0) ::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
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
