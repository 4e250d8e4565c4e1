#include "analysis/explanation.h"

#include <algorithm>
#include <array>

#include "occupancy/occupancy_model.h"

namespace gpuflight::analysis {
namespace {

struct RuleText {
  const char* name;
  const char* source;
};
constexpr std::array<RuleText, kRuleCount> kRules = {{
    {"low_occupancy", "Nsight Compute, section Occupancy: theoretical occupancy below 80 %"},
    {"tail_effect", "Nsight Compute, section Launch Statistics: tail effect of a partial wave"},
    {"small_grid", "Nsight Compute, section Launch Statistics: fewer blocks than multiprocessors"},
    {"partial_warp", "Nsight Compute, section Launch Statistics: threads per block not a multiple of 32"},
    {"local_memory", "CUDA C++ Best Practices Guide: registers and local memory; nvcc -Xptxas -v tells spills"},
    {"launch_bound", "the log's own times: the kernel's on the GPU below its launch call's on the host"},
}};

constexpr double kNearlyAll = 0.9;
constexpr double kLeastTail = 0.01;  // of the kernel's time: below that nobody should care
// The first call of a kernel loads it, so a few launches say nothing.
constexpr std::uint64_t kLeastCompared = 10;
// A launch-bound kernel waits for its call, not behind others: what waits longer than this many calls has work before
// it.
constexpr double kQueueOfCalls = 4;

// The driver's own number is the truth; where it and the model agree, changes to the model can be trusted.
bool model_agrees(const event::Occupancy& recorded, const event::Occupancy& model) {
  return !recorded.model_disagrees && recorded.max_active_blocks == model.max_active_blocks;
}

std::optional<double> share_of_time(double part_ns, const Durations& gpu, double share_sum, std::uint64_t launches) {
  if (gpu.count > 0 && gpu.total_ns > 0 && part_ns > 0) return part_ns / static_cast<double>(gpu.total_ns);
  if (launches == 0) return std::nullopt;
  return share_sum / static_cast<double>(launches);
}

void add_grid_findings(Explanation& out) {
  const GridFacts& grids = out.config.grids;
  const Durations& gpu = out.config.gpu;
  const auto add = [&](Rule rule, std::uint64_t launches, double share_sum, double ns) {
    if (launches == 0) return;
    Finding finding;
    finding.rule = rule;
    finding.launches = launches;
    finding.value = share_sum / static_cast<double>(launches);
    finding.bound_share = share_of_time(ns, gpu, share_sum, grids.placed);
    if (ns > 0) finding.bound_ns = ns * out.config.stands_for();
    if (finding.bound_share && *finding.bound_share < kLeastTail) return;
    out.findings.push_back(finding);
  };
  add(Rule::kTail, grids.tailed, grids.tail_share_sum, grids.tail_ns);
  add(Rule::kSmallGrid, grids.small, grids.small_share_sum, grids.small_ns);
}

void add_partial_warp(Explanation& out) {
  const std::uint64_t threads = out.config.shape.block.count();
  const std::uint64_t warp = out.config.board && out.config.board->warp_size > 0
                                 ? static_cast<std::uint64_t>(out.config.board->warp_size)
                                 : 32;
  if (!out.config.config_known || threads == 0 || threads % warp == 0) return;
  Finding finding;
  finding.rule = Rule::kPartialWarp;
  finding.launches = out.config.launches;
  finding.value = 1 - static_cast<double>(threads) / static_cast<double>((threads + warp - 1) / warp * warp);
  out.findings.push_back(finding);
}

void add_launch_bound(Explanation& out) {
  const ShortLaunches& shorts = out.config.short_launches;
  if (shorts.compared < kLeastCompared || shorts.shorter * 2 < shorts.compared) return;
  const auto queue = out.config.queue.mean_ns(), call = out.config.call.mean_ns();
  if (queue && call && *queue > kQueueOfCalls * *call) return;
  Finding finding;
  finding.rule = Rule::kLaunchBound;
  finding.launches = shorts.shorter;
  finding.value = static_cast<double>(shorts.shorter) / static_cast<double>(shorts.compared);
  finding.bound_ns = shorts.gap_ns * out.config.stands_for();
  out.findings.push_back(finding);
}

void add_findings(Explanation& out) {
  const occupancy::Ratio ratio = occupancy::occupancy_ratio(out.advice ? out.advice->now : out.config.occupancy);
  if (ratio.known() && ratio.value() < kLowOccupancy) {
    Finding finding;
    finding.rule = Rule::kLowOccupancy;
    finding.launches = out.config.launches;
    finding.value = ratio.value();
    out.findings.push_back(finding);
  }
  add_grid_findings(out);
  add_partial_warp(out);
  if (out.config.kernel.local_bytes_per_thread > 0) {
    Finding finding;
    finding.rule = Rule::kLocalMemory;
    finding.launches = out.config.launches;
    finding.value = out.config.kernel.local_bytes_per_thread;
    out.findings.push_back(finding);
  }
  add_launch_bound(out);
}

Doubt doubt_of(const Explanation& out) {
  const GridFacts& grids = out.config.grids;
  if (grids.placed > 0 && static_cast<double>(grids.resident) >= kNearlyAll * static_cast<double>(grids.placed)) {
    return Doubt::kGridFits;
  }
  const double occupancy = occupancy::theoretical_occupancy(out.advice->now);
  return occupancy >= kLowOccupancy ? Doubt::kHighOccupancy : Doubt::kNone;
}

}  // namespace

const char* rule_name(Rule rule) { return kRules[static_cast<std::size_t>(rule)].name; }
const char* rule_source(Rule rule) { return kRules[static_cast<std::size_t>(rule)].source; }

const Finding* Explanation::finding(Rule rule) const {
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.rule == rule; });
  return found == findings.end() ? nullptr : &*found;
}

