#include "occupancy/occupancy_model.h"

#include <cuda_occupancy.h>

#include <algorithm>
#include <limits>

namespace gpuflight::occupancy {
namespace {

using event::DeviceInfo;
using event::Dim3;
using event::KernelInfo;
using event::LaunchShape;
using event::Limiter;
using event::Occupancy;

// Measured on sm_90: the driver gives floor(64 / (highest barrier id + 1)) blocks; an id known only at run time
// counts as 16.
constexpr std::int32_t kBarriersPerSm = 64;
constexpr std::int32_t kMaxBarriersPerBlock = 16;

// cuda_occupancy.h computes in int: sizes a launch could never have are cut to where its sums cannot overflow.
constexpr std::int64_t kAbsurdSharedBytes = std::int64_t{1} << 29;

constexpr std::size_t index(Limiter limiter) { return static_cast<std::size_t>(limiter); }

// 32-bit extents: their product may not fit 64 bits.
std::int64_t threads_of(const Dim3& block) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::uint64_t plane = std::uint64_t{block.x} * block.y;
  if (plane == 0 || block.z == 0) return 0;
  if (plane > kMost) return kMost;
  return static_cast<std::int64_t>(std::min(plane * block.z, kMost));
}

cudaOccDeviceProp properties_of(const DeviceInfo& device) {
  cudaOccDeviceProp properties;
  properties.computeMajor = device.compute_major;
  properties.computeMinor = device.compute_minor;
  properties.maxThreadsPerBlock = device.max_threads_per_block;
  properties.maxThreadsPerMultiprocessor = device.max_threads_per_sm;
  properties.regsPerBlock = device.regs_per_block;
  properties.regsPerMultiprocessor = device.regs_per_sm;
  properties.warpSize = device.warp_size;
  properties.sharedMemPerBlock = static_cast<std::size_t>(std::max(device.shared_bytes_per_block, 0));
  properties.sharedMemPerMultiprocessor = static_cast<std::size_t>(std::max(device.shared_bytes_per_sm, 0));
  properties.numSms = std::max(device.sm_count, 1);  // only checked for being positive
  properties.sharedMemPerBlockOptin = static_cast<std::size_t>(std::max(device.shared_bytes_per_block_optin, 0));
  properties.reservedSharedMemPerBlock =
      static_cast<std::size_t>(std::max(device.reserved_shared_bytes_per_block, 0));
  return properties;
}

cudaOccFuncAttributes attributes_of(const DeviceInfo& device, const KernelInfo& kernel) {
  const std::int64_t static_bytes = std::clamp<std::int64_t>(kernel.static_shared_bytes, 0, kAbsurdSharedBytes);
  // Where the kernel's limit is not known it is taken as opted in: the default limit of 48 KiB would give 0 blocks to
  // a launch that did run.
  const std::int64_t most_dynamic = kernel.max_dyn_shared_bytes >= 0
                                        ? kernel.max_dyn_shared_bytes
                                        : device.shared_bytes_per_block_optin - static_bytes;
  cudaOccFuncAttributes attributes;
  attributes.maxThreadsPerBlock = device.max_threads_per_block;
  attributes.numRegs = std::clamp(kernel.num_regs, 0, 1024);  // more than any thread can have: 0 blocks either way
  attributes.sharedSizeBytes = static_cast<std::size_t>(static_bytes);
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = static_cast<std::size_t>(std::max<std::int64_t>(most_dynamic, 0));
  attributes.numBlockBarriers = 0;  // no function attribute holds it
  return attributes;
}

cudaOccDeviceState state_of(const LaunchShape& shape) {
  cudaOccDeviceState state;
  // A percentage; the header refuses what the driver ignores.
  state.carveoutConfig = shape.carveout >= 0 && shape.carveout <= 100 ? shape.carveout : -1;
  return state;
}

// False: nothing can be said (device attributes missing, an empty block).
bool run_model(const DeviceInfo& device, const KernelInfo& kernel, const LaunchShape& shape, std::int64_t threads,
               cudaOccResult& result) {
  cudaOccDeviceProp properties = properties_of(device);
  const cudaOccFuncAttributes attributes = attributes_of(device, kernel);
  const cudaOccDeviceState state = state_of(shape);
  // One thread too many is as impossible as a million, and keeps the header's products small.
  const int block = static_cast<int>(std::min<std::int64_t>(threads, std::int64_t{device.max_threads_per_block} + 1));
  const std::size_t dynamic = static_cast<std::size_t>(std::min<std::int64_t>(shape.dyn_shared_bytes,
                                                                              kAbsurdSharedBytes));
  if (device.max_threads_per_block <= 0 || device.max_threads_per_block > 65536) return false;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state, block, dynamic) ==
      CUDA_OCC_SUCCESS) {
    return true;
  }
  properties.computeMajor = 9;
  properties.computeMinor = 0;
  if (device.max_blocks_per_sm <= 0 ||
      cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state, block, dynamic) !=
          CUDA_OCC_SUCCESS) {
    return false;
  }
  result.blockLimitBlocks = device.max_blocks_per_sm;
  return true;
}

