#include "occupancy/advice.h"

#include <algorithm>
#include <array>

#include "occupancy/occupancy_model.h"

namespace gpuflight::occupancy {
namespace {

using event::Limiter;
using event::limiter_bit;
using event::LimiterSet;
using event::Occupancy;

constexpr std::int32_t kWordBytes = 4;
constexpr std::int32_t kFullCarveout = 100;
constexpr std::int32_t kBarriersPerSm = 64;  // as occupancy_model.cpp has it, from the driver's answers

struct ChangeText {
  const char* name;
  const char* source;
};
constexpr std::array<ChangeText, kChangeCount> kChanges = {{
    {"registers",
     "cuda_occupancy.h: registers go to warps in units of 256, each quarter of an SM hands out its own; "
     "CUDA C++ Programming Guide, Launch Bounds"},
    {"shared_bytes",
     "cuda_occupancy.h: shared memory of an SM over what a block takes, the driver's part and the unit of "
     "allocation included"},
    {"static_to_dynamic",
     "CUDA C++ Programming Guide, Execution Configuration: dynamic shared memory has its size from the launch"},
    {"carveout",
     "cuda_occupancy.h: the carve-out is rounded up to a size the SM has; "
     "CUDA C++ Programming Guide, cudaFuncAttributePreferredSharedMemoryCarveout"},
    {"barriers", "the driver's answers on sm_90: 64 barriers of an SM over the highest barrier id + 1 of a block"},
    {"block_size", "cudaOccupancyMaxPotentialBlockSize and the search behind it, in cuda_occupancy.h"},
}};

std::int32_t limit_of(const Occupancy& occupancy, Limiter limiter) {
  return occupancy.limit_blocks[static_cast<std::size_t>(limiter)];
}

std::int32_t warps_of(const Occupancy& occupancy) { return occupancy.max_active_blocks * occupancy.warps_per_block; }

bool full(const Occupancy& occupancy) {
  const Ratio ratio = occupancy_ratio(occupancy);
  return ratio.known() && ratio.num >= ratio.den;
}

void set_shared_bytes(Scenario& trial, const Scenario& original, std::int32_t bytes) {
  trial.kernel.static_shared_bytes = std::min(original.kernel.static_shared_bytes, bytes);
  trial.shape.dyn_shared_bytes = static_cast<std::uint32_t>(bytes - trial.kernel.static_shared_bytes);
}

// The value in [least, most] nearest to `most` that passes; `passes` holds for small values and not for large ones.
template <class Passes>
std::optional<std::int32_t> largest_that(std::int32_t least, std::int32_t most, Passes passes) {
  if (most < least || !passes(least)) return std::nullopt;
  while (least < most) {
    const std::int32_t middle = least + (most - least + 1) / 2;
    if (passes(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

class Adviser {
 public:
  explicit Adviser(const Scenario& scenario) : scenario_(scenario), list_{what_if(scenario), 0, {}, {}} {}

  AdviceList run() {
    const Occupancy& now = list_.now;
    if (now.max_active_blocks < 0) return std::move(list_);
    find_best_block();
    if (full(now)) return std::move(list_);
    target_ = now.max_active_blocks + 1;
    add_registers();
    add_shared();
    add_carveout();
    add_barriers();
    add_block_sizes();
    return std::move(list_);
  }

 private:
  bool binds(Limiter limiter) const { return (list_.now.limiters & limiter_bit(limiter)) != 0; }

  void find_best_block() {
    list_.best_block = best_block_size(scenario_.device, scenario_.kernel, scenario_.shape);
    if (list_.best_block > 0) list_.at_best_block = what_if(with_block(scenario_, list_.best_block));
  }

  // Everything that binds, taken to where one more block fits; nothing where a limit cannot be moved by numbers.
  std::optional<Scenario> all_moved(Change change) const {
    Scenario moved = scenario_;
    if (binds(Limiter::kWarps) || binds(Limiter::kBlocks) || binds(Limiter::kBarriers)) return std::nullopt;
    if (binds(Limiter::kRegisters)) {
      const auto registers = fewer_registers(scenario_, target_);
      if (!registers) return std::nullopt;
      moved.kernel.num_regs = *registers;
    }
    if (change == Change::kCarveout) {
      moved.shape.carveout = *larger_carveout(scenario_, target_);
    } else if (binds(Limiter::kSharedMem)) {
      const auto bytes = fewer_shared_bytes(scenario_, target_);
      if (!bytes) return std::nullopt;
      set_shared_bytes(moved, scenario_, *bytes);
    }
    return moved;
  }

  void add(Change change, Limiter of, std::int32_t from, std::int32_t to, const Scenario& changed) {
    Advice advice;
    advice.change = change;
    advice.from = from;
    advice.to = to;
    advice.after = what_if(changed);
    advice.gains = warps_of(advice.after) > warps_of(list_.now);
    advice.also = static_cast<LimiterSet>(list_.now.limiters & ~limiter_bit(of));
    if (!advice.gains) {
      if (const auto moved = all_moved(change)) advice.together = what_if(*moved);
    }
    list_.advice.push_back(std::move(advice));
  }

  void add_registers() {
    if (!binds(Limiter::kRegisters)) return;
    const auto registers = fewer_registers(scenario_, target_);
    if (!registers) return;
    add(Change::kRegisters, Limiter::kRegisters, scenario_.kernel.num_regs, *registers,
        with_registers(scenario_, *registers));
  }

  void add_shared() {
    if (!binds(Limiter::kSharedMem)) return;
    if (const auto bytes = fewer_shared_bytes(scenario_, target_)) {
      add(Change::kSharedBytes, Limiter::kSharedMem, scenario_.shared_bytes(), *bytes,
          with_shared_bytes(scenario_, *bytes));
    }
    const std::int32_t words = scenario_.threads() * kWordBytes;
    if (scenario_.kernel.static_shared_bytes <= words) return;
    Scenario dynamic = scenario_;
    dynamic.kernel.static_shared_bytes = 0;
    dynamic.shape.dyn_shared_bytes += static_cast<std::uint32_t>(words);
    if (limit_of(what_if(dynamic), Limiter::kSharedMem) < target_) return;
    add(Change::kStaticToDynamic, Limiter::kSharedMem, scenario_.kernel.static_shared_bytes, words, dynamic);
  }

  void add_carveout() {
    if (!binds(Limiter::kSharedMem)) return;
    const auto percent = larger_carveout(scenario_, target_);
    if (!percent) return;
    add(Change::kCarveout, Limiter::kSharedMem, scenario_.shape.carveout, *percent, with_carveout(scenario_, *percent));
  }

  void add_barriers() {
    const std::int32_t barriers = kBarriersPerSm / target_;
    if (!binds(Limiter::kBarriers) || barriers < 1) return;
    Scenario changed = scenario_;
    changed.barrier_blocks = kBarriersPerSm / barriers;
    add(Change::kBarriers, Limiter::kBarriers, -1, barriers, changed);
  }

  // The nearest smaller and larger block with more warps on an SM, and the answer of the API.
  void add_block_sizes() {
    const std::int32_t warp = scenario_.device.warp_size;
    const std::int32_t threads = scenario_.threads(), most = largest_block(scenario_);
    const auto gains = [&](std::int32_t block) {
      return warps_of(what_if(with_block(scenario_, block))) > warps_of(list_.now);
    };
    std::vector<std::int32_t> sizes;
    for (std::int32_t block = std::min(threads - 1, most) / warp * warp; block > 0; block -= warp) {
      if (!gains(block)) continue;
      sizes.push_back(block);
      break;
    }
    for (std::int32_t block = threads / warp * warp + warp; block <= most; block += warp) {
      if (!gains(block)) continue;
      sizes.push_back(block);
      break;
    }
    const std::int32_t best = list_.best_block;
    if (best > 0 && best != threads && std::find(sizes.begin(), sizes.end(), best) == sizes.end() && gains(best)) {
      sizes.push_back(best);
    }
    std::sort(sizes.begin(), sizes.end());
    for (const std::int32_t size : sizes) {
      add(Change::kBlockSize, Limiter::kWarps, threads, size, with_block(scenario_, size));
      list_.advice.back().also = 0;
      list_.advice.back().best = size == best;
    }
  }

  const Scenario& scenario_;
  AdviceList list_;
  std::int32_t target_ = 0;
};

}  // namespace

const char* change_name(Change change) { return kChanges[static_cast<std::size_t>(change)].name; }
const char* rule_source(Change change) { return kChanges[static_cast<std::size_t>(change)].source; }

AdviceList advise(const Scenario& scenario) { return Adviser(scenario).run(); }

std::optional<std::int32_t> fewer_registers(const Scenario& scenario, std::int32_t blocks) {
  Scenario trial = scenario;
  return largest_that(kLeastRegisters, scenario.kernel.num_regs, [&](std::int32_t registers) {
    trial.kernel.num_regs = registers;
    return limit_of(what_if(trial), Limiter::kRegisters) >= blocks;
  });
}

std::optional<std::int32_t> fewer_shared_bytes(const Scenario& scenario, std::int32_t blocks) {
  Scenario trial = scenario;
  return largest_that(0, scenario.shared_bytes(), [&](std::int32_t bytes) {
    set_shared_bytes(trial, scenario, bytes);
    return limit_of(what_if(trial), Limiter::kSharedMem) >= blocks;
  });
}

std::optional<std::int32_t> larger_carveout(const Scenario& scenario, std::int32_t blocks) {
  if (scenario.shape.carveout < 0 || scenario.shape.carveout >= kFullCarveout) return std::nullopt;
  Scenario trial = scenario;
  const auto left = largest_that(0, kFullCarveout - scenario.shape.carveout, [&](std::int32_t below_full) {
    trial.shape.carveout = kFullCarveout - below_full;
    return limit_of(what_if(trial), Limiter::kSharedMem) >= blocks;
  });
  return left ? std::optional(kFullCarveout - *left) : std::nullopt;
}

std::int32_t largest_block(const Scenario& scenario) {
  const std::int32_t device = scenario.device.max_threads_per_block;
  return scenario.kernel.max_threads_per_block > 0 ? std::min(device, scenario.kernel.max_threads_per_block) : device;
}

}  // namespace gpuflight::occupancy