occupancy::Scenario scenario_of(const StudiedConfig& config, Silence& silence) {
  silence = Silence::kNone;
  occupancy::Scenario scenario;
  if (!config.details || !config.config_known) {
    silence = Silence::kNoDetails;
    return scenario;
  }
  scenario.kernel = config.kernel;
  scenario.shape = config.shape;
  if (config.board) scenario.device = *config.board;
  const auto barriers = config.occupancy.limit_blocks[static_cast<std::size_t>(event::Limiter::kBarriers)];
  if (barriers != event::kUnlimitedBlocks) scenario.barrier_blocks = barriers;
  if (!config.board || config.board->max_threads_per_sm <= 0) {
    silence = Silence::kNoBoard;
  } else if (config.kernel.num_regs < 0 || config.kernel.static_shared_bytes < 0) {
    silence = Silence::kUnknownFacts;
  } else if (!model_agrees(config.occupancy, occupancy::what_if(scenario))) {
    silence = Silence::kDisagrees;
  }
  return scenario;
}

Explanation explain(const StudiedConfig& config) {
  Explanation out;
  out.config = config;
  out.scenario = scenario_of(config, out.silence);
  if (out.silence == Silence::kNone) {
    out.advice = occupancy::advise(out.scenario);
    // The log's own words go before the model's; of clusters the driver alone can tell.
    for (std::size_t i = 0; i < out.advice->now.limit_blocks.size(); ++i) {
      if (config.occupancy.limit_blocks[i] >= 0) out.advice->now.limit_blocks[i] = config.occupancy.limit_blocks[i];
    }
    out.advice->now.max_active_clusters = config.occupancy.max_active_clusters;
    out.advice->now.limiters = config.occupancy.limiters;
    out.advice->now.limiter = config.occupancy.limiter;
    out.doubt = doubt_of(out);
  }
  add_findings(out);
  return out;
}

}  // namespace gpuflight::analysis
