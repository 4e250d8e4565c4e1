// A kernel as it could be compiled and launched on a board, which need not be there: what advice and what-ifs are
// about.
#pragma once

#include <cstdint>

#include "event/device_info.h"
#include "event/kernel_config.h"

namespace gpuflight::occupancy {

struct Scenario {
  event::DeviceInfo device;
  event::KernelInfo kernel;  // its name plays no part
  event::LaunchShape shape;
  // Blocks that named barriers allow, from the driver's answer for the kernel as it is: no change of registers, shared
  // memory or block size moves it. -1: not known to limit.
  std::int32_t barrier_blocks = -1;

  // Of sizes that no launch can have (logs may hold anything) as much as still adds up.
  std::int32_t threads() const;
  std::int32_t shared_bytes() const;  // static and dynamic together
};

// By the model alone, with the barriers' limit beside it.
event::Occupancy what_if(const Scenario& scenario) noexcept;

// The same with other values. Shared bytes: of both kinds together; dynamic ones go first.
Scenario with_registers(Scenario scenario, std::int32_t registers);
Scenario with_shared_bytes(Scenario scenario, std::int32_t bytes);
Scenario with_carveout(Scenario scenario, std::int32_t percent);
Scenario with_block(Scenario scenario, std::int32_t threads);

}  // namespace gpuflight::occupancy
