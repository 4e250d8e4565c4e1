// The recorder's own thread: blocks every signal (a write of ours must not raise SIGXFSZ or SIGPIPE in the host), has
// its own table of descriptors where the kernel allows it (a host that closes all descriptors cannot hurt us, and our
// files are not in its table), and never keeps the process alive.
//
// Threads: start and wait_done by any; `body` runs on the thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <pthread.h>

namespace gpuflight::recorder {

class RecorderThread {
 public:
  using Body = void (*)(void* argument) noexcept;

  RecorderThread();

  // False: no thread to be had.
  bool start(const char* name, Body body, void* argument) noexcept;

  // Whether the body has returned, waiting at most `timeout_ms`.
  bool wait_done(std::uint32_t timeout_ms) noexcept;

  // On the thread itself, before it opens a file. `keep_stderr`: descriptor 2 stays ours to write to.
  static bool own_descriptor_table(bool keep_stderr) noexcept;

  // CPU time used so far: asked on the thread itself, or after its end. 0 where it is not known.
  std::uint64_t cpu_ns() const noexcept;

 private:
  static void* main(void* self) noexcept;

  pthread_t thread_{};
  Body body_ = nullptr;
  void* argument_ = nullptr;
  const char* name_ = "";
  bool started_ = false;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t done_changed_{};
  bool done_ = false;
  std::atomic<std::uint64_t> cpu_at_end_{0};
};

// System calls only.
void close_descriptors_from(int first) noexcept;

// CLOCK_MONOTONIC, `ms` from now.
timespec deadline_in(std::uint64_t ms) noexcept;

}  // namespace gpuflight::recorder
