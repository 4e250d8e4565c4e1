#include "log/compressor.h"

#define ZSTD_STATIC_LINKING_ONLY  // for memory of our own
#include <zstd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace gpuflight::log {
namespace {

constexpr std::size_t kStackBytes = 512 * 1024;
constexpr int kLevel = 3;        // log lines shrink about twentyfold; higher levels cost CPU of the host's
constexpr int kWindowLog = 20;   // 1 MiB of history: half the memory of the level's own choice
constexpr int kNicer = 10;

bool write_all(int fd, const char* data, std::size_t bytes) noexcept {
  while (bytes > 0) {
    const ssize_t n = ::write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

void become_nice() noexcept {
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  errno = 0;
  const int now = getpriority(PRIO_PROCESS, thread);
  if (now != -1 || errno == 0) setpriority(PRIO_PROCESS, thread, now + kNicer > 19 ? 19 : now + kNicer);
}

std::uint64_t thread_cpu_ns() noexcept {
  timespec used{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return 0;
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};

// Not from malloc: what a thread frees there stays in its arena. The size stands in front of what is handed out.
constexpr std::size_t kMappingHead = 64;

void* map_memory(void* /*opaque*/, std::size_t bytes) noexcept {
  const std::size_t whole = bytes + kMappingHead;
  void* const base = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  *static_cast<std::size_t*>(base) = whole;
  return static_cast<char*>(base) + kMappingHead;
}

void unmap_memory(void* /*opaque*/, void* memory) noexcept {
  if (memory == nullptr) return;
  char* const base = static_cast<char*>(memory) - kMappingHead;
  munmap(base, *reinterpret_cast<const std::size_t*>(base));
}

struct FreeMemory {
  void operator()(char* memory) const noexcept { unmap_memory(nullptr, memory); }
};
using Memory = std::unique_ptr<char, FreeMemory>;

Memory get_memory(std::size_t bytes) { return Memory(static_cast<char*>(map_memory(nullptr, bytes))); }

}  // namespace

bool Compressor::submit(Job job) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (stopping_ || job_count_ == kMaxJobs) return false;
    jobs_[(first_job_ + job_count_) % kMaxJobs] = std::move(job);
    ++job_count_;
    if (running_ || start_thread_locked()) return true;
    --job_count_;
    return false;
  } catch (...) {
    return false;
  }
}

void Compressor::cancel(std::uint32_t number) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < job_count_; ++i) {
    Job& job = jobs_[(first_job_ + i) % kMaxJobs];
    if (job.number == number) job.number = 0;
  }
  if (current_ == number) give_up_ = true;
}

bool Compressor::take_done(Done& done) noexcept {
  if (!has_done_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  done = done_[--done_count_];
  if (done_count_ == 0) has_done_ = false;
  return true;
}

void Compressor::stop(std::uint32_t timeout_ms) noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    job_count_ = 0;
  }
  const timespec millisecond{0, 1'000'000};
  for (std::uint32_t i = 0; i < timeout_ms && running_; ++i) nanosleep(&millisecond, nullptr);
  give_up_ = true;
  for (int i = 0; i < 100 && running_; ++i) nanosleep(&millisecond, nullptr);
}

