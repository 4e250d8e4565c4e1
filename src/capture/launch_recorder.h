// The hot path: a launch seen by a source becomes one record in the calling thread's ring. On a hit no lock, no
// allocation, no system call.
//
// Threads: on_* are called by any app thread, inside the driver's call; never blocks on a hit. Owned by the recorder
// for the life of the process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "capture/device_query.h"
#include "capture/event_timer.h"
#include "capture/graph_table.h"
#include "capture/hot_page.h"
#include "capture/kernel_resolver.h"
#include "capture/kernel_table.h"
#include "capture/launch_call.h"
#include "capture/launch_clock.h"
#include "capture/marker_board.h"
#include "capture/notice_board.h"
#include "capture/scope_table.h"
#include "capture/stream_table.h"
#include "capture/thread_state.h"
#include "flight/ring.h"

namespace gpuflight::capture {

// Own cost of a launch, sampled: every kSampleEvery-th launch (launch_hit.h) of a thread is timed from entry to return to the source.
// The median of them is what is published: a mean would be that of the few samples that were preempted.
struct CostCounters {
  static constexpr std::int64_t kBucketNs = 4;
  static constexpr std::size_t kBuckets = 512;
  static constexpr std::uint64_t kFewestSamples = 16;  // the first ones pay for cold caches and page faults

  std::atomic<std::uint64_t> misses{0};

  void add(std::int64_t ns) noexcept {
    const auto bucket = static_cast<std::size_t>(ns / kBucketNs);
    samples_[bucket < kBuckets ? bucket : kBuckets - 1].fetch_add(1, std::memory_order_relaxed);
  }
  std::optional<std::int64_t> median_ns() const noexcept;  // null: too few samples to speak of

 private:
  std::array<std::atomic<std::uint64_t>, kBuckets> samples_{};
};

class LaunchRecorder {
 public:
  struct Parts {
    const DriverApi& driver;
    flight::RingSet& rings;
    KernelResolver& resolver;
    StreamTable& streams;
    GraphTable& graphs;
    ScopeTable& scopes;
    DeviceQuery& devices;
    MarkerBoard* markers;  // null: no marks
    HotPage& page;
    const LaunchClock& clock;
    EventTimer* events = nullptr;  // null: launches are not timed by events
  };
  explicit LaunchRecorder(const Parts& parts) : parts_(parts) {}

  // The calling thread's state; null: nothing is recorded (stopped, forked, no memory).
  ThreadState* enter() noexcept {
    if (parts_.page.recording.load(std::memory_order_relaxed) == 0) [[unlikely]] return nullptr;
    ThreadState* const state = this_thread_state();
    if (state != nullptr && state->owner == this) [[likely]] return state;
    return make_thread_state(*this, parts_.rings);
  }
  bool recording() const noexcept { return parts_.page.recording.load(std::memory_order_relaxed) != 0; }
  bool alive() const noexcept { return parts_.page.owned.load(std::memory_order_relaxed) != 0; }

  // Before the first on_*_enter of a launch call: what the thread left open, it left without returning.
  void on_call_begin(ThreadState& thread) noexcept {
    if (thread.open_count != 0) [[unlikely]] abandon_open(thread);
  }

  // A mark is due behind the launch that has just returned.
  void mark_behind(ThreadState& thread, ThreadState::StreamEntry& entry) noexcept;

  // At entry and return of one launch call. Calls nest only inside our own driver calls, which `inside` filters out.
  // `device` is asked for by a function, since it costs a driver call and is needed on a miss only.
  using DeviceOf = std::int32_t (*)(void* source, const void* context);
  void on_kernel_enter(ThreadState& thread, const LaunchCall& call, void* source, DeviceOf device_of) noexcept;
  void on_graph_enter(ThreadState& thread, const GraphCall& call, void* source, DeviceOf device_of) noexcept;
  void on_return(ThreadState& thread, std::int32_t status) noexcept;

  // Likewise of another call. Before on_return: what is known only when an allocation has succeeded, and whether the
  // stream of an edge is captured, which a wait itself may have brought about.
  void on_call_enter(ThreadState& thread, const DriverCall& call, void* source, DeviceOf device_of) noexcept;
  void on_wait_return(ThreadState& thread, const DriverCall& call) noexcept;  // that succeeded
  void on_memory_return(ThreadState& thread, event::ApiCall call, const MemoryArguments& memory) noexcept;
  void on_edge_return(ThreadState& thread, const DriverCall& call, void* source, DeviceOf device_of) noexcept;

