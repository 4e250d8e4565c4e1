// Compresses closed segments in the background: NAME to NAME.zst by way of NAME.zst.part, then NAME goes. On any
// failure NAME stays as it is. Its thread lives only while there is work, blocks all signals and is nice.
// Threads: submit, cancel, take_done, stop by the sink's owner. They block for a rename and an unlink at most, stop()
// for the time given. Held by shared_ptr: a thread stuck in I/O past stop() keeps it alive.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "log/posix_file.h"

namespace gpuflight::log {

class Compressor : public std::enable_shared_from_this<Compressor> {
 public:
  struct Job {
    std::uint32_t number = 0;
    std::string path;         // absolute
    FileId id;
    std::uint64_t bytes = 0;
    std::uint64_t max_bytes = 0;  // give up when the result would be larger
  };
  struct Done {
    std::uint32_t number = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::size_t kMaxJobs = 64;

  // False: too much to do already or no thread to be had; the segment stays plain.
  bool submit(Job job) noexcept;
  // After this the segment is not touched any more. It may just have become NAME.zst.
  void cancel(std::uint32_t number) noexcept;
  // False: nothing new.
  bool take_done(Done& done) noexcept;
  std::uint64_t cpu_ns() const noexcept { return cpu_ns_.load(std::memory_order_relaxed); }  // of the jobs done
  // Jobs not begun are dropped; the one in progress gets `timeout_ms`, then is given up.
  void stop(std::uint32_t timeout_ms) noexcept;

 private:
  static void* thread_main(void* self);
  bool start_thread_locked() noexcept;
  void work() noexcept;
  bool compress(const Job& job, std::uint64_t& bytes) noexcept;
  bool copy_compressed(const Job& job, int from, int to, const FileId& to_id, std::uint64_t& bytes) noexcept;
  bool finish(const Job& job, std::uint64_t bytes) noexcept;

  std::mutex mutex_;
  std::array<Job, kMaxJobs> jobs_;  // a ring
  std::size_t first_job_ = 0, job_count_ = 0;
  std::array<Done, kMaxJobs> done_;
  std::size_t done_count_ = 0;
  std::atomic<bool> has_done_{false};
  std::atomic<bool> running_{false};
  std::atomic<std::uint64_t> cpu_ns_{0};
  std::atomic<bool> give_up_{false};  // the job in progress
  std::uint32_t current_ = 0;
  bool stopping_ = false;
};

}  // namespace gpuflight::log
