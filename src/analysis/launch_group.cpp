#include "analysis/launch_group.h"

#include <cmath>

namespace gpuflight::analysis {

void Durations::add_many(std::uint64_t n, std::int64_t total, const event::MaybeNs& least,
                         const event::MaybeNs& most) {
  if (n == 0) return;
  count += n;
  add_total(total);
  each_ns.add(least);
  each_ns.add(most);
}

void SpreadDurations::add(std::int64_t ns, event::SketchBudget& budget) {
  Durations::add(ns);
  sketch.add(ns, budget);
  const double distance = static_cast<double>(ns) - mean_;
  mean_ += distance / static_cast<double>(sketch.count());
  squares_ += distance * (static_cast<double>(ns) - mean_);
}

void SpreadDurations::add(const SpreadDurations& other, event::SketchBudget& budget) {
  Durations::add(other);
  const auto mine = static_cast<double>(sketch.count()), more = static_cast<double>(other.sketch.count());
  if (more == 0) return;
  const double distance = other.mean_ - mean_;
  squares_ += other.squares_ + distance * distance * mine * more / (mine + more);
  mean_ += distance * more / (mine + more);
  sketch.add(other.sketch, budget);
}

std::optional<double> SpreadDurations::deviation_ns() const {
  if (sketch.count() == 0) return std::nullopt;
  return std::sqrt(std::max(squares_, 0.0) / static_cast<double>(sketch.count()));
}

std::optional<double> SpreadDurations::quantile_ns(double q) const {
  std::optional<double> value = sketch.quantile(q);
  if (value && each_ns.known) {
    value = std::clamp(*value, static_cast<double>(each_ns.min), static_cast<double>(each_ns.max));
  }
  return value;
}

void LaunchGroup::add_config(const ConfigFacts& facts) {
  ++configs;
  num_regs.add(facts.num_regs);
  static_shared_bytes.add(facts.static_shared_bytes);
  local_bytes_per_thread.add(facts.local_bytes_per_thread);
  max_active_blocks.add(facts.max_active_blocks);
  occupancy.add(facts.occupancy);
  limiters |= facts.limiters;
  for (int i = 0; i < event::kLimiterCount; ++i) limit_occupancy[i].add(facts.limit_occupancy[i]);
  if (!facts.shape_known) return;
  if (!block_threads.known) {
    block = facts.shape.block;
    cluster = facts.shape.cluster;
  } else if (block != facts.shape.block) {
    several_blocks = true;
  }
  block_threads.add(facts.shape.block.count());
  dyn_shared_bytes.add(facts.shape.dyn_shared_bytes);
}

void LaunchGroup::add_device(std::optional<std::int32_t> which) {
  if (!which || several_devices) return;
  if (!device) {
    device = which;
  } else if (*device != *which) {
    device.reset();
    several_devices = true;
  }
}

void LaunchGroup::add_launches(const ConfigFacts& facts, std::uint64_t count) {
  launches += count;
  if (facts.occupancy) {
    occupancy_sum += *facts.occupancy * static_cast<double>(count);
    occupancy_count += count;
  }
  if (facts.limiter) limited_by[static_cast<std::size_t>(*facts.limiter)] += count;
}

namespace {

template <class T>
void widen(Range<T>& range, const Range<T>& other) {
  if (!other.known) return;
  range.add(other.min);
  range.add(other.max);
}

}  // namespace

void LaunchGroup::add(const LaunchGroup& other, event::SketchBudget& budget) {
  if (!block_threads.known) {
    block = other.block;
    cluster = other.cluster;
  } else if (other.block_threads.known && block != other.block) {
    several_blocks = true;
  }
  several_blocks |= other.several_blocks;
  add_extrapolation(other);
  add_device(other.device);
  if (other.several_devices) {
    device.reset();
    several_devices = true;
  }
  launches += other.launches;
  failed += other.failed;
  captured += other.captured;
  replayed += other.replayed;
  configs += other.configs;
  call.add(other.call);
  gpu.add(other.gpu, budget);
  queue.add(other.queue);
  event_error.add(other.event_error);
  widen(num_regs, other.num_regs);
  widen(static_shared_bytes, other.static_shared_bytes);
  widen(local_bytes_per_thread, other.local_bytes_per_thread);
  widen(max_active_blocks, other.max_active_blocks);
  widen(dyn_shared_bytes, other.dyn_shared_bytes);
  widen(block_threads, other.block_threads);
  widen(grid_blocks, other.grid_blocks);
  widen(occupancy, other.occupancy);
  occupancy_sum += other.occupancy_sum;
  occupancy_count += other.occupancy_count;
  for (std::size_t i = 0; i < limited_by.size(); ++i) {
    limited_by[i] += other.limited_by[i];
    widen(limit_occupancy[i], other.limit_occupancy[i]);
  }
  limiters |= other.limiters;
}

// Before anything else of it is added. What was timed as a whole has no error.
void LaunchGroup::add_extrapolation(const LaunchGroup& other) {
  if (!extrapolated && !other.extrapolated) return;
  // What has run and has no time at all is in no sum, and no error is known of one without it.
  const auto of = [](const LaunchGroup& group) {
    if (group.extrapolated) return *group.extrapolated;
    const std::optional<double> told = group.estimated_total_ns();
    return !told && group.executed() > 0 ? Extrapolation{0.0, std::nullopt} : Extrapolation{told.value_or(0), 0.0};
  };
  Extrapolation sum = of(*this);
  sum.add(of(other));
  extrapolated = sum;
}

double LaunchGroup::most_too_long_ns() const {
  if (event_error.count == 0 || gpu.count == 0) return 0;
  const double share = static_cast<double>(event_error.count) / static_cast<double>(gpu.count);
  return *event_error.mean_ns() * share * static_cast<double>(std::max(executed(), gpu.count));
}

std::optional<double> LaunchGroup::estimated_total_ns() const {
  if (extrapolated) return extrapolated->total_ns;
  const auto mean = gpu.mean_ns();
  if (!mean) return std::nullopt;
  return *mean * static_cast<double>(std::max(executed(), gpu.count));
}

std::optional<double> LaunchGroup::mean_occupancy() const {
  if (occupancy.single()) return occupancy.min;  // exactly, not by a sum of roundings
  if (occupancy_count == 0) return std::nullopt;
  return occupancy_sum / static_cast<double>(occupancy_count);
}

std::optional<event::Limiter> LaunchGroup::main_limiter() const {
  const auto most = std::max_element(limited_by.begin(), limited_by.end());
  if (*most == 0) return std::nullopt;
  return static_cast<event::Limiter>(most - limited_by.begin());
}

}  // namespace gpuflight::analysis
