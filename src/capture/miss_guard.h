// What surrounds everything on an app thread that is more than a cache hit.
//
// Threads: the calling one only.
#pragma once

#include <cerrno>
#include <pthread.h>

#include "capture/thread_state.h"

namespace gpuflight::capture {

// A miss runs driver calls, locks and allocations in the host's thread: none of it may be cut short by a cancellation,
// come back to us as a callback, or leave a trace in errno.
class MissGuard {
 public:
  explicit MissGuard(ThreadState& thread) noexcept : thread_(thread), errno_(errno) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    thread_.inside = true;
    thread_.missed = true;
  }
  ~MissGuard() {
    thread_.inside = false;
    pthread_setcancelstate(cancel_state_, nullptr);
    errno = errno_;
  }
  MissGuard(const MissGuard&) = delete;
  MissGuard& operator=(const MissGuard&) = delete;

 private:
  ThreadState& thread_;
  int errno_;
  int cancel_state_ = 0;
};

}  // namespace gpuflight::capture
