// Launches through CUPTI's driver-API callbacks. Driver callbacks suffice: every runtime launch reaches one.
//
// Threads: start and stop on the thread that initialises CUDA, or the API's caller (serialised by the recorder); the
// callback on any app thread. No lock of ours is held across a CUPTI call. Only the call ids needed are enabled, since
// each costs 210 to 300 ns.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "capture/cupti_api.h"
#include "capture/cupti_locator.h"
#include "capture/error_board.h"
#include "capture/launch_recorder.h"
#include "capture/launch_source.h"

namespace gpuflight::capture {

struct WatchedCall;

class CuptiSource final : public LaunchSource {
 public:
  // What was chosen, for session_start and doctor.
  struct Choice {
    std::string path;
    std::string reason;
    std::uint32_t version = 0;
  };

  CuptiSource(LaunchRecorder& recorder, KernelResolver& resolver, StreamTable& streams, GraphTable& graphs,
              DeviceQuery& devices, MarkerBoard* markers, ErrorBoard& errors, NoticeBoard& notices, std::string explicit_path,
              int driver_version, bool edges);

  const char* name() const noexcept override { return "cupti"; }
  SourceStatus start(std::string& problem) noexcept override;
  void stop(bool release) noexcept override;

  const Choice& choice() const noexcept { return choice_; }
  const SharedObject& library() const noexcept { return library_; }

 private:
  static void CUPTIAPI on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void* data) noexcept;
  bool on_launch_hit(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_driver_enter(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_driver_exit(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_watched_call(ThreadState& thread, const WatchedCall& watched, const CUpti_CallbackData& data) noexcept;
  void on_return(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data, const char* name) noexcept;
  void on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) noexcept;
  void on_sticky_error(ThreadState& thread, std::int32_t status, const CUpti_CallbackData& data,
                       const char* name) noexcept;
  void on_multi_device(ThreadState& thread, const CUpti_CallbackData& data) noexcept;

  static std::int32_t device_of(void* self, const void* context) noexcept;
  SourceStatus choose(std::string& problem);
  SourceStatus subscribe(std::string& problem);
  template <class Ids>
  bool enable(bool on, CUpti_CallbackDomain domain, const Ids& ids, std::string* problem) noexcept;
  bool enable_state(std::string& problem) noexcept;
  bool enable_launches(bool on, std::string& problem) noexcept;

  LaunchRecorder& recorder_;
  const HotPage& page_;
  KernelResolver& resolver_;
  StreamTable& streams_;
  GraphTable& graphs_;
  DeviceQuery& devices_;
  MarkerBoard* const markers_;  // null: no marks
  ErrorBoard& errors_;
  NoticeBoard& notices_;
  const std::string explicit_path_;
  const int driver_version_;
  const bool edges_;  // record and wait calls of events are recorded

  SharedObject library_;
  CuptiApi cupti_;
  Choice choice_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> was_blind_{false};  // the slot was given up once: captures may have begun unseen
};

}  // namespace gpuflight::capture
