// The Mann-Whitney rank test of two small samples, exact: what is compared are a few recordings, where approximations
// are worthless. Ties count with their mean ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace gpuflight::analysis {

// Number of pairs in which the value of `b` is the larger, ties by half; and how likely a number so far from the middle,
// or further, is where both samples are of one distribution (two-sided).
struct RankTest {
  double u = 0;
  double p = 1;
};
// Neither may be empty. Exact up to kMostExact values together, else by the normal distribution.
inline constexpr std::size_t kMostExact = 60;
RankTest rank_test(std::span<const double> a, std::span<const double> b);

// P(U <= u) of samples of n and m values without ties.
double rank_tail(std::size_t n, std::size_t m, std::size_t u);

// The smallest p that n and m values can give: complete separation. 3 and 3: 0.1.
double least_p(std::size_t n, std::size_t m);

// By which factor `b` is larger than `a`: the median of all pairs' ratios, and between which of these the factor lies
// with a confidence of 1 - alpha at least. The interval excludes 1 exactly where the rank test's p is alpha at most (no
// ties). Nothing: samples are too small for this alpha. Values must be above 0.
struct RatioInterval {
  double low = 0, estimate = 0, high = 0;
};
std::optional<RatioInterval> ratio_interval(std::span<const double> a, std::span<const double> b, double alpha);
double ratio_estimate(std::span<const double> a, std::span<const double> b);

double median_of(std::span<const double> values);  // of an even number the mean of the middle two; none: 0

}  // namespace gpuflight::analysis
