// When the GPU did what: CUPTI's activity records of kernels, copies, fills and graphs, on their way to the recorder
// thread.
//
// Threads: start and stop on the thread that initialises CUDA or the API's caller (serialised by the recorder); flush
// and take on the recorder thread; CUPTI asks for buffers and gives them back on any thread, also launching ones, which
// costs those a few atomics and, where no ready buffer is left, one mmap. No lock is held, ever. One per process is
// started: CUPTI's buffer callbacks carry no user data. What they use outlives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "capture/activity_buffers.h"
#include "capture/activity_record.h"
#include "capture/shared_object.h"

namespace gpuflight::capture {

struct ActivityApi;
struct ActivityLayout;

// What it takes to read a record in a buffer.
struct ActivityReader {
  const ActivityApi* api;
  const ActivityLayout* layout;
};

class ActivitySource {
 public:
  // What is told of graphs; stands from start() on, since GRAPH_TRACE enabled after a graph was instantiated crashes
  // CUPTI 13.0. kNode: each kernel, copy and fill in them, which doubles the cost of a replay. kGraph: each launch as a
  // whole, as one record, and no nodes. kOff: neither. CUPTI makes node records whenever it tells of kernels and not of
  // graphs: for kOff it tells of these, and their records are dropped in take() and counted nowhere.
  enum class Graphs : std::uint8_t { kOff, kGraph, kNode };

  struct Settings {
    bool kernels = true;                      // CONCURRENT_KERNEL: does not serialise them, as KERNEL would
    bool copies = true;                       // MEMCPY, MEMSET; MEMCPY2 by tell_peer_copies()
    Graphs graphs = Graphs::kNode;
    bool before_graphs = true;                // false: graphs may have been instantiated, too late for GRAPH_TRACE
    std::size_t buffer_bytes = 128 * 1024;    // about 600 records
    std::size_t memory_bound = 48u << 20;     // host memory for buffers with CUPTI; as much again for those not read yet
    // Memory of the GPU, per context. CUPTI's own values are 3.2 MB and up to 250 buffers, 3 of them at once, 8 MB for
    // launches from device code, 16 MB for device graphs. What it has no room for there goes without times.
    std::size_t device_buffer_bytes = 1u << 20;
    std::size_t device_buffer_pool_limit = 64;
    std::size_t device_buffers_at_once = 2;
    std::size_t device_launch_bytes = 1u << 20;
    std::size_t device_graph_bytes = 1u << 20;
  };

  // Since the start. `dropped`: by CUPTI, for want of room. `null_times`: records without start or end, or reversed
  // ones. `over_bound`: buffers handed out beyond memory_bound, which must not be refused: the caller is to stop().
  // `unread`: records given up at the bound because they came faster than they were taken; of these, nodes of graphs.
  struct Counters {
    std::uint64_t records = 0, dropped = 0, unknown_records = 0, null_times = 0, buffers_requested = 0;
    std::uint64_t over_bound = 0, unread = 0, unread_nodes = 0;
    std::size_t bytes_held = 0;
  };

  ActivitySource() noexcept;
  ~ActivitySource();
  ActivitySource(const ActivitySource&) = delete;
  ActivitySource& operator=(const ActivitySource&) = delete;

  // `library`: the libcupti that the subscriber is in. Called at injection, before any context exists if possible: late
  // enabling costs seconds in big programs, and the GPU memory settings hold for contexts made afterwards. Again after
  // stop(): switches the kinds on as they were; other arguments are then without effect.
  bool start(const SharedObject& library, std::uint32_t cupti_version, const Settings& settings,
             std::int64_t t0_monotonic_ns, std::string& problem) noexcept;
  // Copies between devices too, from here on (MEMCPY2). Not from the start, as it makes each replay of a graph 6 to 12 %
  // dearer, also where there is one device only. Recorder thread; once, later calls do nothing.
  void tell_peer_copies() noexcept;
  // Disables the kinds. What CUPTI holds still comes, and is to be taken.
  void stop() noexcept;

  // Asks CUPTI for the buffers in which all has ended; `forced`: for all, and what still runs comes without an end and
  // never again: last act only.
  void flush(bool forced) noexcept;

  // What is complete by now is what the next take() visits. Called before the rings are emptied, it makes sure that all
  // launches of what is visited have been seen by then, but for those whose call has not come back.
  void fetch() noexcept {
    begin_take();
    fetched_ = true;
  }

  // What is complete and not taken yet.
  std::size_t bytes_complete() const noexcept {
    return registered_.load(std::memory_order_acquire) ? buffers_->bytes_complete() : 0;
  }

  // visit(const ActivityRecord&) for each record of the buffers that are complete (by now, or by the last fetch), in
  // CUPTI's order. It must not throw. Names in the record are valid during the visit.
  template <class Visit>
  void take(Visit&& visit) noexcept {
    if (!fetched_) begin_take();
    fetched_ = false;
    ActivityRecord record;
    for (ActivityBuffers::Buffer* buffer = next_buffer(); buffer != nullptr; buffer = next_buffer()) {
      void* place = nullptr;
      while (next_record(*buffer, place, record)) visit(std::as_const(record));
      recycle(buffer);
    }
    end_take();
  }

  Counters counters() const noexcept;

 private:
  void set_attributes() noexcept;
  bool register_callbacks(std::string& problem) noexcept;
  bool enable_kinds(std::string& problem) noexcept;

  void begin_take() noexcept;
  ActivityBuffers::Buffer* next_buffer() noexcept;
  bool next_record(ActivityBuffers::Buffer& buffer, void*& place, ActivityRecord& record) noexcept;
  void note_run(std::int64_t start_ns, std::int64_t end_ns) noexcept;
  void recycle(ActivityBuffers::Buffer* buffer) noexcept;
  void end_take() noexcept;

  Settings settings_;
  const ActivityLayout* layout_ = nullptr;
  std::unique_ptr<ActivityApi> api_;
  std::unique_ptr<ActivityReader> reader_;
  std::unique_ptr<ActivityBuffers> buffers_;
  std::atomic<bool> registered_{false};  // callbacks and clock, once: the recorder thread may flush and take
  std::atomic<std::uint32_t> enabled_{0};    // bit i: kind i of kKinds
  std::atomic<bool> peer_copies_{false};
  bool own_clock_ = false;        // records come in CLOCK_MONOTONIC, by our callback; else in CLOCK_REALTIME
  std::int64_t t0_ns_ = 0;

  // Recorder thread only.
  ActivityBuffers::Buffer* taken_ = nullptr;
  bool fetched_ = false;
  std::int64_t clock_base_ = 0;
  std::uint32_t timed_ = 0;  // records of the buffer under way that have both times
  std::int64_t first_start_ns_ = 0, last_end_ns_ = 0;

  std::atomic<std::uint64_t> records_{0}, dropped_{0}, unknown_records_{0}, null_times_{0};
};

}  // namespace gpuflight::capture
