#include "analysis/kernel_study.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace gpuflight::analysis {
namespace {

constexpr SummaryLimits kLimits{.groups = 50'000, .configs = 100'000};
constexpr std::size_t kMostOrdinals = 1024;

bool same_board(const event::DeviceInfo& a, const event::DeviceInfo& b) {
  const auto facts = [](const event::DeviceInfo& d) {
    return std::tie(d.name, d.compute_major, d.compute_minor, d.sm_count, d.max_threads_per_sm, d.regs_per_sm,
                    d.shared_bytes_per_sm, d.shared_bytes_per_block_optin, d.max_blocks_per_sm);
  };
  return facts(a) == facts(b);
}

// Blocks that run at once on the whole board; 0: not known.
std::uint64_t blocks_at_once(const event::Occupancy& occupancy, const event::LaunchShape& shape,
                             std::int32_t sm_count) {
  if (occupancy.max_active_clusters > 0) {
    return static_cast<std::uint64_t>(occupancy.max_active_clusters) *
           std::max<std::uint64_t>(shape.cluster.count(), 1);
  }
  if (occupancy.max_active_blocks <= 0 || sm_count <= 0) return 0;
  return static_cast<std::uint64_t>(occupancy.max_active_blocks) * static_cast<std::uint64_t>(sm_count);
}

}  // namespace

void GridFacts::add(const event::Dim3& of, const event::Occupancy& occupancy, const event::LaunchShape& shape,
                    std::int32_t sm_count, std::optional<std::int64_t> duration_ns, std::uint64_t times) {
  const std::uint64_t count = of.count();
  if (launches == 0) grid = of;
  launches += times;
  blocks.add(count);
  const std::uint64_t at_once = blocks_at_once(occupancy, shape, sm_count);
  if (at_once == 0 || count == 0) return;
  placed += times;
  const double turns = static_cast<double>(count) / static_cast<double>(at_once);
  waves.add(turns);
  const double time = duration_ns && *duration_ns > 0 ? static_cast<double>(*duration_ns) : 0;
  if (count <= at_once) resident += times;
  if (count < static_cast<std::uint64_t>(sm_count)) {
    const double idle = 1 - static_cast<double>(count) / sm_count;
    small += times;
    small_share_sum += idle * static_cast<double>(times);
    small_ns += idle * time;
  } else if (count > at_once && count % at_once != 0) {
    const double idle = 1 - turns / std::ceil(turns);
    tailed += times;
    tail_share_sum += idle * static_cast<double>(times);
    tail_ns += idle * time;
  }
}

void GridFacts::add(const GridFacts& other) {
  if (launches == 0) grid = other.grid;
  launches += other.launches;
  placed += other.placed;
  resident += other.resident;
  small += other.small;
  tailed += other.tailed;
  tail_share_sum += other.tail_share_sum;
  small_share_sum += other.small_share_sum;
  tail_ns += other.tail_ns;
  small_ns += other.small_ns;
  if (other.blocks.known) {
    blocks.add(other.blocks.min);
    blocks.add(other.blocks.max);
  }
  if (other.waves.known) {
    waves.add(other.waves.min);
    waves.add(other.waves.max);
  }
}

KernelStudy::KernelStudy() : summary_(GroupBy::kConfig, kLimits) { summary_.collect_replays(); }

void KernelStudy::begin_log(const std::string& path) {
  summary_.begin_log(path);
  ordinals_.clear();
}

std::uint32_t KernelStudy::board_of(std::int32_t ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= kMostOrdinals) return LogSummary::kNone;
  const auto at = static_cast<std::size_t>(ordinal);
  if (at >= ordinals_.size()) ordinals_.resize(at + 1, LogSummary::kNone);
  if (ordinals_[at] != LogSummary::kNone) return ordinals_[at];
  for (const event::DeviceInfo& device : summary_.logs().back().devices) {
    if (device.device != ordinal) continue;
    const auto found = std::find_if(boards_.begin(), boards_.end(),
                                    [&](const event::DeviceInfo& known) { return same_board(known, device); });
    ordinals_[at] = static_cast<std::uint32_t>(found - boards_.begin());
    if (found == boards_.end()) boards_.push_back(device);
  }
  return ordinals_[at];
}

void KernelStudy::add_row(const log::LogEvent& event) {
  rows_.emplace_back();
  const auto fill = [&](const auto& line) {
    StudiedConfig& config = rows_.back().config;
    config.kernel = line.kernel;
    config.shape = line.shape;
    config.occupancy = line.occupancy;
    config.details = line.details;
    config.config_known = line.config_known;
    rows_.back().board = board_of(line.kernel.device);
  };
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) fill(*kernel);
  if (const auto* sum = std::get_if<log::KernelSummaryLine>(&event)) fill(*sum);
  if (const auto* graph = std::get_if<log::GraphKernelLine>(&event)) fill(*graph);
}

