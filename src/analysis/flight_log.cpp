#include "analysis/flight_log.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace gpuflight::analysis {
namespace {

int open_unlinked_file() {
  const char* const wanted = std::getenv("TMPDIR");
  const std::string folder = wanted != nullptr && *wanted != '\0' ? wanted : "/tmp";
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = folder + "/gpuflight-XXXXXX";  // a file system without O_TMPFILE
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), folder);
  unlink(name.c_str());
  return fd;
}

}  // namespace

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw std::system_error(n < 0 ? errno : ENOSPC, std::generic_category(), "writing recovered events");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

FlightLog::FlightLog(const std::string& flight_path, RecoveryOptions options)
    : recovery_(flight_path, std::move(options)) {
  recovery_.run();
  if (!result().log_path.empty()) files_ = log::log_segments(result().log_path);
  if (result().to_write() == 0 && !result().exit && !files_.empty()) return;
  fd_ = open_unlinked_file();
  try {
    recovery_.write_lines([&](std::string_view lines) { write_all(fd_, lines); });
  } catch (...) {
    close(fd_);
    throw;
  }
  files_.push_back("/proc/self/fd/" + std::to_string(fd_));
}

FlightLog::~FlightLog() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace gpuflight::analysis
