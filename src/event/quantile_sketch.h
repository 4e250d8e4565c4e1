// Quantiles of many durations in little memory: counts in buckets that grow by a constant factor, so that a quantile is
// off by a fraction of itself at most (DDSketch). Sketches can be added up.
//
// All sketches of a summary share one budget of buckets. When it is used up a sketch that needs one more joins its
// neighbouring buckets, which doubles its error: error() says what it is then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpuflight::event {

struct SketchBudget {
  std::size_t buckets = 4'000'000;  // left; 64 MB
};

class QuantileSketch {
 public:
  static constexpr double kError = 0.005;  // until the budget is used up

  // Below 0 counts as 0.
  void add(std::int64_t value, SketchBudget& budget);
  void add(const QuantileSketch& other, SketchBudget& budget);

  std::uint64_t count() const { return count_; }
  std::size_t buckets() const { return buckets_.size(); }
  // Of the value of rank floor(q * (count - 1)), from 0 to 1; nothing in it: not known.
  std::optional<double> quantile(double q) const;
  double error() const;

 private:
  struct Bucket {
    std::uint32_t index;  // 0: of zeros; i: up to gamma^(i-1)
    std::uint64_t count;
  };
  std::uint32_t index_of(std::int64_t value) const;
  void add_to(std::uint32_t index, std::uint64_t count, SketchBudget& budget);
  void coarsen(SketchBudget& budget);

  std::vector<Bucket> buckets_;  // ascending
  std::size_t last_ = 0;         // where the last value went: the next one is likely to go there too
  std::uint64_t count_ = 0;
  std::uint8_t coarse_ = 0;      // gamma is 1.01.. to the power of 2^coarse_
};

}  // namespace gpuflight::event