void KernelStudy::end_log(const log::ReadStats& stats) {
  summary_.end_log(stats);
  add_replays();
}

// Launches by graphs, of which no times are told.
void KernelStudy::add_replays() {
  for (const LogSummary::Replay& replay : summary_.take_replays()) {
    if (replay.group >= rows_.size()) continue;
    Row& row = rows_[replay.group];
    const bool known = row.board != LogSummary::kNone;
    row.config.grids.add(replay.grid, row.config.occupancy, row.config.shape, known ? boards_[row.board].sm_count : 0,
                         std::nullopt, replay.times);
  }
}

void KernelStudy::add(const log::LogEvent& event) {
  const auto* const kernel = std::get_if<log::KernelEventLine>(&event);
  const auto* const sum = std::get_if<log::KernelSummaryLine>(&event);
  if (kernel != nullptr) summary_.set_config_tag(board_of(kernel->kernel.device));
  if (sum != nullptr) summary_.set_config_tag(board_of(sum->kernel.device));
  const auto* const in_graph = std::get_if<log::GraphKernelLine>(&event);
  if (in_graph != nullptr) summary_.set_config_tag(board_of(in_graph->kernel.device));
  summary_.add(event);
  if (summary_.groups().size() > rows_.size()) add_row(event);
  add_replays();
  const std::uint32_t at = summary_.group_of_last();
  if (at == LogSummary::kNone) return;
  if (kernel == nullptr || kernel->launch.captured || kernel->launch.status.value_or(0) != 0) return;
  Row& row = rows_[at];
  const bool known = row.board != LogSummary::kNone;
  row.config.grids.add(kernel->launch.grid, row.config.occupancy, row.config.shape,
                       known ? boards_[row.board].sm_count : 0, kernel->duration_ns);
  // A time by events may have the call in it, and says nothing beside it.
  if (!kernel->launch.call_ns || !kernel->duration_ns || kernel->timed_by_events) return;
  ShortLaunches& shorts = row.config.short_launches;
  const std::int64_t gap = *kernel->launch.call_ns - *kernel->duration_ns;
  ++shorts.compared;
  shorts.shorter += gap > 0;
  shorts.gap_ns += static_cast<double>(std::max<std::int64_t>(gap, 0));
}

bool KernelStudy::by_gpu_time() const {
  const LaunchGroup totals = summary_.totals();
  const std::uint64_t missing = totals.executed() - std::min(totals.executed(), totals.gpu.count);
  return totals.gpu.total_ns > 0 && (summary_.sampled() || missing <= totals.executed() / 10);
}

std::vector<StudiedConfig> KernelStudy::configs() const {
  const bool timed = by_gpu_time(), sampled = timed && summary_.sampled();
  using Key = std::tuple<std::string, std::uint32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t,
                         event::LaunchShape>;
  std::map<Key, std::size_t> places;
  std::vector<StudiedConfig> out;
  double all = 0;
  for (std::size_t i = 0; i < rows_.size() && i < summary_.groups().size(); ++i) {
    const LaunchGroup& group = summary_.groups()[i];
    const Row& row = rows_[i];
    if (group.launches == 0 || group.label == kOtherGroups) continue;
    const event::KernelInfo& kernel = row.config.kernel;
    const Key key{kernel.name,
                  row.board,
                  kernel.num_regs,
                  kernel.static_shared_bytes,
                  kernel.local_bytes_per_thread,
                  row.config.occupancy.max_active_blocks,
                  row.config.shape};
    const auto [place, fresh] = places.try_emplace(key, out.size());
    if (fresh) {
      out.push_back(row.config);
      if (row.board != LogSummary::kNone) {
        out.back().board = boards_[row.board];
        // The log has a ratio only, of which the warps are worked out; the board has the number itself.
        out.back().occupancy.max_warps_per_sm = boards_[row.board].max_warps_per_sm();
      }
    } else {
      StudiedConfig& known = out[place->second];
      known.grids.add(row.config.grids);
      known.short_launches.compared += row.config.short_launches.compared;
      known.short_launches.shorter += row.config.short_launches.shorter;
      known.short_launches.gap_ns += row.config.short_launches.gap_ns;
    }
    StudiedConfig& config = out[place->second];
    config.launches += group.launches;
    config.failed += group.failed;
    config.captured += group.captured;
    config.call.add(group.call);
    config.gpu.add(group.gpu);
    config.queue.add(group.queue);
    const double weight = sampled ? group.estimated_total_ns().value_or(0)
                          : timed ? static_cast<double>(group.gpu.total_ns)
                                  : static_cast<double>(group.launches);
    config.weight += weight;
    all += weight;
  }
  for (StudiedConfig& config : out) config.share = all > 0 ? config.weight / all : 0;
  std::stable_sort(out.begin(), out.end(), [](const StudiedConfig& a, const StudiedConfig& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.kernel.name < b.kernel.name;
  });
  return out;
}

}  // namespace gpuflight::analysis
