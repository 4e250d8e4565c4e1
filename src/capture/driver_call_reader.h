// From a driver call to what LaunchRecorder is told of it: the same for all sources. A call comes as CUPTI tells of it,
// by its callback id and a struct of its arguments; a source that is not CUPTI fills in the same.
//
// Threads: on_* by any app thread, inside its driver call. No lock of ours is held across a driver call. May block and
// allocate on a miss of the thread's caches only. Owned by its source.
#pragma once

#include <atomic>
#include <cupti.h>

#include "capture/error_board.h"
#include "capture/graph_call_reader.h"
#include "capture/launch_recorder.h"

namespace gpuflight::capture {

struct WatchedCall;

// What a source knows of contexts. Ids are never used twice; 0: none. Asked on a miss only.
class ContextSource {
 public:
  virtual std::uint32_t uid_of(CUcontext context) noexcept = 0;
  virtual std::int32_t device_of(CUcontext context) noexcept = 0;  // ordinal; -1: cannot be told

 protected:
  ~ContextSource() = default;
};

class DriverCallReader {
 public:
  struct Parts {
    LaunchRecorder& recorder;
    KernelResolver& resolver;
    StreamTable& streams;
    GraphTable& graphs;
    DeviceQuery& devices;
    MarkerBoard* markers;  // null: no marks
    ErrorBoard& errors;
    NoticeBoard& notices;
    bool edges;  // record and wait calls of events are recorded
    EventTimer* events = nullptr;  // null: launches are not timed by events
  };
  DriverCallReader(const Parts& parts, ContextSource& contexts)
      : recorder_(parts.recorder),
        resolver_(parts.resolver),
        streams_(parts.streams),
        graphs_(parts.graphs),
        devices_(parts.devices),
        markers_(parts.markers),
        errors_(parts.errors),
        contexts_(contexts),
        graph_calls_(
            {parts.recorder.driver(), parts.resolver, parts.graphs, parts.notices, contexts, &device_of, this}),
        edges_(parts.edges),
        events_(parts.events) {}

  LaunchRecorder& recorder() const noexcept { return recorder_; }
  bool edges() const noexcept { return edges_; }
  EventTimer* events() const noexcept { return events_; }
  void enable(bool on) noexcept { enabled_.store(on, std::memory_order_relaxed); }
  // The source saw nothing for a while: captures may have begun unseen.
  void note_blind() noexcept { was_blind_.store(true, std::memory_order_relaxed); }
  bool was_blind() const noexcept { return was_blind_.load(std::memory_order_relaxed); }

  // Another source begins before this one ends: what it has recorded at entry is not to be recorded again.
  void share(bool on) noexcept { shared_.store(on, std::memory_order_seq_cst); }

  // At entry and return, by `data.callbackSite`.
  void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;

  // What goes, before the driver takes it away.
  void on_module_unload() noexcept { resolver_.on_handles_released(); }
  void on_context_destroy(std::uint32_t uid) noexcept;
  void on_stream_destroy(CUstream stream, std::uint32_t context_uid) noexcept;
  void on_graph_exec_destroy(CUgraphExec exec) noexcept { graphs_.on_graph_exec_destroyed(exec); }

 private:
  void on_driver_enter(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_driver_exit(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_watched_call(ThreadState& thread, const WatchedCall& watched, const CUpti_CallbackData& data) noexcept;
  void on_return(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data, const char* name) noexcept;
  void on_end_capture(ThreadState& thread, bool per_thread_default, const CUpti_CallbackData& data,
                      CUresult status) noexcept;
  void on_sticky_error(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data,
                       const char* name) noexcept;
  void on_multi_device(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
  static std::int32_t device_of(void* self, const void* context) noexcept;

  LaunchRecorder& recorder_;
  KernelResolver& resolver_;
  StreamTable& streams_;
  GraphTable& graphs_;
  DeviceQuery& devices_;
  MarkerBoard* const markers_;
  ErrorBoard& errors_;
  ContextSource& contexts_;
  GraphCallReader graph_calls_;
  const bool edges_;
  EventTimer* const events_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> was_blind_{false};
  std::atomic<bool> shared_{false};
};

}  // namespace gpuflight::capture