bool is_barrier_count(std::int32_t blocks) {
  for (std::int32_t k = 1; k <= kMaxBarriersPerBlock; ++k) {
    if (blocks == kBarriersPerSm / k) return true;
  }
  return false;
}

std::int32_t cluster_limit(const DeviceInfo& device, const LaunchShape& shape, std::int32_t clusters) {
  const std::int64_t blocks_per_cluster = threads_of(shape.cluster);  // 0: no clusters
  if (blocks_per_cluster == 0 || clusters < 0 || device.sm_count <= 0) return -1;
  const std::int64_t blocks = blocks_per_cluster * clusters;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>((blocks + device.sm_count - 1) / device.sm_count, kUnlimitedBlocks));
}

// The smallest of the limits that cuda_occupancy.h knows; -1 where it knows none.
std::int32_t smallest_model_limit(const Occupancy& occupancy) {
  std::int32_t smallest = -1;
  for (const Limiter limiter : {Limiter::kWarps, Limiter::kBlocks, Limiter::kRegisters, Limiter::kSharedMem}) {
    const std::int32_t limit = occupancy.limit_blocks[index(limiter)];
    if (limit >= 0 && (smallest < 0 || limit < smallest)) smallest = limit;
  }
  return smallest;
}

void set_model_limits(Occupancy& occupancy, const cudaOccResult& result, const KernelInfo& kernel) {
  auto& limits = occupancy.limit_blocks;
  limits[index(Limiter::kWarps)] = result.blockLimitWarps;
  limits[index(Limiter::kBlocks)] = result.blockLimitBlocks;
  limits[index(Limiter::kRegisters)] = kernel.num_regs < 0 ? -1 : result.blockLimitRegs;
  limits[index(Limiter::kSharedMem)] = kernel.static_shared_bytes < 0 ? -1 : result.blockLimitSharedMem;
  occupancy.model_blocks = smallest_model_limit(occupancy);
}

// Barriers or a disagreement: what is left when the driver does not say what the model says.
void compare_with_driver(Occupancy& occupancy) {
  const std::int32_t driver = occupancy.max_active_blocks;
  if (occupancy.model_blocks < 0 || driver == occupancy.model_blocks) return;
  if (driver < occupancy.model_blocks && is_barrier_count(driver)) {
    occupancy.limit_blocks[index(Limiter::kBarriers)] = driver;
  } else {
    occupancy.model_disagrees = true;
  }
}

void name_limiters(Occupancy& occupancy) {
  std::int32_t smallest = -1;
  for (const std::int32_t limit : occupancy.limit_blocks) {
    if (limit >= 0 && (smallest < 0 || limit < smallest)) smallest = limit;
  }
  for (int i = event::kLimiterCount - 1; smallest >= 0 && i >= 0; --i) {
    if (occupancy.limit_blocks[static_cast<std::size_t>(i)] != smallest) continue;
    occupancy.limiter = static_cast<Limiter>(i);
    occupancy.limiters |= event::limiter_bit(occupancy.limiter);
  }
  const Ratio ratio = occupancy_ratio(occupancy);
  const bool full = ratio.known() && ratio.num >= ratio.den;
  if (full && occupancy.limit_blocks[index(Limiter::kCluster)] != 0) {
    occupancy.limiter = Limiter::kWarps;
    occupancy.limiters |= event::limiter_bit(Limiter::kWarps);
  }
}

}  // namespace

