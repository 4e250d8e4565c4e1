// From a function handle and a launch shape to a configuration id: asks the driver for what it does not know, once.
//
// Threads: any, on a miss of the thread's launch cache, inside the driver's launch call. Calls the driver (never with a
// lock held), locks, allocates. The caller has set the thread's `inside` guard, since these calls come back as
// callbacks, and turned thread cancellation off.
//
// Handles are reused heavily: 1,000 modules loaded and unloaded in turn gave 83 distinct CUfunction values (H200). What
// is known of a handle holds for one module generation only.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "capture/device_query.h"
#include "capture/driver_api.h"
#include "capture/hot_page.h"
#include "capture/kernel_table.h"
#include "capture/launch_call.h"
#include "capture/notice_board.h"

namespace gpuflight::capture {

class KernelResolver {
 public:
  KernelResolver(const DriverApi& driver, DeviceQuery& devices, KernelTable& table, NoticeBoard& notices, HotPage& page,
                 bool details)
      : driver_(driver),
        devices_(devices),
        table_(table),
        notices_(notices),
        details_(details),
        page_(page) {}

  struct Result {
    event::ConfigId config;
    bool lasting = true;  // false: holds for this launch only, and may be another at the next one
  };
  Result resolve(const LaunchCall& call, std::int32_t device) noexcept;

  // A module, library or context goes: its handles may come back as something else.
  void on_handles_released() noexcept;

  // cuFuncSetAttribute, cuKernelSetAttribute, cuFuncSetCacheConfig returned 0 for `function`. Only a change of a value
  // that occupancy depends on counts: some libraries set the same value before every launch.
  void on_attribute_set(const void* function, int attribute, int value) noexcept;

  // Legacy cuFuncSetBlockShape and cuFuncSetSharedSize: kept until cuLaunch and cuLaunchGrid ask.
  void on_block_shape_set(const void* function, event::Dim3 block) noexcept;
  void on_shared_size_set(const void* function, std::uint32_t bytes) noexcept;
  void legacy_shape(const void* function, event::LaunchShape& shape) noexcept;

  // Grows when a configuration in some thread's cache may be wrong.
  std::uint32_t generation() const noexcept { return page_.config_generation.load(std::memory_order_acquire); }

  std::uint64_t occupancy_mismatches() const noexcept { return mismatches_.load(std::memory_order_relaxed); }

 private:
  void new_generation() noexcept {
    page_.config_generation.fetch_add(1, std::memory_order_release);
    page_.end_bursts();
  }

  struct Function {
    event::KernelId kernel;
    CUfunction handle = nullptr;  // what cuFunc* calls take; differs from the key for a CUkernel
    std::int32_t carveout = -1;
    event::Dim3 required_cluster{0, 0, 0};
    std::uint64_t generation = 0;
  };
  struct FunctionKey {
    const void* handle;
    std::uint32_t context_uid;
    bool operator==(const FunctionKey&) const = default;
  };
  struct FunctionHash {
    std::size_t operator()(const FunctionKey& k) const noexcept {
      return (reinterpret_cast<std::size_t>(k.handle) >> 4) * 31 + k.context_uid;
    }
  };
  struct LegacyShape {
    event::Dim3 block;
    std::uint32_t shared_bytes = 0;
  };

  Function look_up(const LaunchCall& call, std::int32_t device);
  Function ask(const LaunchCall& call, std::int32_t device);
  int ask_probe(const Function& function, const event::KernelInfo& kernel) const;
  int attribute(CUfunction_attribute which, CUfunction function, int unknown) const;
  event::Occupancy occupancy(const Function& function, const event::KernelInfo& kernel,
                             const event::LaunchShape& shape);
  int ask_clusters(CUfunction function, const event::LaunchShape& shape) const;

  const DriverApi& driver_;
  DeviceQuery& devices_;
  KernelTable& table_;
  NoticeBoard& notices_;
  const bool details_;
  HotPage& page_;
  std::atomic<std::uint64_t> mismatches_{0};
  std::mutex mutex_;
  std::unordered_map<FunctionKey, Function, FunctionHash> functions_;
  std::unordered_map<const void*, int> carveouts_set_;
  std::unordered_map<const void*, LegacyShape> legacy_;
};

}  // namespace gpuflight::capture
