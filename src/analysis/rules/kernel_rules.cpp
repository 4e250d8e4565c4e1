// Kernels by their configuration, weighted by the time they take: occupancy, spills, waves that do not fill the chip.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostRows = 100'000;

struct Row {
  std::uint64_t launches = 0;
  std::int64_t ns = 0;
  Evidence evidence;
  void add(const GpuWork& work, std::int64_t weight) {
    ++launches;
    ns += weight;
    evidence.add(work.ref, weight);
  }
};

// By configuration; the worst is named, the others are counted.
struct Rows {
  std::map<std::uint32_t, Row> by_config;
  std::int64_t ns = 0;
  std::uint64_t launches = 0;

  void add(const GpuWork& work, std::int64_t weight) {
    if (by_config.size() >= kMostRows && !by_config.contains(work.config)) return;
    by_config[work.config].add(work, weight);
    ns += weight;
    ++launches;
  }
  const std::pair<const std::uint32_t, Row>& worst() const {
    return *std::max_element(by_config.begin(), by_config.end(),
                             [](const auto& a, const auto& b) { return a.second.ns < b.second.ns; });
  }
};

// Blocks that the whole device holds at once; 0: not known.
std::uint64_t wave_blocks(const LaunchConfig* config, const event::DeviceInfo* device) {
  if (config == nullptr || device == nullptr || config->max_active_blocks <= 0 || device->sm_count <= 0) return 0;
  return static_cast<std::uint64_t>(config->max_active_blocks) * static_cast<std::uint64_t>(device->sm_count);
}

const char* limiter_words(event::Limiter limiter) {
  switch (limiter) {
    case event::Limiter::kWarps: return "warps per SM";
    case event::Limiter::kBlocks: return "blocks per SM";
    case event::Limiter::kRegisters: return "registers";
    case event::Limiter::kSharedMem: return "shared memory";
    case event::Limiter::kBarriers: return "barriers";
    case event::Limiter::kCluster: return "cluster placement";
  }
  return "not known";
}

class LowOccupancy final : public Rule {
 public:
  explicit LowOccupancy(const RuleSettings& set) : occupancy_(set["occupancy"]), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    const LaunchConfig* const config = work.kind == WorkKind::kKernel ? log().config(work.config) : nullptr;
    if (config == nullptr || !config->occupancy || *config->occupancy >= occupancy_) return;
    // A grid that does not fill the chip once cannot reach its occupancy anyway.
    if (work.size < wave_blocks(config, log().device(work.device))) return;
    found_.add(work, work.duration_ns());
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    if (found_.by_config.empty() || share(found_.ns, totals.kernel_ns()) < min_share_) return;
    const auto& [row, worst] = found_.worst();
    const LaunchConfig& config = *log().config(row);
    Finding f = costed("low_occupancy", CostKind::kAtStake, found_.ns, totals.span_ns());
    f.severity = Severity::kInfo;  // many fast kernels have a low occupancy
    f.message =
        "{share} of the kernels' time is at an occupancy below {bound}: {kernel} {ns} at {occupancy}, limited by "
        "{limiter}; {configs} in all";
    f.cost_how = "time of these kernels";
    f.remedy =
        "may help where the kernel waits for memory: gpuflight explain says what limits it and the smallest change";
    f.ratio("share", share(found_.ns, totals.kernel_ns())).ratio("bound", occupancy_).kernel("kernel", config.name);
    f.ns("ns", static_cast<double>(worst.ns)).ratio("occupancy", *config.occupancy);
    f.text("limiter", config.limiter ? limiter_words(*config.limiter) : "not known");
    f.count("configs", found_.by_config.size(), "configuration").count("launches", found_.launches);
    worst.evidence.give(f);
    findings.push_back(std::move(f));
  }

 private:
  const double occupancy_, min_share_;
  Rows found_;
};

class Spills final : public Rule {
 public:
  explicit Spills(const RuleSettings& set) : min_bytes_(set["min_bytes"]), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    const LaunchConfig* const config = work.kind == WorkKind::kKernel ? log().config(work.config) : nullptr;
    if (config != nullptr && config->local_bytes_per_thread >= min_bytes_) found_.add(work, work.duration_ns());
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    if (found_.by_config.empty() || share(found_.ns, totals.kernel_ns()) < min_share_) return;
    const auto& [row, worst] = found_.worst();
    const LaunchConfig& config = *log().config(row);
    Finding f = costed("spills", CostKind::kAtStake, found_.ns, totals.span_ns());
    f.message =
        "{share} of the kernels' time is of kernels with local memory (spilled registers or arrays of a thread): "
        "{kernel} {ns}, {local} per thread at {regs} registers";
    f.cost_how = "time of these kernels";
    f.remedy =
        "compile with -Xptxas -v to tell spills from arrays; loosen __launch_bounds__ or --maxrregcount, index arrays "
        "by constants, or split the kernel";
    f.ratio("share", share(found_.ns, totals.kernel_ns())).kernel("kernel", config.name);
    f.ns("ns", static_cast<double>(worst.ns)).bytes("local", static_cast<std::uint64_t>(config.local_bytes_per_thread));
    f.number("regs", config.num_regs).count("launches", found_.launches);
    worst.evidence.give(f);
    findings.push_back(std::move(f));
  }

 private:
  const double min_bytes_, min_share_;
  Rows found_;
};

