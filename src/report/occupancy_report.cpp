#include "report/occupancy_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/advice_text.h"
#include "report/curve_plot.h"
#include "report/kernel_name.h"
#include "report/quantity.h"
#include "report/text_table.h"

namespace gpuflight::report {
namespace {

using analysis::KernelWhatIf;
using analysis::Obstacle;
using analysis::WhatIf;

constexpr const char* kUnknown = "-";

const char* bold(const OccupancyOptions& options) { return options.colour ? "\033[1m" : ""; }
const char* off(const OccupancyOptions& options) { return options.colour ? "\033[0m" : ""; }

std::string board_text(const event::DeviceInfo& board) {
  return fmt::format("{}, {} SMs", printable(board.name), board.sm_count);
}

std::string obstacle_text(Obstacle obstacle, const WhatIf& what_if) {
  const event::DeviceInfo& board = what_if.scenario.device;
  switch (obstacle) {
    case Obstacle::kBlockTooLarge:
      return fmt::format("a block has {} threads at most", board.max_threads_per_block);
    case Obstacle::kTooManyRegisters:
      return fmt::format("a block has {} registers at most, and a thread 255",
                         count_text(static_cast<std::uint64_t>(std::max(board.regs_per_block, 0))));
    case Obstacle::kTooMuchShared:
      return fmt::format("a block has {} of shared memory at most",
                         bytes_text(static_cast<std::uint64_t>(std::max(board.shared_bytes_per_block_optin, 0))));
    case Obstacle::kNoClusters:
      return "there are no clusters before sm_90";
    case Obstacle::kClusterTooLarge:
      return "a cluster has 16 blocks at most, and more than 8 by opt-in only";
  }
  return {};
}

std::string occupancy_text(const event::Occupancy& occupancy) {
  return occupancy.max_active_blocks < 0 ? kUnknown : percent_text(occupancy_value(occupancy), 1);
}

std::string best_text(const WhatIf& what_if) {
  if (!what_if.advice.at_best_block || what_if.advice.at_best_block->max_active_blocks <= 0) return kUnknown;
  return fmt::format("{} ({})", what_if.advice.best_block,
                     percent_text(occupancy_value(*what_if.advice.at_best_block), 1));
}

constexpr std::array<const char*, 7> kColumns = {"arch",       "occupancy",  "blocks", "warps",
                                                 "limited by", "best block", "board"};

TextTable board_table() {
  TextTable table;
  for (const char* heading : kColumns) {
    const bool right = std::string_view(heading) == "occupancy" || std::string_view(heading) == "blocks";
    table.add_column(heading, right ? Align::kRight : Align::kLeft);
  }
  return table;
}

void add_row(TextTable& table, std::string arch, const event::Occupancy& o, std::string best, std::string board) {
  table.add_row(
      {std::move(arch), occupancy_text(o), o.max_active_blocks < 0 ? kUnknown : std::to_string(o.max_active_blocks),
       o.max_active_blocks < 0
           ? kUnknown
           : fmt::format("{} of {}", std::int64_t{o.max_active_blocks} * o.warps_per_block, o.max_warps_per_sm),
       limiter_words(o.limiters), std::move(best), std::move(board)});
}

void add_boards(TextTable& table, const std::vector<WhatIf>& boards) {
  for (const WhatIf& board : boards) {
    std::string name = board_text(board.scenario.device);
    if (!board.obstacles.empty()) name += "; cannot be launched: " + obstacle_text(board.obstacles.front(), board);
    add_row(table, board.arch, board.advice.now, best_text(board), std::move(name));
  }
}

std::string indented(const std::string& lines, const char* by) {
  std::string out;
  for (std::size_t at = 0; at < lines.size();) {
    std::size_t end = lines.find('\n', at);
    if (end == std::string::npos) end = lines.size();
    out += by + lines.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

void append_clusters(std::string& out, const WhatIf& what_if) {
  if (!what_if.clusters_at_most) return;
  out +=
      fmt::format("Clusters    at most {} at once on {} SMs; the GPCs can make it fewer, which the driver tells\n",
                  count_text(static_cast<std::uint64_t>(*what_if.clusters_at_most)), what_if.scenario.device.sm_count);
}

void append_one_board(std::string& out, const WhatIf& what_if, const OccupancyOptions& options) {
  const event::Occupancy& now = what_if.advice.now;
  const std::string about = fmt::format("{} (as {}): {}", what_if.arch, board_text(what_if.scenario.device),
                                        scenario_text(what_if.scenario.kernel, what_if.scenario.shape));
  out += bold(options) + wrapped(about, options.width, 0) + off(options) + "\n\n";
  for (const Obstacle obstacle : what_if.obstacles) {
    out += fmt::format("Cannot be launched: {}\n", obstacle_text(obstacle, what_if));
  }
  out += fmt::format("Theoretical occupancy {}: {}\n", occupancy_text(now), resident_text(now));
  for (const std::string& line : limit_lines(now)) out += "  " + line + "\n";
  append_clusters(out, what_if);
  if (!what_if.advice.advice.empty()) out += "\nWhat gains a block:\n";
  for (const std::vector<std::string>& lines : advice_lines(what_if.advice, what_if.scenario)) {
    const char* mark = "* ";
    for (const std::string& line : lines) {
      out += mark + wrapped(line, options.width, 2) + "\n";
      mark = "  ";
    }
  }
  if (what_if.advice.best_block > 0) {
    out += fmt::format("\nBlock size of cudaOccupancyMaxPotentialBlockSize: {}\n", best_text(what_if));
  }
}

void append_assumptions(std::string& out, bool barriers_left_out) {
  out +=
      "assumed: registers and static shared memory as compiled for the recorded board, the same block and dynamic\n"
      "shared memory; what would spill there is not known. An architecture stands for the board that is named.\n";
  if (barriers_left_out) {
    out += "Named barriers limit a kernel on the recorded board; that limit is not carried over to the others.\n";
  }
}

}  // namespace

std::string calculation_text(const std::vector<WhatIf>& boards, const OccupancyOptions& options) {
  std::string out;
  if (boards.size() == 1) {
    append_one_board(out, boards.front(), options);
  } else if (!boards.empty()) {
    out += scenario_text(boards.front().scenario.kernel, boards.front().scenario.shape) + "\n\n";
    TextTable table = board_table();
    add_boards(table, boards);
    out += table.render(bold(options), off(options));
  }
  if (!options.curve) return out;
  for (const WhatIf& board : boards) {
    out += "\n" + (boards.size() > 1 ? board.arch + ", " : std::string()) +
           curve_plot(occupancy::occupancy_curve(board.scenario, *options.curve), options.width);
  }
  return out;
}

std::string elsewhere_text(const std::vector<KernelWhatIf>& kernels, bool by_gpu_time,
                           const OccupancyOptions& options) {
  std::string out;
  KernelNames names(std::max<std::size_t>(options.width, 40) - 20, options.full_names);
  bool barriers = false;
  for (const KernelWhatIf& kernel : kernels) {
    const analysis::StudiedConfig& config = kernel.config;
    barriers = barriers || kernel.barriers_left_out;
    out += fmt::format("{}{}{}  {} of {}\n", bold(options), names.of(config.kernel.name), off(options),
                       percent_text(config.share, 1), by_gpu_time ? "GPU time" : "launches");
    out += "  " + scenario_text(config.kernel, config.shape) + "\n";
    if (kernel.boards.empty()) {
      out += "  the log has not its registers and shared memory: nothing can be said of other boards\n\n";
      continue;
    }
    TextTable table = board_table();
    add_row(table, "recorded", config.occupancy, "", config.board ? board_text(*config.board) : std::string(kUnknown));
    add_boards(table, kernel.boards);
    out += indented(table.render("", ""), "  ");
    if (options.curve) {
      for (const WhatIf& board : kernel.boards) {
        out += "\n" +
               indented(board.arch + ", " +
                            curve_plot(occupancy::occupancy_curve(board.scenario, *options.curve), options.width - 2),
                        "  ");
      }
    }
    out += "\n";
  }
  append_assumptions(out, barriers);
  return out;
}

std::string architectures_text(std::size_t width) {
  TextTable table;
  for (const char* heading :
       {"arch", "warps", "blocks", "regs/SM", "regs/block", "smem/SM", "smem/block", "reserved", "unit", "SMs"}) {
    table.add_column(heading, std::string_view(heading) == "arch" ? Align::kLeft : Align::kRight);
  }
  table.add_column("board", Align::kLeft);
  const auto size = [](std::int32_t bytes) { return bytes_text(static_cast<std::uint64_t>(std::max(bytes, 0))); };
  for (const occupancy::Architecture& arch : occupancy::architectures()) {
    const event::DeviceInfo& b = *arch.board;
    table.add_row({arch.name, std::to_string(b.max_warps_per_sm()), std::to_string(b.max_blocks_per_sm),
                   std::to_string(b.regs_per_sm), std::to_string(b.regs_per_block), size(b.shared_bytes_per_sm),
                   size(b.shared_bytes_per_block_optin), size(b.reserved_shared_bytes_per_block),
                   size(arch.shared_unit_bytes), std::to_string(b.sm_count), b.name});
  }
  std::string out = table.render("", "") + "\n";
  for (const occupancy::NumberSource& source : occupancy::number_sources()) {
    out += wrapped(fmt::format("{}: {}", source.numbers, source.source), width, 2) + "\n";
  }
  return out;
}

}  // namespace gpuflight::report
