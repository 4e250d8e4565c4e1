// A kernel on boards that are not there: the facts behind `gpuflight occupancy`. Assumed is what cannot be known: that
// the compiler gives the kernel the same registers and static shared memory there, and that it is launched with the
// same block. What it would spill there nobody knows before it is compiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/kernel_study.h"
#include "occupancy/advice.h"
#include "occupancy/architectures.h"
#include "occupancy/occupancy_curve.h"

namespace gpuflight::analysis {

// Why a launch cannot be on a board.
enum class Obstacle : std::uint8_t { kBlockTooLarge, kTooManyRegisters, kTooMuchShared, kNoClusters, kClusterTooLarge };
inline constexpr int kObstacleCount = 5;
const char* obstacle_name(Obstacle obstacle);

struct WhatIf {
  std::string arch;  // "sm_86"
  occupancy::Scenario scenario;
  occupancy::AdviceList advice;     // .now is the answer
  std::vector<Obstacle> obstacles;  // empty: it can be launched
  // With clusters: how many the board could hold if none of them had to keep to one GPC, which the driver knows alone.
  std::optional<std::int64_t> clusters_at_most;
};

WhatIf what_if_on(const event::DeviceInfo& board, const event::KernelInfo& kernel, const event::LaunchShape& shape,
                  std::int32_t barrier_blocks = -1);

struct KernelWhatIf {
  StudiedConfig config;
  std::vector<WhatIf> boards;      // empty: the log has not what it takes
  bool barriers_left_out = false;  // they limit on the recorded board; what they are elsewhere is not known
};

KernelWhatIf what_if_elsewhere(const StudiedConfig& config, const std::vector<const event::DeviceInfo*>& boards);

}  // namespace gpuflight::analysis
