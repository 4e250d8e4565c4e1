#include "report/advice_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using event::Limiter;
using event::Occupancy;
using occupancy::Advice;
using occupancy::AdviceList;
using occupancy::Change;
using occupancy::Scenario;

constexpr std::array<const char*, event::kLimiterCount> kBlockLimits = {
    "Block Limit Warps",      "Block Limit SM",       "Block Limit Registers",
    "Block Limit Shared Mem", "Block Limit Barriers", "Cluster placement"};
constexpr std::array<const char*, event::kLimiterCount> kWords = {"warps",         "blocks",   "registers",
                                                                  "shared memory", "barriers", "clusters"};

std::string count_of(std::int64_t value) {
  return count_text(static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)));
}

std::string blocks_text(std::int32_t blocks) { return fmt::format("{} block{}", blocks, blocks == 1 ? "" : "s"); }

std::string change_text(const Advice& advice) {
  const std::int32_t less = advice.from - advice.to;
  switch (advice.change) {
    case Change::kRegisters:
      return fmt::format("{} registers a thread, not {} ({} fewer)", advice.to, advice.from, less);
    case Change::kSharedBytes:
      return fmt::format("{} B of shared memory a block, not {} ({} B less)", count_of(advice.to),
                         count_of(advice.from), count_of(less));
    case Change::kStaticToDynamic:
      return fmt::format("the {} B of static shared memory as dynamic, sized at the launch: {} B are 4 for each thread",
                         count_of(advice.from), count_of(advice.to));
    case Change::kCarveout:
      return fmt::format("a carve-out of {}%, not {}%", advice.to, advice.from);
    case Change::kBarriers:
      return fmt::format("at most {} named barriers a block (highest barrier id + 1)", advice.to);
    case Change::kBlockSize:
      return fmt::format("blocks of {} threads, not {}{}", advice.to, advice.from,
                         advice.best ? " (cudaOccupancyMaxPotentialBlockSize's answer)" : "");
  }
  return {};
}

std::string gain_text(const Advice& advice, const AdviceList& list) {
  const double before = occupancy_value(list.now);
  const auto brings = [&](const Occupancy& after) {
    std::string text = fmt::format("{}, occupancy {} -> {}", blocks_text(after.max_active_blocks),
                                   percent_text(before, 1), percent_text(occupancy_value(after), 1));
    if (after.limiters != 0) text += ", then limited by " + limiter_words(after.limiters);
    return text;
  };
  if (advice.gains) return brings(advice.after);
  const std::string also = limiter_words(advice.also);
  const bool several = (advice.also & (advice.also - 1)) != 0;
  const std::string hold =
      fmt::format("nothing alone, {} {} to {} too", also, several || also.ends_with('s') ? "limit" : "limits",
                  blocks_text(list.now.max_active_blocks));
  if (!advice.together) return hold + ": only with another block size";
  return fmt::format("{}; {} together: {}", hold, several ? "all" : "both", brings(*advice.together));
}

// How a programmer gets there.
std::string means_text(const Advice& advice, const AdviceList& list, const Scenario& scenario) {
  switch (advice.change) {
    case Change::kRegisters: {
      std::string text = fmt::format("__launch_bounds__({}, {}) on the kernel, or -maxrregcount={} for the file",
                                     scenario.threads(), list.now.max_active_blocks + 1, advice.to);
      if (scenario.kernel.local_bytes_per_thread > 0) {
        return text + fmt::format("; it has {} B of local memory a thread already and would spill more",
                                  count_of(scenario.kernel.local_bytes_per_thread));
      }
      return text + "; the compiler may spill";
    }
    case Change::kStaticToDynamic:
      return "extern __shared__, and the bytes as third launch argument; how many the kernel needs is for you to say";
    case Change::kCarveout:
      return "cudaFuncSetAttribute(..., cudaFuncAttributePreferredSharedMemoryCarveout, ...); leaves less L1 cache";
    case Change::kBlockSize:
      return scenario.shared_bytes() > 0 ? "with the same registers and shared memory per block" : std::string();
    case Change::kSharedBytes:
    case Change::kBarriers:
      return {};
  }
  return {};
}

}  // namespace

