// The activity side of the simulated CUPTI: records go into buffers the client supplies, buffers go back when every
// record in them has ended on the virtual timeline.
// Threads: record() on launching threads, flush() on any, delivery on this library's worker or the flushing thread.
// No lock is held while the client's callbacks run. Never destroyed.
#pragma once

#include <cupti.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "sim/cupti/records.h"
#include "sim/sim_config_access.h"
#include "sim/sim_hooks.h"

namespace gpuflight::sim {

struct ActivityBuffer {
  struct Times {
    std::size_t start_at = 0, end_at = 0, completed_at = 0;  // in the buffer; completed_at 0: none
    std::int64_t start_ns = 0, end_ns = 0;
    const std::atomic<int>* context_error = nullptr;
  };

  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
  std::size_t max_records = 0;  // 0: as many as fit
  std::vector<Times> records;
  std::int64_t complete_ns = 0;   // when its last record has ended
  std::int64_t not_before_ns = 0;  // held back until then (a fault)

  bool has_room(std::size_t bytes) const {
    return used + bytes <= size && (max_records == 0 || records.size() < max_records);
  }
};

class ActivityRecorder {
 public:
  static ActivityRecorder& instance();

  void register_callbacks(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed);
  bool has_callbacks() const { return requested_.load() != nullptr; }
  void register_timestamp(CUpti_TimestampCallbackFunc timestamp);
  std::uint64_t timestamp() const;

  static bool simulated(CUpti_ActivityKind kind);
  void enable(CUpti_ActivityKind kind, bool on);
  void record(const KernelExecution& kernel);
  void record(const CopyExecution& copy);
  void record(const FillExecution& fill);
  void record(const GraphExecution& graph);
  void flush(bool forced);
  void set_period(std::uint32_t ms);
  void set_per_thread(bool on) { per_thread_.store(on); }
  std::size_t take_dropped() { return dropped_.exchange(0); }

 private:
  using BufferPtr = std::unique_ptr<ActivityBuffer>;
  // Where one thread's records go.
  struct Shard {
    std::mutex mutex;
    BufferPtr current;
  };
  struct ThreadShard;

  Shard& shard();
  BufferPtr take_buffer();
  BufferPtr request_buffer();
  void retire(BufferPtr buffer);
  void set_hooks();
  void store(const RawRecord& record);
  void append(ActivityBuffer& buffer, const RawRecord& record);
  void deliver(BufferPtr buffer, std::int64_t now);
  std::vector<BufferPtr> collect(bool forced, bool partial, std::int64_t now);
  void start_worker();
  static void on_child();
  void work();
  std::uint64_t client_time(std::int64_t monotonic_ns) const;

  std::atomic<CUpti_BuffersCallbackRequestFunc> requested_{nullptr};
  std::atomic<CUpti_BuffersCallbackCompleteFunc> completed_{nullptr};
  std::atomic<CUpti_TimestampCallbackFunc> timestamp_{nullptr};
  std::atomic<std::int64_t> clock_offset_{0};  // client's clock less CLOCK_MONOTONIC
  std::atomic<std::size_t> dropped_{0};
  std::atomic<std::uint64_t> seen_{0};
  std::atomic<bool> per_thread_{true};
  std::atomic<bool> plain_copies_{false}, peer_copies_{false};
  std::atomic<std::uint32_t> period_ms_{0};

  std::mutex mutex_;  // everything below
  std::condition_variable wake_;
  std::set<CUpti_ActivityKind> enabled_;
  std::set<Shard*> shards_;
  std::deque<BufferPtr> full_;
  BufferPtr spare_;
  bool worker_started_ = false;
  bool kicked_ = false;  // the worker has something to do
  Shard common_;
};

}  // namespace gpuflight::sim
