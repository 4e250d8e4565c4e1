// Configurations of kernels that the GPU reports and no launch call named: nodes of graphs, launches by the device. One
// that was launched or captured the same way before has its row, with the driver's occupancy; else the GPU's record
// makes a row of its own, with the model's.
//
// Threads: the recorder thread. May call the driver (a device seen first), allocates on first sight of a kernel.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "capture/activity_record.h"
#include "capture/device_query.h"
#include "capture/kernel_table.h"

namespace gpuflight::capture {

class ActivityConfigs {
 public:
  ActivityConfigs(KernelTable& kernels, DeviceQuery& devices) : kernels_(kernels), devices_(devices) {}

  // 0: no room for it.
  event::ConfigId find(const ActivityRecord& record) noexcept;

 private:
  // What tells configurations apart in a record, beside the name.
  struct Key {
    std::size_t name_hash = 0;
    std::uint32_t device = 0;
    event::Dim3 block, cluster;
    std::uint32_t dyn_shared_bytes = 0;
    std::int32_t num_regs = 0, static_shared_bytes = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Known {
    std::string name;
    event::ConfigId config;
  };

  event::ConfigId look_up(const ActivityRecord& record, std::string_view name, std::size_t name_hash);
  event::ConfigId make(const ActivityRecord& record, std::string_view name);
  void index_new_configs();

  KernelTable& kernels_;
  DeviceQuery& devices_;
  std::unordered_multimap<Key, Known, Hash> known_;
  std::unordered_multimap<std::size_t, event::ConfigId> by_name_;  // rows of the table, by hash of the kernel's name
  std::uint32_t indexed_ = 0;
};

}  // namespace gpuflight::capture
