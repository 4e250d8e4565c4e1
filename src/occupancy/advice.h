// What to change so that an SM holds one more block of a kernel, the least of each kind, and what that would bring. By
// the occupancy model alone: whether the kernel gets faster is another matter, which its users argue where they can.
//
// Three rules that tests hold over random configurations of all architectures:
//  1. A change is the smallest: with one unit less (a register, a byte, a percent, a warp of threads) the block is not
//     gained.
//  2. A change that gains nothing alone names the other limits that must give way too; made together they gain.
//  3. Where the SM is full there is nothing to advise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "event/kernel_config.h"
#include "occupancy/scenario.h"

namespace gpuflight::occupancy {

enum class Change : std::uint8_t {
  kRegisters,        // fewer registers per thread
  kSharedBytes,      // fewer bytes of shared memory per block, static and dynamic together
  kStaticToDynamic,  // static shared memory sized at the launch: one word of 4 bytes for each thread
  kCarveout,         // a larger preferred part of the SM's memory for shared memory, in percent
  kBarriers,         // fewer named barriers per block
  kBlockSize,        // another number of threads per block, registers and shared memory as they are
};
inline constexpr int kChangeCount = 6;
const char* change_name(Change change);  // "registers": stable, for JSON
const char* rule_source(Change change);  // where the rule comes from

// The compiler goes no lower: what the ABI takes.
inline constexpr std::int32_t kLeastRegisters = 16;

struct Advice {
  Change change = Change::kRegisters;
  std::int32_t from = -1, to = -1;           // in the unit of the change; from -1: not known
  event::Occupancy after;                    // with this change alone
  bool gains = false;                        // more warps on an SM than now, by this alone
  event::LimiterSet also = 0;                // limits that hold at the same number of blocks and must give way too
  std::optional<event::Occupancy> together;  // with the smallest changes of `also` as well; none: they cannot all be
  bool best = false;                         // block size: the answer of cudaOccupancyMaxPotentialBlockSize
};

struct AdviceList {
  event::Occupancy now;
  std::int32_t best_block = 0;  // cudaOccMaxPotentialOccupancyBlockSize's answer; 0: none
  std::optional<event::Occupancy> at_best_block;
  std::vector<Advice> advice;  // in the order of Change
};

AdviceList advise(const Scenario& scenario);

// The pieces of it. Each: the value nearest to the present one at which the limit by this resource alone is at least
// `blocks`; none: there is no such value.
std::optional<std::int32_t> fewer_registers(const Scenario& scenario, std::int32_t blocks);
std::optional<std::int32_t> fewer_shared_bytes(const Scenario& scenario, std::int32_t blocks);
std::optional<std::int32_t> larger_carveout(const Scenario& scenario, std::int32_t blocks);

// The largest block the kernel may be launched with: by its launch bounds where they are known, else by the device.
std::int32_t largest_block(const Scenario& scenario);

}  // namespace gpuflight::occupancy
