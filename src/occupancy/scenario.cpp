#include "occupancy/scenario.h"

#include <algorithm>
#include <utility>

#include "occupancy/occupancy_model.h"

namespace gpuflight::occupancy {

using event::Limiter;

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