Occupancy compute_occupancy(const DeviceInfo& device, const KernelInfo& kernel, const LaunchShape& shape,
                            DriverAnswer driver) noexcept {
  Occupancy occupancy;
  const std::int64_t threads = threads_of(shape.block);
  if (threads == 0 || device.warp_size <= 0) return occupancy;
  occupancy.warps_per_block = static_cast<std::int32_t>((threads + device.warp_size - 1) / device.warp_size);
  occupancy.max_warps_per_sm = device.max_warps_per_sm();

  cudaOccResult result{};
  const bool modelled = run_model(device, kernel, shape, threads, result);
  if (modelled) set_model_limits(occupancy, result, kernel);

  if (driver.max_active_blocks >= 0 && !shape.carveout_from_launch) {
    occupancy.source = event::OccupancySource::kDriver;
    occupancy.max_active_blocks = driver.max_active_blocks;
    compare_with_driver(occupancy);
  } else if (modelled) {
    occupancy.source = event::OccupancySource::kModel;
    occupancy.max_active_blocks = occupancy.model_blocks;
  } else {
    return occupancy;
  }

  occupancy.limit_blocks[index(Limiter::kCluster)] = cluster_limit(device, shape, driver.max_active_clusters);
  if (occupancy.limit_blocks[index(Limiter::kCluster)] >= 0) {
    occupancy.max_active_clusters = driver.max_active_clusters;
  }
  name_limiters(occupancy);
  return occupancy;
}

std::int32_t best_block_size(const DeviceInfo& device, const KernelInfo& kernel, const LaunchShape& shape) noexcept {
  const cudaOccDeviceProp properties = properties_of(device);
  cudaOccFuncAttributes attributes = attributes_of(device, kernel);
  const cudaOccDeviceState state = state_of(shape);
  if (kernel.max_threads_per_block > 0) attributes.maxThreadsPerBlock = kernel.max_threads_per_block;
  const std::size_t dynamic = static_cast<std::size_t>(std::min<std::int64_t>(shape.dyn_shared_bytes,
                                                                              kAbsurdSharedBytes));
  int blocks = 0, threads = 0;
  if (cudaOccMaxPotentialOccupancyBlockSize(&blocks, &threads, &properties, &attributes, &state, nullptr, dynamic) !=
      CUDA_OCC_SUCCESS) {
    return 0;
  }
  return threads;
}

std::int32_t shared_unit_bytes(const DeviceInfo& device) noexcept {
  const cudaOccDeviceProp properties = properties_of(device);
  int bytes = 0;
  return cudaOccSMemAllocationGranularity(&bytes, &properties) == CUDA_OCC_SUCCESS ? bytes : 0;
}

double Ratio::value() const noexcept {
  return known() ? static_cast<double>(num) / static_cast<double>(den) : std::numeric_limits<double>::quiet_NaN();
}

Ratio occupancy_ratio(const Occupancy& occupancy) noexcept {
  if (occupancy.max_active_blocks < 0 || occupancy.max_warps_per_sm <= 0) return {};
  return {static_cast<std::uint64_t>(occupancy.max_active_blocks) *
              static_cast<std::uint64_t>(std::max(occupancy.warps_per_block, 0)),
          static_cast<std::uint64_t>(occupancy.max_warps_per_sm)};
}

Ratio resource_ratio(const Occupancy& occupancy, Limiter limiter) noexcept {
  const std::int32_t limit = occupancy.limit_blocks[index(limiter)];
  if (limit < 0 || occupancy.max_warps_per_sm <= 0) return {};
  const std::uint64_t most = static_cast<std::uint64_t>(occupancy.max_warps_per_sm);
  return {std::min(static_cast<std::uint64_t>(limit) *
                       static_cast<std::uint64_t>(std::max(occupancy.warps_per_block, 0)),
                   most),
          most};
}

Ratio waves_ratio(std::uint64_t grid_blocks, const Occupancy& occupancy, std::int32_t sm_count) noexcept {
  if (occupancy.max_active_blocks <= 0 || sm_count <= 0) return {};
  return {grid_blocks,
          static_cast<std::uint64_t>(occupancy.max_active_blocks) * static_cast<std::uint64_t>(sm_count)};
}

}  // namespace gpuflight::occupancy
