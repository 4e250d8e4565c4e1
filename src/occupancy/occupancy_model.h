// How many blocks of a kernel one SM holds, and which resource says so: NVIDIA's cuda_occupancy.h for the breakdown,
// the driver's own number where there is one. Needs no GPU and no driver.
//
// Called inside other people's processes on a miss of the launch cache, on the launching thread: pure, never blocks,
// never allocates, never throws; owns nothing.
#pragma once

#include <cstdint>

#include "event/device_info.h"
#include "event/kernel_config.h"

namespace gpuflight::occupancy {

// What the driver said of a configuration; -1: not asked, or it refused.
struct DriverAnswer {
  std::int32_t max_active_blocks = -1;    // cuOccupancyMaxActiveBlocksPerMultiprocessor
  std::int32_t max_active_clusters = -1;  // cuOccupancyMaxActiveClusters, whole device
};

// Limit of a resource of which the kernel uses none (no shared memory on a board that reserves none): unlike -1, "not
// known", it stands for a resource occupancy of 1.
using event::kUnlimitedBlocks;

// The rules, in order:
//  - max_active_blocks is the driver's answer. The model's stands in only where there is none, or where the carve-out
//    is a launch attribute, of which the driver's call cannot be told; `source` says which.
//  - The limits by warps, blocks, registers and shared memory are cuda_occupancy.h's, with the opt-in limit of shared
//    memory. They are the same whether or not the driver answered.
//  - A driver's answer below the model's that is floor(64 / k), k = 1..16, is the mark of a kernel with k named
//    barriers: that is the limit by barriers. Any other difference only sets model_disagrees, and the limiter is then
//    the model's.
//  - The limit by clusters is the average number of blocks per SM when the device is full of clusters, rounded up.
//    Clusters do not straddle GPCs, so a full device has a few idle SMs (clusters of 16 use 128 of 132): rounding down
//    would call that "0 blocks". Rounded up, clusters are named only where they cost a whole block per SM on average;
//    the exact figure is max_active_clusters. They never lower max_active_blocks: the driver's does not know of them
//    either.
//  - `limiters` holds every limit equal to the smallest, `limiter` the first of them in the enum's order. A full SM
//    is limited by warps; a cluster that fits nowhere (0 clusters) is limited by cluster whatever else holds.
//  - A launch that cannot be (block too large, too much shared memory, too many registers) has 0 blocks, and the
//    limits that are 0 are the limiters. A kernel's own __launch_bounds__ are not looked at: the driver's occupancy
//    call does not either, and the refused launch says so in its status.
//  - An architecture newer than the header is computed as Hopper with the device's own block limit.
event::Occupancy compute_occupancy(const event::DeviceInfo& device, const event::KernelInfo& kernel,
                                   const event::LaunchShape& shape, DriverAnswer driver = {}) noexcept;

// cudaOccMaxPotentialOccupancyBlockSize's answer: the block size with the most threads on an SM, the same shared memory
// in each block. At most what the kernel's launch bounds allow, where they are known. 0: none, or not known.
std::int32_t best_block_size(const event::DeviceInfo& device, const event::KernelInfo& kernel,
                             const event::LaunchShape& shape) noexcept;

// Shared memory goes to blocks in units of so many bytes; 0: an architecture the header does not know.
std::int32_t shared_unit_bytes(const event::DeviceInfo& device) noexcept;

// An exact ratio, so that a writer prints 5/6 to as many digits as it wants. den == 0: not known.
struct Ratio {
  std::uint64_t num = 0;
  std::uint64_t den = 0;
  constexpr bool known() const { return den != 0; }
  double value() const noexcept;  // NaN where not known
  constexpr bool operator==(const Ratio&) const = default;
};

// max_active_blocks * warps per block / warps of an SM.
Ratio occupancy_ratio(const event::Occupancy& occupancy) noexcept;

// The occupancy if only this limit existed, at most 1.
Ratio resource_ratio(const event::Occupancy& occupancy, event::Limiter limiter) noexcept;

// How often the device has to be filled to run the grid: blocks / (blocks per SM * SMs).
Ratio waves_ratio(std::uint64_t grid_blocks, const event::Occupancy& occupancy, std::int32_t sm_count) noexcept;

inline double theoretical_occupancy(const event::Occupancy& occupancy) noexcept {
  return occupancy_ratio(occupancy).value();
}
inline double resource_occupancy(const event::Occupancy& occupancy, event::Limiter limiter) noexcept {
  return resource_ratio(occupancy, limiter).value();
}
inline double waves(std::uint64_t grid_blocks, const event::Occupancy& occupancy, std::int32_t sm_count) noexcept {
  return waves_ratio(grid_blocks, occupancy, sm_count).value();
}

}  // namespace gpuflight::occupancy