// The last wave of a grid leaves SMs without work, unless another kernel runs beside it.
class PartialWave final : public Rule {
 public:
  explicit PartialWave(const RuleSettings& set) : min_ns_(set.ns("min_us", 1e3)), min_share_(set["min_share"]) {}

  void on_work(const GpuWork& work) override {
    if (work.kind != WorkKind::kKernel && work.kind != WorkKind::kGraph) return;
    if (!latest_.contains(work.device)) {
      latest_[work.device] = {work, false};
      return;
    }
    Latest& latest = latest_[work.device];
    const bool beside = work.start_ns + kOverlapNs < latest.work.end_ns;
    latest.beside = latest.beside || beside;
    if (work.end_ns < latest.work.end_ns) return;  // ran wholly beside it
    count(latest);
    latest = {work, beside};
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [device, latest] : latest_) count(latest);
    if (found_.by_config.empty() || share(found_.ns, totals.kernel_ns()) < min_share_) return;
    const auto& [row, worst] = found_.worst();
    const LaunchConfig& config = *log().config(row);
    const GpuWork& example = example_[row];
    const std::uint64_t wave = wave_blocks(&config, log().device(example.device));
    const double waves = static_cast<double>(example.size) / static_cast<double>(wave);
    Finding f = costed("partial_wave", CostKind::kBound, found_.ns, totals.span_ns());
    f.message =
        waves < 1 ? "{kernel} launches {blocks} blocks where the chip holds {wave} at once: {empty} of it stays empty "
                    "({launches} launches)"
                  : "{kernel} launches {blocks} blocks, {waves} waves of {wave}: in the last one {empty} of the chip "
                    "stays empty ({launches} launches)";
    f.cost_how = "time of the kernels x the share of their waves that stays empty, where nothing ran beside them";
    f.remedy =
        waves < 1 ? "more and smaller blocks, or run other kernels beside it on other streams"
                  : "blocks in whole waves: another block size, a grid of the wave's size that loops over the data, or "
                    "smaller blocks of work so that the tail is short";
    f.kernel("kernel", config.name).count("blocks", example.size).count("wave", wave).number("waves", waves);
    f.ratio("empty", std::ceil(waves) - waves).count("launches", worst.launches);
    worst.evidence.give(f);
    findings.push_back(std::move(f));
  }

 private:
  static constexpr std::int64_t kOverlapNs = 2'000;
  struct Latest {
    GpuWork work;
    bool beside = false;
  };
  void count(const Latest& latest) {
    const GpuWork& work = latest.work;
    if (latest.beside || work.kind != WorkKind::kKernel || work.duration_ns() < min_ns_) return;
    const std::uint64_t wave = wave_blocks(log().config(work.config), log().device(work.device));
    if (wave == 0 || work.size == 0) return;
    const double waves = static_cast<double>(work.size) / static_cast<double>(wave);
    const double empty = 1 - waves / std::ceil(waves);
    const auto lost = static_cast<std::int64_t>(static_cast<double>(work.duration_ns()) * empty);
    if (lost <= 0) return;
    found_.add(work, lost);
    if (found_.by_config.contains(work.config)) example_.try_emplace(work.config, work);
  }
  const std::int64_t min_ns_;
  const double min_share_;
  std::map<std::int32_t, Latest> latest_;  // by device
  Rows found_;
  std::map<std::uint32_t, GpuWork> example_;
};

}  // namespace

std::vector<RuleInfo> kernel_rules() {
  return {
      {"low_occupancy",
       "kernels of low theoretical occupancy, by their time",
       "Nsight Compute, rule TheoreticalOccupancy; the bound is lower here, since low occupancy alone is no fault",
       {{"occupancy", 0.4, "below it counts"}, {"min_share", 0.2, "time of these kernels, as share of all kernels'"}},
       make_rule<LowOccupancy>,
       RuleInfo::Needs::kSamples},
      {"spills",
       "kernels that use local memory, by their time",
       "CUDA C++ Best Practices Guide, 10.2.3: local memory",
       {{"min_bytes", 16, "local bytes per thread; fewer do not count"},
        {"min_share", 0.1, "time of these kernels, as share of all kernels'"}},
       make_rule<Spills>,
       RuleInfo::Needs::kSamples,
       {"low_occupancy"}},
      {"partial_wave",
       "grids whose last wave leaves much of the chip empty",
       "Nsight Compute, rule LaunchConfiguration: tail effect",
       {{"min_us", 10, "shorter kernels do not count"}, {"min_share", 0.1, "time to be won, as share of all kernels'"}},
       make_rule<PartialWave>,
       RuleInfo::Needs::kTimeline,
       {"low_occupancy"}},
  };
}

}  // namespace gpuflight::analysis::rules
