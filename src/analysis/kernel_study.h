// One pass over logs for what explaining a kernel takes: each configuration with the facts of kernel, launch and board,
// its times, and what its grids leave of the chip. Memory grows with the number of configurations, bounded, never with
// the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/log_summary.h"

namespace gpuflight::analysis {

// What the grids of a configuration's launches mean for the board, added up launch by launch: grids may differ each
// time.
struct GridFacts {
  std::uint64_t launches = 0;  // whose grid is known
  Range<std::uint64_t> blocks;
  event::Dim3 grid;          // of the first
  std::uint64_t placed = 0;  // of launches: with a known number of blocks that run at once on the board
  Range<double> waves;
  std::uint64_t resident = 0;  // the whole grid runs at once: more blocks on an SM would find no work
  std::uint64_t small = 0;     // fewer blocks than SMs
  std::uint64_t tailed = 0;    // several waves, the last one not full
  // Time that the last wave, or the SMs without a block, would take at most if all blocks took equally long: shares
  // of the launches' own time, and ns of those whose time is known.
  double tail_share_sum = 0, small_share_sum = 0;
  double tail_ns = 0, small_ns = 0;

  void add(const event::Dim3& grid, const event::Occupancy& occupancy, const event::LaunchShape& shape,
           std::int32_t sm_count, std::optional<std::int64_t> duration_ns, std::uint64_t times = 1);
  void add(const GridFacts& other);
};

// Launches that took longer to launch than to run.
struct ShortLaunches {
  std::uint64_t compared = 0;  // host duration of the call and GPU time both known
  std::uint64_t shorter = 0;   // of these: GPU time below the call's
  double gap_ns = 0;           // by how much, added up
};

struct StudiedConfig {
  event::KernelInfo kernel;  // of the first launch
  event::LaunchShape shape;
  event::Occupancy occupancy;  // as recorded
  bool details = false;        // the log has registers, shared memory and occupancy
  bool config_known = false;
  std::optional<event::DeviceInfo> board;
  std::uint64_t launches = 0, failed = 0, captured = 0;
  Durations call, gpu, queue;
  GridFacts grids;
  ShortLaunches short_launches;
  double weight = 0;  // of the order: GPU time where it is known (of samples what they stand for), else launches
  double share = 0;   // of all weights

  std::uint64_t executed() const { return launches - std::min(launches, failed); }
  // Of launches with a time: how many each speaks for.
  double stands_for() const {
    if (gpu.count == 0 || executed() <= gpu.count) return 1;
    return static_cast<double>(executed()) / static_cast<double>(gpu.count);
  }
};

class KernelStudy {
 public:
  KernelStudy();

  void begin_log(const std::string& path);
  void add(const log::LogEvent& event);
  void end_log(const log::ReadStats& stats);

  const LogSummary& summary() const { return summary_; }
  bool by_gpu_time() const;  // what share and order are of: GPU time, else launches

  // Configurations with launches, most first; the same one on several boards of one kind, or in several logs, once.
  std::vector<StudiedConfig> configs() const;

 private:
  struct Row {
    StudiedConfig config;  // its times are in the summary's group
    std::uint32_t board = LogSummary::kNone;
  };
  void add_row(const log::LogEvent& event);
  void add_replays();
  std::uint32_t board_of(std::int32_t ordinal);

  LogSummary summary_;
  std::vector<Row> rows_;  // beside summary_.groups()
  std::vector<event::DeviceInfo> boards_;
  std::vector<std::uint32_t> ordinals_;  // of the present log: place in boards_
};

}  // namespace gpuflight::analysis
