// The GPU time of all launches from that of some of them. Each configuration is a stratum of its own: its launches take
// about as long as each other, and of a rare one a larger part is timed than of a common one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpuflight::analysis {

// Launches of one configuration in one group.
struct Stratum {
  std::uint64_t executed = 0;
  std::uint64_t timed = 0;
  double total_ns = 0;
  bool spread_known = true;  // false: of some only the sum was told

  void add(double ns);
  void add_sum(std::uint64_t count, double total);  // of a kernel_summary
  double squares() const { return squares_; }

 private:
  double mean_ = 0, squares_ = 0;  // Welford
};

struct Extrapolation {
  double total_ns = 0;
  // Standard error of total_ns: the root of the sum over configurations of N^2 s^2 / k (1 - k / N), of k timed ones of N
  // launches with variance s^2. Not known: too few have been timed.
  std::optional<double> variance;

  std::optional<double> standard_error_ns() const;
  void add(const Extrapolation& other);  // of other launches

  // Not known: nothing was timed.
  static std::optional<Extrapolation> of(const std::vector<const Stratum*>& strata);
};

}  // namespace gpuflight::analysis
