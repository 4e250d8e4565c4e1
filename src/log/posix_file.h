// Files in a process that is not ours: who a descriptor really is, folders, renames that overwrite nothing.
// Threads: any. Blocks: in the file system. Allocates: make_folders only. Never throws but std::bad_alloc from there.
#pragma once

#include <cstdint>
#include <string>

namespace gpuflight::log {

struct FileId {
  std::uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};

struct FileState {
  FileId id;
  std::uint64_t links = 0;
  std::uint64_t bytes = 0;
};

// 0 or errno.
int describe(int fd, FileState& state) noexcept;
int describe_at(int folder, const char* name, FileState& state) noexcept;  // a symlink is described itself

bool is_file(int fd, const FileId& id) noexcept;
// Closes `fd` only while it is still `id`: a host may have closed it and got the number again for a file of its own.
void close_if(int& fd, const FileId& id) noexcept;

// Out of the way of hosts that close or hand out low numbers. Returns the descriptor to use; `fd` itself if none is
// free.
int move_high(int fd) noexcept;

// Makes every folder of an absolute path, 0700 whatever the umask. 0 or errno.
int make_folders(const std::string& folder);

// Fails with EEXIST where `to` exists. 0 or errno.
int rename_exclusively(int folder, const char* from, const char* to) noexcept;

}  // namespace gpuflight::log
