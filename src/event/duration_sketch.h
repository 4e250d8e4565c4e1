// Quantiles of durations in bounded memory: buckets whose bounds grow by 2 %, so that a quantile is off by at most 1 %
// of its value (the method of DDSketch, Masson et al., VLDB 2019). Buckets stand side by side from the smallest seen
// to the largest: durations of one kernel lie close together.
//
// Threads: its owner's. Blocks: no. Allocates when the range grows, at most 6 KiB.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace gpuflight::event {

class DurationSketch {
 public:
  void add(std::int64_t ns, std::uint64_t count = 1) {
    const int bucket = bucket_of(ns);
    if (counts_.empty()) {
      first_ = bucket;
      counts_.resize(1);
    } else if (bucket < first_) {
      counts_.insert(counts_.begin(), static_cast<std::size_t>(first_ - bucket), 0);
      first_ = bucket;
    } else if (static_cast<std::size_t>(bucket - first_) >= counts_.size()) {
      counts_.resize(static_cast<std::size_t>(bucket - first_) + 1);
    }
    counts_[static_cast<std::size_t>(bucket - first_)] += count;
    total_ += count;
  }

  void merge(const DurationSketch& other) {
    for (std::size_t i = 0; i < other.counts_.size(); ++i) {
      if (other.counts_[i] != 0) add_bucket(other.first_ + static_cast<int>(i), other.counts_[i]);
    }
  }

  std::uint64_t count() const noexcept { return total_; }

  // `q` of 0 to 1; 0 where nothing was added.
  std::int64_t quantile(double q) const noexcept {
    if (total_ == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(total_ - 1));
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      below += counts_[i];
      if (below > rank) return value_of(first_ + static_cast<int>(i));
    }
    return value_of(first_ + static_cast<int>(counts_.size()) - 1);
  }

 private:
  static constexpr double kGamma = 1.02;
  static int bucket_of(std::int64_t ns) noexcept {
    return ns <= 1 ? 0 : static_cast<int>(std::ceil(std::log(static_cast<double>(ns)) / std::log(kGamma)));
  }
  // The middle of the bucket in the sense that both bounds are as far away in proportion.
  static std::int64_t value_of(int bucket) noexcept {
    return bucket == 0 ? 1 : static_cast<std::int64_t>(std::llround(2 * std::pow(kGamma, bucket) / (kGamma + 1)));
  }
  void add_bucket(int bucket, std::uint64_t count) { add(value_of(bucket), count); }

  std::vector<std::uint64_t> counts_;
  int first_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace gpuflight::event
