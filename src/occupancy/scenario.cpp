#include "occupancy/scenario.h"

#include <algorithm>
#include <utility>

#include "occupancy/occupancy_model.h"

namespace gpuflight::occupancy {

using event::Limiter;

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 28;

}  // namespace

std::int32_t Scenario::threads() const {
  const std::uint64_t plane = std::uint64_t{shape.block.x} * shape.block.y;
  const std::uint64_t most = static_cast<std::uint64_t>(kMost);
  if (plane > most) return shape.block.z == 0 ? 0 : static_cast<std::int32_t>(kMost);
  return static_cast<std::int32_t>(std::min(plane * shape.block.z, most));
}

std::int32_t Scenario::shared_bytes() const {
  const std::int64_t bytes = std::int64_t{kernel.static_shared_bytes} + std::int64_t{shape.dyn_shared_bytes};
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(bytes, 0, kMost));
}

event::Occupancy what_if(const Scenario& scenario) noexcept {
  event::Occupancy occupancy = compute_occupancy(scenario.device, scenario.kernel, scenario.shape);
  const std::int32_t barriers = scenario.barrier_blocks;
  if (barriers < 0 || occupancy.max_active_blocks < 0) return occupancy;
  if (barriers < occupancy.max_active_blocks) {
    occupancy = compute_occupancy(scenario.device, scenario.kernel, scenario.shape, {barriers, -1});
    occupancy.source = event::OccupancySource::kModel;
    return occupancy;
  }
  occupancy.limit_blocks[static_cast<std::size_t>(Limiter::kBarriers)] = barriers;
  if (barriers == occupancy.max_active_blocks) occupancy.limiters |= event::limiter_bit(Limiter::kBarriers);
  return occupancy;
}

Scenario with_registers(Scenario scenario, std::int32_t registers) {
  scenario.kernel.num_regs = registers;
  return scenario;
}

Scenario with_shared_bytes(Scenario scenario, std::int32_t bytes) {
  const std::int32_t kept = std::min(scenario.kernel.static_shared_bytes, bytes);
  scenario.kernel.static_shared_bytes = kept;
  scenario.shape.dyn_shared_bytes = static_cast<std::uint32_t>(std::max(bytes - kept, 0));
  return scenario;
}

Scenario with_carveout(Scenario scenario, std::int32_t percent) {
  scenario.shape.carveout = percent;
  return scenario;
}

Scenario with_block(Scenario scenario, std::int32_t threads) {
  scenario.shape.block = {static_cast<std::uint32_t>(std::max(threads, 0)), 1, 1};
  return scenario;
}

}  // namespace gpuflight::occupancy
