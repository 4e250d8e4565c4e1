#include "recovered_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "analysis/flight_log.h"
#include "failure.h"

namespace gpuflight::cli {
namespace {

// NAME.recovered.2.ndjson ... where the name is taken. O_EXCL follows no symlink.
int create_beside(const analysis::RecoveryResult& result, std::string& path) {
  constexpr int kTries = 1000;
  const std::string stem = result.recovered_stem();
  for (int i = 1; i <= kTries; ++i) {
    path = fmt::format("{}{}.ndjson", stem, i == 1 ? "" : fmt::format(".{}", i));
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  throw Failure(fmt::format("{}: {}; --output names another place", path, std::strerror(errno)));
}

}  // namespace

std::string write_recovered(analysis::Recovery& recovery, const std::string& output) {
  const analysis::RecoveryResult& result = recovery.result();
  if (result.to_write() == 0 && !result.exit) return {};
  if (output == "-") {
    recovery.write_lines([](std::string_view lines) {
      if (std::fwrite(lines.data(), 1, lines.size(), stdout) != lines.size()) throw Failure("cannot write the output");
    });
    return {};
  }
  if (output.empty() && !result.recovered_path.empty()) return {};
  std::string path = output;
  int fd = -1;
  if (output.empty()) {
    fd = create_beside(result, path);
  } else {
    fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  try {
    recovery.write_lines([fd](std::string_view lines) { analysis::write_all(fd, lines); });
  } catch (const std::system_error& error) {
    close(fd);
    throw Failure(fmt::format("{}: {}", path, error.what()));
  }
  if (close(fd) != 0) throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
  return path;
}

}  // namespace gpuflight::cli
