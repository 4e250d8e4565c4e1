#include "capture/device_query.h"

#include <cstdio>
#include <memory>

namespace gpuflight::capture {
namespace {

std::string uuid_text(const CUuuid& uuid) {
  const auto* const b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  char text[48];
  std::snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

}  // namespace

const event::DeviceInfo* DeviceQuery::describe(int ordinal) noexcept {
  if (ordinal < 0 || ordinal >= kMaxDevices) return nullptr;
  if (const event::DeviceInfo* const there = known(ordinal)) return there;
  try {
    auto device = std::make_unique<event::DeviceInfo>();
    if (!fill(ordinal, *device)) return nullptr;
    // Two threads may have asked at once: the first to finish stays, the other's is dropped.
    const event::DeviceInfo* expected = nullptr;
    if (devices_[ordinal].compare_exchange_strong(expected, device.get(), std::memory_order_acq_rel)) {
      described_.fetch_add(1, std::memory_order_relaxed);
      return device.release();
    }
    return expected;
  } catch (...) {
    return nullptr;
  }
}

bool DeviceQuery::fill(int ordinal, event::DeviceInfo& device) const {
  if (driver_.device_get == nullptr || driver_.device_get_attribute == nullptr) return false;
  CUdevice handle = 0;
  if (driver_.device_get(&handle, ordinal) != CUDA_SUCCESS) return false;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return driver_.device_get_attribute(&value, which, handle) == CUDA_SUCCESS ? value : 0;
  };
  device.device = ordinal;
  char text[256] = {};
  if (driver_.device_get_name != nullptr && driver_.device_get_name(text, sizeof text, handle) == CUDA_SUCCESS) {
    device.name = text;
  }
  CUuuid uuid{};
  if (driver_.device_get_uuid != nullptr && driver_.device_get_uuid(&uuid, handle) == CUDA_SUCCESS) {
    device.uuid = uuid_text(uuid);
  }
  if (driver_.device_get_pci_bus_id != nullptr &&
      driver_.device_get_pci_bus_id(text, sizeof text, handle) == CUDA_SUCCESS) {
    device.pci_bus_id = text;
  }
  std::size_t total = 0;
  if (driver_.device_total_mem != nullptr && driver_.device_total_mem(&total, handle) == CUDA_SUCCESS) {
    device.global_bytes = static_cast<std::int64_t>(total);
  }
  device.compute_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  device.compute_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  device.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  device.warp_size = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  device.max_threads_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  device.max_threads_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  device.max_blocks_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  device.regs_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  device.regs_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  device.shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  device.shared_bytes_per_block_optin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  device.shared_bytes_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  device.reserved_shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  device.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  device.sm_clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  device.memory_clock_khz = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  device.memory_bus_bits = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  device.copy_engines = attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  device.cooperative_launch = attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
  device.cluster_launch = attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  device.ecc = attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED) != 0;
  device.integrated = attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
  device.managed_memory = attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) != 0;
  device.memory_pools = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
  return device.sm_count > 0 && device.warp_size > 0;
}

}  // namespace gpuflight::capture
