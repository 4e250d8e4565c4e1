#include "event/quantile_sketch.h"

#include <algorithm>
#include <cmath>

namespace gpuflight::event {
namespace {

const double kLogGamma = std::log((1 + QuantileSketch::kError) / (1 - QuantileSketch::kError));
// All of 2^63 in one bucket from here on.
constexpr std::uint8_t kCoarsest = 13;

std::uint32_t coarser(std::uint32_t index) { return index == 0 ? 0 : 1 + index / 2; }

}  // namespace

std::uint32_t QuantileSketch::index_of(std::int64_t value) const {
  if (value <= 0) return 0;
  const double steps = std::ceil(std::log(static_cast<double>(value)) / std::ldexp(kLogGamma, coarse_));
  return 1 + static_cast<std::uint32_t>(steps);
}

void QuantileSketch::add(std::int64_t value, SketchBudget& budget) { add_to(index_of(value), 1, budget); }

void QuantileSketch::add_to(std::uint32_t index, std::uint64_t count, SketchBudget& budget) {
  for (;;) {
    if (last_ < buckets_.size() && buckets_[last_].index == index) break;
    const auto at = std::lower_bound(buckets_.begin(), buckets_.end(), index,
                                     [](const Bucket& bucket, std::uint32_t i) { return bucket.index < i; });
    last_ = static_cast<std::size_t>(at - buckets_.begin());
    if (at != buckets_.end() && at->index == index) break;
    if (budget.buckets == 0 && !buckets_.empty() && coarse_ < kCoarsest) {
      coarsen(budget);
      index = coarser(index);
      continue;
    }
    if (budget.buckets > 0) --budget.buckets;
    buckets_.insert(at, Bucket{index, 0});
    break;
  }
  buckets_[last_].count += count;
  count_ += count;
}

void QuantileSketch::coarsen(SketchBudget& budget) {
  std::size_t kept = 0;
  for (const Bucket& bucket : buckets_) {
    const std::uint32_t index = coarser(bucket.index);
    if (kept > 0 && buckets_[kept - 1].index == index) {
      buckets_[kept - 1].count += bucket.count;
    } else {
      buckets_[kept++] = Bucket{index, bucket.count};
    }
  }
  budget.buckets += buckets_.size() - kept;
  buckets_.resize(kept);
  ++coarse_;
}

void QuantileSketch::add(const QuantileSketch& other, SketchBudget& budget) {
  while (coarse_ < other.coarse_) coarsen(budget);
  for (const Bucket& bucket : other.buckets_) {
    std::uint32_t index = bucket.index;  // this one may become coarser on the way
    for (std::uint8_t i = other.coarse_; i < coarse_; ++i) index = coarser(index);
    add_to(index, bucket.count, budget);
  }
}

std::optional<double> QuantileSketch::quantile(double q) const {
  if (count_ == 0) return std::nullopt;
  const auto rank = static_cast<std::uint64_t>(std::clamp(q, 0.0, 1.0) * static_cast<double>(count_ - 1));
  std::uint64_t before = 0;
  const Bucket* found = &buckets_.back();
  for (const Bucket& bucket : buckets_) {
    before += bucket.count;
    if (before > rank) {
      found = &bucket;
      break;
    }
  }
  if (found->index == 0) return 0.0;
  const double log_gamma = std::ldexp(kLogGamma, coarse_);
  return 2 * std::exp(log_gamma * (found->index - 1)) / (std::exp(log_gamma) + 1);
}

double QuantileSketch::error() const { return std::tanh(std::ldexp(kLogGamma, coarse_) / 2); }

}  // namespace gpuflight::event
