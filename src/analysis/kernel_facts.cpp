#include "analysis/kernel_facts.h"

namespace gpuflight::analysis {
namespace {

template <class T>
bool differs(const Range<T>& before, const Range<T>& after) {
  return before.known && after.known && (before.min != after.min || before.max != after.max);
}

// Worse where `after` goes further up.
template <class T>
void compare_most(std::vector<FactChange>& out, Fact fact, const Range<T>& before, const Range<T>& after) {
  if (differs(before, after)) out.push_back({fact, after.max > before.max});
}

bool shape_differs(const LaunchGroup& before, const LaunchGroup& after) {
  if (!before.block_threads.known || !after.block_threads.known) return false;
  return before.block != after.block || before.several_blocks != after.several_blocks;
}

}  // namespace

Range<std::int64_t> shared_bytes(const LaunchGroup& group) {
  Range<std::int64_t> sum;
  if (!group.static_shared_bytes.known || !group.dyn_shared_bytes.known) return sum;
  sum.add(std::int64_t{group.static_shared_bytes.min} + group.dyn_shared_bytes.min);
  sum.add(std::int64_t{group.static_shared_bytes.max} + group.dyn_shared_bytes.max);
  return sum;
}

std::vector<FactChange> fact_changes(const std::optional<KernelSide>& before, const std::optional<KernelSide>& after) {
  std::vector<FactChange> out;
  if (!before || !after) return out;
  const LaunchGroup &a = before->all, &b = after->all;
  // Recordings of one side may differ in length; a change is what none of them explains.
  if (before->launches.max < after->launches.min) out.push_back({Fact::kLaunches, true});
  if (before->launches.min > after->launches.max) out.push_back({Fact::kLaunches, false});
  compare_most(out, Fact::kRegisters, a.num_regs, b.num_regs);
  const bool parts_moved = differs(a.static_shared_bytes, b.static_shared_bytes) ||
                           differs(a.dyn_shared_bytes, b.dyn_shared_bytes);
  const auto shared_a = shared_bytes(a), shared_b = shared_bytes(b);
  if (parts_moved) out.push_back({Fact::kShared, shared_a.known && shared_b.known && shared_b.max > shared_a.max});
  compare_most(out, Fact::kSpill, a.local_bytes_per_thread, b.local_bytes_per_thread);
  if (shape_differs(a, b)) out.push_back({Fact::kBlock, false});
  if (a.block_threads.known && b.block_threads.known && a.cluster != b.cluster) out.push_back({Fact::kCluster, false});
  if (a.grid_blocks.known && b.grid_blocks.known &&
      (a.grid_blocks.max < b.grid_blocks.min || a.grid_blocks.min > b.grid_blocks.max)) {
    out.push_back({Fact::kGrid, false});
  }
  if (differs(a.max_active_blocks, b.max_active_blocks)) out.push_back({Fact::kBlocksPerSm, false});
  if (differs(a.occupancy, b.occupancy)) out.push_back({Fact::kOccupancy, b.occupancy.min < a.occupancy.min});
  if (a.limiters != 0 && b.limiters != 0 && a.limiters != b.limiters) {
    const bool gained = a.occupancy.known && b.occupancy.known && b.occupancy.min > a.occupancy.min;
    out.push_back({Fact::kLimiter, !gained});
  }
  return out;
}

}  // namespace gpuflight::analysis
