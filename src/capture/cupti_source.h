// Launches through CUPTI's driver-API callbacks. Driver callbacks suffice: every runtime launch reaches one.
//
// Threads: start and stop on the thread that initialises CUDA, or the API's caller (serialised by the recorder); the
// callback on any app thread. No lock of ours is held across a CUPTI call. Only the call ids needed are enabled, since
// each costs 210 to 300 ns.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "capture/cupti_api.h"
#include "capture/cupti_locator.h"
#include "capture/driver_call_reader.h"
#include "capture/launch_source.h"

namespace gpuflight::capture {

class CuptiSource final : public LaunchSource, public ContextSource {
 public:
  // What was chosen, for session_start and doctor.
  struct Choice {
    std::string path;
    std::string reason;
    std::uint32_t version = 0;
  };

  CuptiSource(const DriverCallReader::Parts& parts, std::string explicit_path, int driver_version);

  const char* name() const noexcept override { return "cupti"; }
  SourceStatus start(std::string& problem) noexcept override;
  void stop(bool release) noexcept override;

  std::uint32_t uid_of(CUcontext context) noexcept override;
  std::int32_t device_of(CUcontext context) noexcept override;
  // While another source takes over.
  void share(bool on) noexcept { calls_.share(on); }

  // What an empty callback at entry and return costs a call, measured now, in some milliseconds, by one that does
  // nothing. Null: not to be told (nothing subscribed, CUDA not ready, CUPTI does not call back for it).
  std::optional<double> measure_callback_ns(const DriverApi& driver) noexcept;

  const Choice& choice() const noexcept { return choice_; }
  const SharedObject& library() const noexcept { return library_; }

 private:
  static void CUPTIAPI on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void* data) noexcept;
  bool on_launch_hit(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) noexcept;

  SourceStatus choose(std::string& problem);
  SourceStatus subscribe(std::string& problem);
  template <class Ids>
  bool enable(bool on, CUpti_CallbackDomain domain, const Ids& ids, std::string* problem) noexcept;
  bool enable_state(std::string& problem) noexcept;
  bool enable_launches(bool on, std::string& problem) noexcept;

  LaunchRecorder& recorder_;
  const HotPage& page_;
  DriverCallReader calls_;
  const std::string explicit_path_;
  const int driver_version_;

  SharedObject library_;
  CuptiApi cupti_;
  Choice choice_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<bool> enabled_{false};
  std::atomic<std::uint32_t> probed_{0};  // callbacks of the call that a callback is measured by
};

}  // namespace gpuflight::capture
