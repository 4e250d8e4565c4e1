// A kernel, one way of launching it, and what that way gets on an SM: the facts that are the same for every launch
// of a configuration, computed once and referred to by ConfigId.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "event/ids.h"

namespace gpuflight::event {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  constexpr auto operator<=>(const Dim3&) const = default;
  constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// Facts of a compiled kernel on its device. A value the driver did not give is -1.
struct KernelInfo {
  std::string name;  // mangled, whole, whatever bytes it holds
  std::int32_t device = 0;
  std::int32_t num_regs = -1;
  std::int32_t static_shared_bytes = -1;
  std::int32_t local_bytes_per_thread = -1;  // spills and local arrays
  std::int32_t const_bytes = -1;
  std::int32_t max_threads_per_block = -1;
  std::int32_t max_dyn_shared_bytes = -1;
  std::int32_t binary_version = -1;  // 90 for sm_90
  std::int32_t ptx_version = -1;
  std::uint64_t module_hash = 0;  // 0: not known
};

// Launch configuration: the key under which occupancy is computed once.
struct LaunchShape {
  Dim3 block;
  std::uint32_t dyn_shared_bytes = 0;
  Dim3 cluster{0, 0, 0};        // 0,0,0: no clusters
  std::int32_t carveout = -1;   // preferred shared memory in percent of the SM's maximum; -1: the driver's default
  bool carveout_from_launch = false;  // given as launch attribute, which the driver's occupancy call cannot be told
  bool cooperative = false;
  bool over_dynamic_limit = false;  // more dynamic shared memory than the function has been set to allow: refused
  constexpr auto operator<=>(const LaunchShape&) const = default;
};

// In this order on a tie (format.md).
enum class Limiter : std::uint8_t { kWarps, kBlocks, kRegisters, kSharedMem, kBarriers, kCluster };
inline constexpr int kLimiterCount = 6;
inline constexpr std::array<const char*, kLimiterCount> kLimiterNames = {"warps",      "blocks",   "registers",
                                                                         "shared_mem", "barriers", "cluster"};
using LimiterSet = std::uint8_t;  // bit i: Limiter i
constexpr LimiterSet limiter_bit(Limiter l) { return static_cast<LimiterSet>(1u << static_cast<unsigned>(l)); }

enum class OccupancySource : std::uint8_t {
  kNone = 0,    // not computed (details off, table full, driver refused)
  kDriver = 1,  // max_active_blocks is the driver's own answer
  kModel = 2,   // the driver could not be asked (carve-out as launch attribute, no driver): the model's value
};

// Occupancy of one configuration. `limit_blocks[i]` answers "how many blocks would an SM hold if only limiter i
// existed"; -1: that limit does not apply or is not known. INT32_MAX: the kernel uses none of it.
// Limit of a resource of which the kernel uses none: unlike -1, "not known", it stands for a resource occupancy of 1.
inline constexpr std::int32_t kUnlimitedBlocks = INT32_MAX;

struct Occupancy {
  OccupancySource source = OccupancySource::kNone;
  std::int32_t max_active_blocks = -1;
  std::int32_t warps_per_block = 0;
  std::int32_t max_warps_per_sm = 0;
  std::array<std::int32_t, kLimiterCount> limit_blocks{-1, -1, -1, -1, -1, -1};
  LimiterSet limiters = 0;  // every tied limiter
  Limiter limiter = Limiter::kWarps;
  bool model_disagrees = false;  // driver and model differ and barriers do not explain it
  std::int32_t model_blocks = -1;
  std::int32_t max_active_clusters = -1;  // whole device; -1: no clusters or not known
};

struct KernelConfig {
  KernelId kernel;
  LaunchShape shape;
  Occupancy occupancy;
};

}  // namespace gpuflight::event