bool Compressor::start_thread_locked() noexcept {
  auto* self = new (std::nothrow) std::shared_ptr<Compressor>(shared_from_this());
  if (self == nullptr) return false;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  running_ = true;
  int error = pthread_create(&thread, &attributes, thread_main, self);
  if (error != 0) {  // a host with much thread-local storage needs a larger stack
    pthread_attr_t usual;
    pthread_attr_init(&usual);
    pthread_attr_setdetachstate(&usual, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &usual, thread_main, self);
    pthread_attr_destroy(&usual);
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return true;
  running_ = false;
  delete self;
  return false;
}

void* Compressor::thread_main(void* self) {
  const std::unique_ptr<std::shared_ptr<Compressor>> mine(static_cast<std::shared_ptr<Compressor>*>(self));
  pthread_setname_np(pthread_self(), "gpuflight-zstd");
  become_nice();
  (*mine)->work();
  return nullptr;
}

void Compressor::work() noexcept {
  for (;;) {
    Job job;
    {
      const std::lock_guard lock(mutex_);
      if (job_count_ == 0) {
        running_ = false;
        return;
      }
      job = std::move(jobs_[first_job_]);
      first_job_ = (first_job_ + 1) % kMaxJobs;
      --job_count_;
      current_ = job.number;
      give_up_ = false;
    }
    if (job.number == 0) continue;
    std::uint64_t bytes = 0;
    const std::uint64_t before_ns = thread_cpu_ns();
    compress(job, bytes);
    cpu_ns_.fetch_add(thread_cpu_ns() - before_ns, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    current_ = 0;
  }
}

bool Compressor::compress(const Job& job, std::uint64_t& bytes) noexcept {
  try {
    const std::string part = job.path + ".zst.part";
    int from = move_high(::open(job.path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!is_file(from, job.id)) {  // somebody put another file there
      if (from >= 0) ::close(from);
      return false;
    }
    FileState made;
    int to = move_high(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    bool ok = describe(to, made) == 0;
    if (ok) {
      fchmod(to, 0600);
      ok = copy_compressed(job, from, to, made.id, bytes);
      posix_fadvise(from, 0, 0, POSIX_FADV_DONTNEED);  // nobody will read it again: leave the page cache to the host
      close_if(to, made.id);
      ok = ok && finish(job, bytes);
      if (!ok) ::unlink(part.c_str());
    }
    close_if(from, job.id);
    return ok;
  } catch (...) {
    return false;
  }
}

bool Compressor::copy_compressed(const Job& job, int from, int to, const FileId& to_id,
                                 std::uint64_t& bytes) noexcept {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(
      ZSTD_createCCtx_advanced({&map_memory, &unmap_memory, nullptr}));
  const std::size_t in_bytes = ZSTD_CStreamInSize(), out_bytes = ZSTD_CStreamOutSize();
  const Memory in = get_memory(in_bytes), out = get_memory(out_bytes);
  if (!context || !in || !out) return false;
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, kWindowLog);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::uint64_t taken = 0;
  bool at_end = false;
  while (!at_end) {
    if (give_up_ || !is_file(from, job.id)) return false;
    const ssize_t n = ::read(from, in.get(), in_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    taken += static_cast<std::uint64_t>(n);
    at_end = n == 0;
    ZSTD_inBuffer source{in.get(), static_cast<std::size_t>(n), 0};
    std::size_t left = 1;
    while (at_end ? left != 0 : source.pos < source.size) {
      ZSTD_outBuffer sink{out.get(), out_bytes, 0};
      left = ZSTD_compressStream2(context.get(), &sink, &source, at_end ? ZSTD_e_end : ZSTD_e_continue);
      if (ZSTD_isError(left)) return false;
      bytes += sink.pos;
      if (bytes > job.max_bytes) return false;
      if (sink.pos != 0 && (!is_file(to, to_id) || !write_all(to, out.get(), sink.pos))) return false;
    }
  }
  return taken == job.bytes;
}

bool Compressor::finish(const Job& job, std::uint64_t bytes) noexcept {
  try {
    const std::string result = job.path + ".zst";
    const std::string part = result + ".part";
    const std::lock_guard lock(mutex_);
    if (give_up_) return false;
    if (rename_exclusively(AT_FDCWD, part.c_str(), result.c_str()) != 0) return false;
    FileState plain;
    if (describe_at(AT_FDCWD, job.path.c_str(), plain) == 0 && plain.id == job.id) ::unlink(job.path.c_str());
    if (done_count_ < done_.size()) {
      done_[done_count_++] = {job.number, bytes};
      has_done_.store(true, std::memory_order_release);
    }
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace gpuflight::log
