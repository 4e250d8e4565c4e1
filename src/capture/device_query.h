// The devices that were used, each described once.
//
// Threads: any adds (first use of a device in a context: locks, calls the driver outside the lock), the recorder reads.
#pragma once

#include <array>
#include <atomic>

#include "capture/driver_api.h"
#include "event/device_info.h"

namespace gpuflight::capture {

class DeviceQuery {
 public:
  static constexpr int kMaxDevices = 64;

  explicit DeviceQuery(const DriverApi& driver) : driver_(driver) {}

  // The description of `ordinal`, asked of the driver on first use; nullptr if it cannot be had. Stable for good.
  const event::DeviceInfo* describe(int ordinal) noexcept;

  // Whether more than one was used.
  bool several() const noexcept { return described_.load(std::memory_order_relaxed) > 1; }

  // What has been described so far.
  const event::DeviceInfo* known(int ordinal) const noexcept {
    return ordinal >= 0 && ordinal < kMaxDevices ? devices_[ordinal].load(std::memory_order_acquire) : nullptr;
  }

 private:
  bool fill(int ordinal, event::DeviceInfo& device) const;

  const DriverApi& driver_;
  std::array<std::atomic<const event::DeviceInfo*>, kMaxDevices> devices_{};
  std::atomic<int> described_{0};
};

}  // namespace gpuflight::capture