double occupancy_value(const Occupancy& o) {
  if (o.max_active_blocks < 0 || o.max_warps_per_sm <= 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(o.max_active_blocks) * o.warps_per_block / o.max_warps_per_sm;
}

const char* block_limit_name(Limiter limiter) { return kBlockLimits[static_cast<std::size_t>(limiter)]; }

std::string limiter_words(event::LimiterSet limiters) {
  std::vector<const char*> words;
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if ((limiters & event::limiter_bit(static_cast<Limiter>(i))) != 0) words.push_back(kWords[i]);
  }
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + std::string(words[i]);
  }
  return text.empty() ? "nothing" : text;
}

std::string resident_text(const Occupancy& o) {
  return fmt::format("{} of {} warp{} on an SM, {} of {} warps", blocks_text(o.max_active_blocks), o.warps_per_block,
                     o.warps_per_block == 1 ? "" : "s", std::int64_t{o.max_active_blocks} * o.warps_per_block,
                     o.max_warps_per_sm);
}

std::vector<std::string> limit_lines(const Occupancy& o) {
  struct Row {
    std::int32_t blocks;
    int limiter;
  };
  std::vector<Row> rows;
  for (int i = 0; i < event::kLimiterCount; ++i) {
    const std::int32_t blocks = o.limit_blocks[i];
    if (blocks >= 0 && blocks != event::kUnlimitedBlocks) rows.push_back({blocks, i});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.blocks < b.blocks; });
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    const auto limiter = static_cast<Limiter>(row.limiter);
    const bool binds = (o.limiters & event::limiter_bit(limiter)) != 0;
    lines.push_back(fmt::format("{:<22} {:>4}{}", kBlockLimits[row.limiter], row.blocks, binds ? "  <" : ""));
  }
  return lines;
}

std::vector<std::vector<std::string>> advice_lines(const AdviceList& list, const Scenario& scenario) {
  std::vector<std::vector<std::string>> out;
  for (std::size_t i = 0; i < list.advice.size(); ++i) {
    const Advice& advice = list.advice[i];
    const bool last_of_kind = i + 1 == list.advice.size() || list.advice[i + 1].change != advice.change;
    out.push_back({change_text(advice) + ": " + gain_text(advice, list)});
    if (!last_of_kind) continue;
    if (std::string means = means_text(advice, list, scenario); !means.empty()) out.back().push_back(std::move(means));
    out.back().push_back(std::string("rule: ") + occupancy::rule_source(advice.change));
  }
  return out;
}

std::string dim_text(const event::Dim3& dim) {
  if (dim.z > 1) return fmt::format("{}x{}x{}", dim.x, dim.y, dim.z);
  return dim.y > 1 ? fmt::format("{}x{}", dim.x, dim.y) : fmt::format("{}", dim.x);
}

std::string scenario_text(const event::KernelInfo& kernel, const event::LaunchShape& shape) {
  std::string text = fmt::format("blocks of {} threads", dim_text(shape.block));
  if (kernel.num_regs >= 0) text += fmt::format(", {} registers", kernel.num_regs);
  if (kernel.static_shared_bytes >= 0) {
    text += fmt::format(", {} + {} B of static and dynamic shared memory", count_of(kernel.static_shared_bytes),
                        count_text(shape.dyn_shared_bytes));
  }
  if (shape.carveout >= 0) text += fmt::format(", carve-out {}%", shape.carveout);
  if (shape.cluster.count() > 0) text += fmt::format(", clusters of {}", dim_text(shape.cluster));
  return text;
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    const std::size_t word = end - at;
    if (column > indent && column + 1 + word > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out.append(text, at, word);
    column += word;
    at = end + 1;
  }
  return out;
}

}  // namespace gpuflight::report
