#include "recorder/recorder_thread.h"

#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpuflight::recorder {
namespace {

// Deep enough for zstd and the file code (measured under 64 KiB), small enough for containers with tight limits.
constexpr std::size_t kStackBytes = 512 * 1024;

}  // namespace

void close_descriptors_from(int first) noexcept {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return;
#endif
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const long most = limit.rlim_cur > 65536 ? 65536 : static_cast<long>(limit.rlim_cur);
  for (long fd = first; fd < most; ++fd) close(static_cast<int>(fd));
}

timespec deadline_in(std::uint64_t ms) noexcept {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += static_cast<time_t>(ms / 1000);
  at.tv_nsec += static_cast<long>(ms % 1000) * 1'000'000;
  if (at.tv_nsec >= 1'000'000'000) {
    at.tv_nsec -= 1'000'000'000;
    ++at.tv_sec;
  }
  return at;
}

RecorderThread::RecorderThread() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&done_changed_, &attributes);
  pthread_condattr_destroy(&attributes);
}

bool RecorderThread::start(const char* name, Body body, void* argument) noexcept {
  body_ = body;
  argument_ = argument;
  name_ = name;
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;  // the new thread inherits it
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  int result = pthread_create(&thread_, &attributes, &RecorderThread::main, this);
  if (result != 0) {  // a large static TLS can make the stack too small
    pthread_attr_t plain;
    pthread_attr_init(&plain);
    pthread_attr_setdetachstate(&plain, PTHREAD_CREATE_DETACHED);
    result = pthread_create(&thread_, &plain, &RecorderThread::main, this);
    pthread_attr_destroy(&plain);
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  started_ = result == 0;
  return started_;
}

void* RecorderThread::main(void* self) noexcept {
  auto& thread = *static_cast<RecorderThread*>(self);
  prctl(PR_SET_NAME, thread.name_);
  thread.body_(thread.argument_);
  thread.cpu_at_end_.store(thread.cpu_ns(), std::memory_order_relaxed);
  pthread_mutex_lock(&thread.mutex_);
  thread.done_ = true;
  pthread_cond_broadcast(&thread.done_changed_);
  pthread_mutex_unlock(&thread.mutex_);
  return nullptr;
}

bool RecorderThread::wait_done(std::uint32_t timeout_ms) noexcept {
  if (!started_) return true;
  const timespec deadline = deadline_in(timeout_ms);
  pthread_mutex_lock(&mutex_);
  while (!done_ && pthread_cond_timedwait(&done_changed_, &mutex_, &deadline) == 0) {
  }
  const bool done = done_;
  pthread_mutex_unlock(&mutex_);
  return done;
}

bool RecorderThread::own_descriptor_table(bool keep_stderr) noexcept {
  // Refused in some containers (seccomp); the log's sink then checks the identity of its descriptor at each write.
  if (syscall(SYS_unshare, CLONE_FILES) != 0) return false;
  // The copies would keep the host's pipes and sockets open after the host has closed them.
  if (keep_stderr) {
    close(0);
    close(1);
    close_descriptors_from(3);
  } else {
    close_descriptors_from(0);
  }
  return true;
}

std::uint64_t RecorderThread::cpu_ns() const noexcept {
  if (const std::uint64_t at_end = cpu_at_end_.load(std::memory_order_relaxed); at_end != 0) return at_end;
  timespec used{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return 0;
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

}  // namespace gpuflight::recorder
