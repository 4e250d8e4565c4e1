#include "analysis/what_if.h"

#include <array>

namespace gpuflight::analysis {
namespace {

constexpr std::uint64_t kLargestCluster = 16;  // 8 is portable, 16 by the function attribute that allows it
constexpr std::array<const char*, kObstacleCount> kObstacleNames = {
    "block_too_large", "too_many_registers", "too_much_shared_memory", "no_clusters", "cluster_too_large"};

std::vector<Obstacle> obstacles_of(const WhatIf& what_if) {
  using event::Limiter;
  std::vector<Obstacle> out;
  const event::Occupancy& now = what_if.advice.now;
  const auto none = [&](Limiter limiter) { return now.limit_blocks[static_cast<std::size_t>(limiter)] == 0; };
  if (none(Limiter::kWarps)) out.push_back(Obstacle::kBlockTooLarge);
  if (none(Limiter::kRegisters)) out.push_back(Obstacle::kTooManyRegisters);
  if (none(Limiter::kSharedMem)) out.push_back(Obstacle::kTooMuchShared);
  const std::uint64_t cluster = what_if.scenario.shape.cluster.count();
  if (cluster > 1 && !what_if.scenario.device.cluster_launch) out.push_back(Obstacle::kNoClusters);
  if (cluster > kLargestCluster) out.push_back(Obstacle::kClusterTooLarge);
  return out;
}

}  // namespace

const char* obstacle_name(Obstacle obstacle) { return kObstacleNames[static_cast<std::size_t>(obstacle)]; }

WhatIf what_if_on(const event::DeviceInfo& board, const event::KernelInfo& kernel, const event::LaunchShape& shape,
                  std::int32_t barrier_blocks) {
  WhatIf out;
  out.arch = occupancy::architecture_name(board);
  out.scenario.device = board;
  out.scenario.kernel = kernel;
  out.scenario.shape = shape;
  out.scenario.barrier_blocks = barrier_blocks;
  out.advice = occupancy::advise(out.scenario);
  out.obstacles = obstacles_of(out);
  const auto cluster = static_cast<std::int64_t>(shape.cluster.count());
  if (cluster > 0 && board.cluster_launch && out.advice.now.max_active_blocks >= 0) {
    out.clusters_at_most = std::int64_t{out.advice.now.max_active_blocks} * board.sm_count / cluster;
  }
  return out;
}

KernelWhatIf what_if_elsewhere(const StudiedConfig& config, const std::vector<const event::DeviceInfo*>& boards) {
  KernelWhatIf out;
  out.config = config;
  const bool known =
      config.details && config.config_known && config.kernel.num_regs >= 0 && config.kernel.static_shared_bytes >= 0;
  if (!known) return out;
  const auto barriers = config.occupancy.limit_blocks[static_cast<std::size_t>(event::Limiter::kBarriers)];
  out.barriers_left_out = barriers >= 0 && barriers != event::kUnlimitedBlocks;
  for (const event::DeviceInfo* board : boards) {
    out.boards.push_back(what_if_on(*board, config.kernel, config.shape));
  }
  return out;
}

}  // namespace gpuflight::analysis
