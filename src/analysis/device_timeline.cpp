#include "analysis/device_timeline.h"

#include <algorithm>
#include <limits>

namespace gpuflight::analysis {
namespace {

constexpr std::size_t kBatch = 1 << 15;

}  // namespace

DeviceTimeline::State DeviceTimeline::with(State state, std::int32_t kernels, std::int32_t copies) {
  const std::int32_t k = std::min(state % 3 + kernels, 2), c = std::min(state / 3 + copies, 2);
  return static_cast<State>(k + 3 * c);
}

DeviceTimeline::State DeviceTimeline::with(State state, Work work) {
  return work == Work::kKernel ? with(state, 1, 0) : with(state, 0, 1);
}

void DeviceTimeline::add(Work work, std::int64_t start_ns, std::int64_t end_ns) {
  if (end_ns < start_ns) return;
  const bool first = sums_.kernels + sums_.copies == 0;
  sums_.first_ns = first ? start_ns : std::min(sums_.first_ns, start_ns);
  sums_.last_ns = first ? end_ns : std::max(sums_.last_ns, end_ns);
  if (work == Work::kKernel) {
    ++sums_.kernels;
    sums_.kernel_sum_ns += end_ns - start_ns;
  } else {
    ++sums_.copies;
    sums_.copy_sum_ns += end_ns - start_ns;
  }
  if (start_ns == end_ns) return;
  batch_.push_back({start_ns, end_ns, work});
  if (batch_.size() >= kBatch) take_batch();
}

void DeviceTimeline::take_batch() {
  edges_.clear();
  for (Interval interval : batch_) {
    if (!blocks_.empty() && interval.start < blocks_.back().to) {
      add_to_past(interval.start, std::min(interval.end, blocks_.back().to), interval.work);
      interval.start = blocks_.back().to;
      if (interval.start >= interval.end) continue;
    }
    const bool kernel = interval.work == Work::kKernel;
    const auto one = [&](bool mine) { return static_cast<std::int8_t>(mine ? 1 : 0); };
    edges_.push_back({interval.start, one(kernel), one(!kernel)});
    edges_.push_back({interval.end, static_cast<std::int8_t>(-one(kernel)), static_cast<std::int8_t>(-one(!kernel))});
  }
  batch_.clear();
  if (edges_.empty()) return;
  std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  sweep();
  while (steps_.size() > max_steps_) fold_oldest();
}

// Edges and the steps from the first edge on, in one pass by time.
void DeviceTimeline::sweep() {
  const auto tail = std::lower_bound(steps_.begin(), steps_.end(), edges_.front().at,
                                     [](const Step& step, std::int64_t at) { return step.at < at; });
  auto step = tail;
  auto edge = edges_.cbegin();
  State was = tail == steps_.begin() ? State{0} : std::prev(tail)->state;  // without the edges
  State told = was;
  std::int32_t kernels = 0, copies = 0;
  swept_.clear();
  while (step != steps_.end() || edge != edges_.cend()) {
    constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
    const std::int64_t now =
        std::min(step != steps_.end() ? step->at : kNever, edge != edges_.cend() ? edge->at : kNever);
    for (; step != steps_.end() && step->at == now; ++step) was = step->state;
    for (; edge != edges_.cend() && edge->at == now; ++edge) {
      kernels += edge->kernels;
      copies += edge->copies;
    }
    const State is = with(was, kernels, copies);
    if (is == told) continue;
    swept_.push_back({now, is});
    told = is;
  }
  steps_.erase(tail, steps_.end());
  steps_.insert(steps_.end(), swept_.begin(), swept_.end());
}

void DeviceTimeline::fold_oldest() {
  const std::size_t per_block = std::min(kStepsPerBlock, std::max<std::size_t>(max_steps_ / 4, 1));
  const std::size_t fold = std::max(steps_.size() / 2 / per_block, std::size_t{1}) * per_block;
  if (fold >= steps_.size()) return;
  if (!blocks_.empty() && blocks_.back().to < steps_.front().at) {  // nothing ran in between
    Block quiet{blocks_.back().to, steps_.front().at, {}};
    quiet.ns[0] = quiet.to - quiet.from;
    blocks_.push_back(quiet);
  }
  for (std::size_t begin = 0; begin < fold; begin += per_block) {
    Block block{steps_[begin].at, steps_[begin + per_block].at, {}};
    for (std::size_t i = begin; i < begin + per_block; ++i) block.ns[steps_[i].state] += steps_[i + 1].at - steps_[i].at;
    blocks_.push_back(block);
  }
  steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(fold));
  while (blocks_.size() > max_blocks_ && blocks_.size() > 1) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < blocks_.size(); i += 2) {
      Block joined = blocks_[i];
      if (i + 1 < blocks_.size()) {
        joined.to = blocks_[i + 1].to;
        for (std::size_t s = 0; s < kStates; ++s) joined.ns[s] += blocks_[i + 1].ns[s];
      }
      blocks_[kept++] = joined;
    }
    blocks_.resize(kept);
  }
}

void DeviceTimeline::add_to_past(std::int64_t start, std::int64_t end, Work work) {
  if (start < blocks_.front().from) {  // nothing ran before
    Block before{start, blocks_.front().from, {}};
    before.ns[0] = before.to - before.from;
    if (blocks_.size() < max_blocks_) {
      blocks_.insert(blocks_.begin(), before);
    } else {
      blocks_.front().from = start;
      blocks_.front().ns[0] += before.ns[0];
    }
  }
  auto block = std::upper_bound(blocks_.begin(), blocks_.end(), start,
                                [](std::int64_t at, const Block& b) { return at < b.to; });
  for (; block != blocks_.end() && block->from < end; ++block) {
    add_to_block(*block, std::min(end, block->to) - std::max(start, block->from), work);
  }
}

void DeviceTimeline::add_to_block(Block& block, std::int64_t length, Work work) {
  const std::int64_t whole = block.to - block.from;
  sums_.uncertain_ns += std::min(length, whole - length);
  const double part = static_cast<double>(length) / static_cast<double>(whole);
  const std::array<std::int64_t, kStates> before = block.ns;
  for (State s = 0; s < kStates; ++s) {
    const auto moved = length == whole ? before[s] : static_cast<std::int64_t>(static_cast<double>(before[s]) * part);
    block.ns[s] -= moved;
    block.ns[with(s, work)] += moved;
  }
}

BusyTimes DeviceTimeline::times() {
  take_batch();
  std::array<std::int64_t, kStates> ns{};
  for (const Block& block : blocks_) {
    for (std::size_t s = 0; s < kStates; ++s) ns[s] += block.ns[s];
  }
  for (std::size_t i = 0; i + 1 < steps_.size(); ++i) ns[steps_[i].state] += steps_[i + 1].at - steps_[i].at;
  BusyTimes times = sums_;
  for (State s = 1; s < kStates; ++s) {
    const int kernels = s % 3, copies = s / 3;
    times.busy_ns += ns[s];
    if (kernels > 0) times.kernel_ns += ns[s];
    if (copies > 0) times.copy_ns += ns[s];
    if (kernels + copies > 1) times.overlapped_ns += ns[s];
    if (kernels > 0 && copies > 0) times.copy_beside_kernel_ns += ns[s];
    if (kernels > 1) times.kernels_beside_ns += ns[s];
  }
  return times;
}

}  // namespace gpuflight::analysis
