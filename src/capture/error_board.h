// The first error of each context after which it is of no use: what the app's thread saw, on its way to the recorder.
//
// Threads: any posts (rare: locks, allocates), the recorder thread takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpuflight::capture {

struct SeenError {
  std::int64_t time_ns = 0;
  std::int32_t code = 0;
  std::string call;
  std::uint32_t thread = 0;
  std::uint32_t context_uid = 0;
};

class ErrorBoard {
 public:
  void post(SeenError error) noexcept {
    try {
      std::lock_guard lock(mutex_);
      for (const std::uint32_t uid : contexts_) {
        if (uid == error.context_uid) return;
      }
      if (contexts_.size() >= kMaxContexts) return;
      contexts_.push_back(error.context_uid);
      waiting_.push_back(std::move(error));
      any_.store(true, std::memory_order_release);
    } catch (...) {
    }
  }
  std::vector<SeenError> take() noexcept {
    if (!any_.exchange(false, std::memory_order_acq_rel)) return {};
    std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }

 private:
  static constexpr std::size_t kMaxContexts = 256;
  std::mutex mutex_;
  std::vector<std::uint32_t> contexts_;
  std::vector<SeenError> waiting_;
  std::atomic<bool> any_{false};
};

}  // namespace gpuflight::capture
