// Launches through the driver's entry points, by the hooks library that was preloaded: no CUPTI, so no one subscriber
// slot and no cost of its callbacks, and neither correlation ids nor GPU times.
//
// Threads: start and stop on the thread that initialises CUDA, or the API's caller (serialised by the recorder); hooked
// calls on any app thread. A hit takes no lock, allocates nothing and makes at most one driver call (cuCtxGetCurrent).
// Errors of the driver are handed on as they are. Never destroyed.
#pragma once

#include <atomic>
#include <string>

#include "capture/context_table.h"
#include "capture/driver_call_reader.h"
#include "capture/hook_link.h"
#include "capture/launch_source.h"

namespace gpuflight::capture {

class InterposeSource final : public LaunchSource, private ContextSource {
 public:
  // `inside_init`: started inside the program's cuInit, which then must have come through the hook. `time_each_call`:
  // of launches that follow one another closely too (launch_hit.h).
  InterposeSource(const DriverCallReader::Parts& parts, const DriverApi& driver, HotPage& page, bool inside_init,
                  bool time_each_call);

  const char* name() const noexcept override { return "interpose"; }
  SourceStatus start(std::string& problem) noexcept override;
  void stop(bool release) noexcept override;

  // Takes over from a source that is about to end, whose ids of contexts are kept.
  SourceStatus take_over(ContextSource& from, std::string& problem) noexcept;

  // Whether launches can be seen so; `problem` says why not.
  bool usable(std::string& problem) const noexcept;

  // For the hooks (interpose_hooks.cpp).
  bool begin(CUpti_CallbackId id, const char* name, const void* params, CUpti_CallbackData& data) noexcept;
  void end(CUpti_CallbackId id, const CUresult& result, CUpti_CallbackData& data) noexcept;
  // The return of a launch that was a hit, where that is more than a hit can do.
  void end_hit(CUpti_CallbackId id, const char* name, const CUresult& result) noexcept;
  // The id of the current context, if the thread knows it; else 0.
  std::uint32_t known_context(const ThreadState& thread) const noexcept;
  LaunchRecorder& recorder() const noexcept { return recorder_; }
  EventTimer* events() const noexcept { return calls_.events(); }
  const HotPage& page() const noexcept { return page_; }
  bool times_each_call() const noexcept { return time_each_call_; }

  void on_stream_destroy(CUstream stream) noexcept;
  void on_graph_exec_destroy(CUgraphExec exec) noexcept;
  void on_context_destroy(CUcontext context) noexcept;
  void on_primary_context_gone(CUdevice device) noexcept;

  static InterposeSource* current() noexcept { return g_current.load(std::memory_order_acquire); }

 private:
  // A stream that waits for another's event joins the capture that the other may be in.
  bool watch_edges() const noexcept { return calls_.edges() || calls_.was_blind(); }
  std::uint32_t uid_of(CUcontext context) noexcept override { return contexts_.uid_of(context); }
  std::int32_t device_of(CUcontext context) noexcept override { return contexts_.device_of(context); }
  CUcontext current_context() const noexcept;
  std::uint32_t look_up_context(ThreadState& thread, CUcontext context) noexcept;

  static std::atomic<InterposeSource*> g_current;

  LaunchRecorder& recorder_;
  HotPage& page_;
  const DriverApi& driver_;
  ContextTable contexts_;
  DriverCallReader calls_;
  hooks::HookTable* const table_;
  const bool inside_init_;
  const bool time_each_call_;
};

}  // namespace gpuflight::capture
