// What one device is: everything the occupancy model and the roofline need. Filled from cuDeviceGetAttribute by
// capture, from a preset by the calculator and the simulated device, from a device_info line by the tools.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace gpuflight::event {

struct DeviceInfo {
  std::int32_t device = 0;  // CUDA ordinal in this process
  std::string name;
  std::string uuid;          // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; empty: not known
  std::string pci_bus_id;    // "0000:0B:00.0"; empty: not known
  std::int32_t compute_major = 0;
  std::int32_t compute_minor = 0;
  std::int32_t sm_count = 0;
  std::int32_t warp_size = 32;
  std::int32_t max_threads_per_block = 0;
  std::int32_t max_threads_per_sm = 0;
  std::int32_t max_blocks_per_sm = 0;
  std::int32_t regs_per_block = 0;  // 32-bit registers
  std::int32_t regs_per_sm = 0;
  std::int32_t shared_bytes_per_block = 0;        // without opt-in (48 KiB)
  std::int32_t shared_bytes_per_block_optin = 0;  // the most one block can ask for
  std::int32_t shared_bytes_per_sm = 0;
  std::int32_t reserved_shared_bytes_per_block = 0;  // the driver's own share of every block (attribute 111)
  std::int32_t l2_bytes = 0;
  std::int64_t global_bytes = 0;
  std::int32_t sm_clock_khz = 0;
  std::int32_t memory_clock_khz = 0;
  std::int32_t memory_bus_bits = 0;
  std::int32_t copy_engines = 0;
  bool cooperative_launch = false;
  bool cluster_launch = false;
  bool ecc = false;
  bool integrated = false;
  bool managed_memory = false;
  bool memory_pools = false;

  std::int32_t max_warps_per_sm() const { return warp_size > 0 ? max_threads_per_sm / warp_size : 0; }
};

}  // namespace gpuflight::event
