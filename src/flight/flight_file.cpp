#include "flight/flight_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

namespace gpuflight::flight {
namespace {

constexpr std::uint64_t kPage = 4096;
std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

// File systems on which reserved blocks stay reserved when written to through a mapping. Copy-on-write and network
// file systems can run out later all the same, and then the write is a SIGBUS in the host.
bool keeps_reservation(int fd, std::string& problem) {
  struct statfs info;
  if (fstatfs(fd, &info) != 0) {
    problem = std::string("fstatfs: ") + std::strerror(errno);
    return false;
  }
  constexpr unsigned long kExt = 0xEF53, kXfs = 0x58465342, kTmpfs = 0x01021994, kOverlay = 0x794C7630;
  switch (static_cast<unsigned long>(info.f_type)) {
    case kExt:
    case kXfs:
    case kTmpfs:
    case kOverlay:  // the blocks are those of the upper layer, which accepted the reservation
      return true;
    default: {
      char text[96];
      std::snprintf(text, sizeof text, "file system type 0x%lx is not known to keep reserved blocks",
                    static_cast<unsigned long>(info.f_type));
      problem = text;
      return false;
    }
  }
}

// Like posix_fallocate, without glibc's fallback of writing one byte a block, which leaves tmpfs files sparse.
int reserve(int fd, std::uint64_t bytes) {
  for (;;) {
    if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    break;
  }
  static const char zeros[65536] = {};
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t n = bytes - done < sizeof zeros ? static_cast<std::size_t>(bytes - done) : sizeof zeros;
    const ssize_t wrote = pwrite(fd, zeros, n, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : ENOSPC;
    done += static_cast<std::uint64_t>(wrote);
  }
  return 0;
}

// NAME.flight, NAME.2.flight, NAME.3.flight ... : the first that does not exist yet. O_EXCL follows no symlink.
int create_new(const std::string& wanted, std::string& taken) {
  constexpr int kTries = 1000;
  const std::string suffix = ".flight";
  const bool has_suffix = wanted.size() > suffix.size() && wanted.ends_with(suffix);
  const std::string stem = has_suffix ? wanted.substr(0, wanted.size() - suffix.size()) : wanted;
  for (int i = 1; i <= kTries; ++i) {
    taken = i == 1 ? wanted : stem + "." + std::to_string(i) + (has_suffix ? suffix : "");
    const int fd = open(taken.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  errno = EEXIST;
  return -1;
}

}  // namespace

void FlightFile::plan(const Capacities& capacities) {
  capacities_ = capacities;
  constexpr std::uint64_t kMinChunks = 16;
  chunk_count_ = static_cast<std::uint32_t>(capacities.pool_bytes / kChunkBytes);
  if (chunk_count_ < kMinChunks) chunk_count_ = kMinChunks;
  std::uint64_t at = kHeaderBytes;
  const auto take = [&at](std::uint64_t bytes) {
    const std::uint64_t here = at;
    at = round_up(at + bytes, 64);
    return here;
  };
  offsets_.ledger = take(sizeof(LedgerBlock));
  offsets_.slots = take(sizeof(ThreadSlot) * event::kMaxThreadSlots);
  offsets_.kernels = take(sizeof(KernelEntry) * capacities.kernels);
  offsets_.configs = take(sizeof(ConfigEntry) * capacities.configs);
  offsets_.streams = take(sizeof(StreamEntry) * capacities.streams);
  offsets_.scopes = take(sizeof(ScopeEntry) * capacities.scopes);
  offsets_.strings = take(capacities.string_bytes);
  at = round_up(at, kPage);
  offsets_.chunks = take(std::uint64_t{chunk_count_} * kChunkBytes);
  offsets_.end = round_up(at, kPage);
}

FlightFile::Result FlightFile::create(const std::string& path, const Capacities& capacities) {
  plan(capacities);
  Result result;
  if (!path.empty() && map_file(path, result)) {
    result.mapped = result.on_disk = true;
  } else if (map_private(result)) {
    result.mapped = true;
  }
  if (result.mapped) write_header();
  return result;
}

bool FlightFile::map_file(const std::string& path, Result& result) {
  std::string name;
  const int fd = create_new(path, name);
  if (fd < 0) {
    result.problem = path + ": " + std::strerror(errno);
    return false;
  }
  const auto give_up = [&](const std::string& why) {
    result.problem = name + ": " + why;
    unlink(name.c_str());
    close(fd);
    return false;
  };
  std::string why;
  if (!keeps_reservation(fd, why)) return give_up(why);
  if (const int error = reserve(fd, offsets_.end); error != 0) {
    return give_up("cannot reserve " + std::to_string(offsets_.end >> 20) + " MiB: " + std::strerror(error));
  }
  void* const base = mmap(nullptr, offsets_.end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return give_up(std::string("mmap: ") + std::strerror(errno));
  close(fd);  // the mapping keeps the file; a host that closes every descriptor cannot hurt it
  madvise(base, offsets_.end, MADV_DONTFORK);
  base_ = static_cast<char*>(base);
  result.path = name;
  return true;
}

void FlightFile::release(std::uint64_t begin, std::uint64_t end) noexcept {
  begin = round_up(begin, kPage);
  end = end / kPage * kPage;
  if (begin < end) madvise(base_ + begin, end - begin, MADV_REMOVE);
}

bool FlightFile::populate(std::uint32_t first_chunk, std::uint32_t count) noexcept {
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;
#endif
  if (first_chunk >= chunk_count_ || count > chunk_count_ - first_chunk) return false;
  const std::uint64_t begin = (offsets_.chunks + first_chunk * kChunkBytes) / kPage * kPage;
  const std::uint64_t end = std::min(round_up(offsets_.chunks + (first_chunk + count) * kChunkBytes, kPage), offsets_.end);
  return madvise(base_ + begin, end - begin, MADV_POPULATE_WRITE) == 0;
}

bool FlightFile::map_private(Result& result) {
  void* const base = mmap(nullptr, offsets_.end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    if (!result.problem.empty()) result.problem += "; ";
    result.problem += std::string("no memory for the rings: ") + std::strerror(errno);
    return false;
  }
  madvise(base, offsets_.end, MADV_DONTFORK);
  base_ = static_cast<char*>(base);
  return true;
}

void FlightFile::write_header() {
  Header& h = header();
  h.endian_mark = kEndianMark;
  h.version_major = event::kFlightMajor;
  h.version_minor = event::kFlightMinor;
  h.header_bytes = sizeof(Header);
  h.record_bytes = kRecordBytes;
  h.chunk_bytes = kChunkBytes;
  h.slot_count = event::kMaxThreadSlots;
  h.kernel_capacity = capacities_.kernels;
  h.config_capacity = capacities_.configs;
  h.stream_capacity = capacities_.streams;
  h.scope_capacity = capacities_.scopes;
  h.chunk_count = chunk_count_;
  h.ledger_offset = offsets_.ledger;
  h.slots_offset = offsets_.slots;
  h.kernels_offset = offsets_.kernels;
  h.configs_offset = offsets_.configs;
  h.streams_offset = offsets_.streams;
  h.scopes_offset = offsets_.scopes;
  h.strings_offset = offsets_.strings;
  h.strings_bytes = capacities_.string_bytes;
  h.chunks_offset = offsets_.chunks;
  h.file_bytes = offsets_.end;
  h.state.store(static_cast<std::uint32_t>(SessionState::kEmpty), std::memory_order_relaxed);
  // Last, so that a reader that finds the magic finds the rest.
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(h.magic, kMagic, sizeof kMagic);
}

}  // namespace gpuflight::flight
