// Short ways to write down a board, a kernel and a launch in the tests of the occupancy model.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "event/board.h"
#include "event/kernel_config.h"

namespace gpuflight::occupancy {

using event::DeviceInfo;
using event::Dim3;
using event::KernelInfo;
using event::LaunchShape;
using event::Limiter;
using event::limiter_bit;
using event::Occupancy;
using event::OccupancySource;

inline const DeviceInfo& board(std::string_view name) {
  const DeviceInfo* found = event::find_board(name);
  if (!found) throw std::runtime_error("no board " + std::string(name));
  return *found;
}

inline KernelInfo kernel(int regs, int static_shared = 0) {
  KernelInfo info;
  info.num_regs = regs;
  info.static_shared_bytes = static_shared;
  return info;
}

inline LaunchShape shape(std::uint32_t threads, std::uint32_t dynamic_shared = 0) {
  LaunchShape out;
  out.block = {threads, 1, 1};
  out.dyn_shared_bytes = dynamic_shared;
  return out;
}

inline std::int32_t limit(const Occupancy& o, Limiter l) { return o.limit_blocks[static_cast<std::size_t>(l)]; }

}  // namespace gpuflight::occupancy
