#include "log/posix_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpuflight::log {
namespace {

constexpr int kLowestDescriptor = 100;

// The raw call: fstat and fstatat are symbols of glibc 2.33, which would raise the version a host needs.
int stat_at(int folder, const char* name, int flags, FileState& state) noexcept {
  struct stat st;
  if (syscall(SYS_newfstatat, folder, name, &st, flags) != 0) return errno;
  state.id = {st.st_dev, st.st_ino};
  state.links = st.st_nlink;
  state.bytes = static_cast<std::uint64_t>(st.st_size);
  return 0;
}

}  // namespace

int describe(int fd, FileState& state) noexcept {
  if (fd < 0) return EBADF;
  return stat_at(fd, "", AT_EMPTY_PATH, state);
}

int describe_at(int folder, const char* name, FileState& state) noexcept {
  return stat_at(folder, name, AT_SYMLINK_NOFOLLOW, state);
}

bool is_file(int fd, const FileId& id) noexcept {
  FileState state;
  return describe(fd, state) == 0 && state.id == id;
}

void close_if(int& fd, const FileId& id) noexcept {
  if (is_file(fd, id)) ::close(fd);
  fd = -1;
}

int move_high(int fd) noexcept {
  if (fd < 0 || fd >= kLowestDescriptor) return fd;
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (high < 0) return fd;
  ::close(fd);
  return high;
}

int make_folders(const std::string& folder) {
  for (std::size_t at = 1; at <= folder.size(); ++at) {
    if (at != folder.size() && folder[at] != '/') continue;
    const std::string part = folder.substr(0, at);
    if (mkdir(part.c_str(), 0700) == 0) {
      chmod(part.c_str(), 0700);  // the umask may have taken our own rights away
    } else if (errno != EEXIST) {
      FileState state;
      const int error = errno;  // a read-only or forbidden parent that is there all the same will do
      if (describe_at(AT_FDCWD, part.c_str(), state) != 0) return error;
    }
  }
  return 0;
}

int rename_exclusively(int folder, const char* from, const char* to) noexcept {
  constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE
  if (syscall(SYS_renameat2, folder, from, folder, to, kNoReplace) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without it: a hard link does not replace either.
  if (linkat(folder, from, folder, to, 0) == 0) {
    return unlinkat(folder, from, 0) == 0 ? 0 : errno;
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  FileState state;
  if (describe_at(folder, to, state) == 0) return EEXIST;
  return renameat(folder, from, folder, to) == 0 ? 0 : errno;
}

}  // namespace gpuflight::log