  void on_capture_begun() noexcept {
    parts_.page.captures.fetch_add(1, std::memory_order_acq_rel);
    parts_.page.end_bursts();
  }
  void on_capture_ended() noexcept;
  // As the driver says; no value: it does not.
  std::optional<bool> is_capturing(ThreadState& thread, const void* stream, bool per_thread_default) noexcept;

  // The source saw nothing for a while, not even module unloads, and sees again.
  void on_resumed_blind() noexcept;
  // From then on, at each cuStreamWaitEvent: a stream may have joined a capture that began unseen.
  void on_stream_joined() noexcept { parts_.page.doubts.fetch_add(1, std::memory_order_acq_rel); }

  // Scopes of the calling thread. A pop without a push is none.
  void push_scope(const ScopeDomain& domain, std::string_view name) noexcept;
  void pop_scope(const ScopeDomain& domain) noexcept;
  void mark(const ScopeDomain& domain, std::string_view name) noexcept;
  // Ranges that may end on another thread: launches do not lie in them. 0: not recorded.
  std::uint64_t begin_range(const ScopeDomain& domain, std::string_view name) noexcept;
  void end_range(std::uint64_t range) noexcept;
  // What NVTX told of before the thread had a state.
  void adopt_early_scopes(ThreadState& thread) noexcept;

  void on_thread_exit(ThreadState& thread) noexcept;

  std::int64_t now_ns() const noexcept { return parts_.clock.now_ns(); }
  HotPage& page() const noexcept { return parts_.page; }
  bool marks() const noexcept { return parts_.markers != nullptr; }

  const DriverApi& driver() const noexcept { return parts_.driver; }
  const CostCounters& cost() const noexcept { return cost_; }
  std::uint64_t without_slot() const noexcept { return without_slot_.load(std::memory_order_relaxed); }

 private:
  // `entry`: where it stands in the thread's cache; null: it may not stay there.
  std::uint32_t config_of(ThreadState& thread, const LaunchCall& call, void* source, DeviceOf device_of,
                          ThreadState::LaunchEntry*& entry) noexcept;
  ThreadState::StreamEntry& stream_of(ThreadState& thread, const void* stream, bool per_thread_default,
                                      const void* context, std::uint32_t context_uid, void* source,
                                      DeviceOf device_of) noexcept;
  void mark_before(ThreadState& thread, ThreadState::StreamEntry& entry, std::int64_t now) noexcept;
  void mark_before_wait(ThreadState& thread, const DriverCall& call, std::int64_t now) noexcept;
  void mark_stream(ThreadState& thread, ThreadState::StreamEntry& entry) noexcept;
  bool may_be_captured(const ThreadState::StreamEntry& entry) const noexcept;
  bool is_captured(ThreadState& thread, ThreadState::StreamEntry& entry) noexcept;
  std::int32_t device_of_context(ThreadState& thread, const DriverCall& call, void* source, DeviceOf device_of) noexcept;
  static flight::Record* open_call(const ThreadState& thread, event::ApiCall call) noexcept;
  flight::Record* begin(ThreadState& thread, flight::RecordKind kind) noexcept;
  void point(ThreadState& thread, flight::RecordKind kind, event::ScopeId scope, std::uint32_t range = 0) noexcept;
  event::ScopeId scope_of(ThreadState& thread, event::ScopeId parent, const ScopeDomain& domain,
                          std::string_view name) noexcept;
  void enter_scope(ThreadState& thread, const ScopeDomain& domain, std::string_view name) noexcept;
  void leave_level(ThreadState& thread, std::uint32_t level) noexcept;
  void retire_tracks(ThreadState& thread) noexcept;
  void abandon_open(ThreadState& thread) noexcept;
  std::uint32_t end_timed(ThreadState& thread, bool succeeded) noexcept;

  Parts parts_;
  std::atomic<std::uint64_t> without_slot_{0};
  std::atomic<std::uint32_t> next_range_{1};
  CostCounters cost_;
};

}  // namespace gpuflight::capture
