#include "analysis/rank_test.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gpuflight::analysis {
namespace {

constexpr double kRounding = 1e-9;  // 2 * (1/20) is to be 0.1

// Twice the mean rank of each value, so that they are whole numbers; those of `a` first.
std::vector<std::size_t> doubled_ranks(std::span<const double> a, std::span<const double> b) {
  std::vector<double> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  std::vector<double> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::size_t> ranks;
  for (const double value : all) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
    ranks.push_back(static_cast<std::size_t>((first - sorted.begin()) + (last - sorted.begin())) + 1);
  }
  return ranks;
}

// ways[s]: in how many ways `choose` of the ranks add up to s.
std::vector<double> ways_to_sum(const std::vector<std::size_t>& ranks, std::size_t choose) {
  std::size_t sum = 0;
  for (const std::size_t rank : ranks) sum += rank;
  std::vector<std::vector<double>> ways(choose + 1, std::vector<double>(sum + 1, 0.0));
  ways[0][0] = 1;
  for (const std::size_t rank : ranks) {
    for (std::size_t k = choose; k > 0; --k) {
      for (std::size_t s = sum; s + 1 > rank; --s) ways[k][s] += ways[k - 1][s - rank];
    }
  }
  return ways[choose];
}

double exact_p(const std::vector<std::size_t>& ranks, std::size_t n) {
  const std::vector<double> ways = ways_to_sum(ranks, n);
  std::size_t seen = 0, whole = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    whole += ranks[i];
    if (i < n) seen += ranks[i];
  }
  const double middle = static_cast<double>(whole) * static_cast<double>(n) / static_cast<double>(ranks.size());
  const double distance = std::abs(static_cast<double>(seen) - middle);
  double all = 0, as_far = 0;
  for (std::size_t s = 0; s < ways.size(); ++s) {
    all += ways[s];
    if (std::abs(static_cast<double>(s) - middle) >= distance - kRounding) as_far += ways[s];
  }
  return as_far / all;
}

double normal_p(double u, std::span<const double> a, std::span<const double> b) {
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  std::vector<double> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end());
  double ties = 0;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t j = i;
    while (j < all.size() && all[j] == all[i]) ++j;
    const auto t = static_cast<double>(j - i);
    ties += t * t * t - t;
    i = j;
  }
  const double variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)));
  if (variance <= 0) return 1;
  const double z = std::max(0.0, std::abs(u - n * m / 2) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

std::vector<double> sorted_ratios(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  ratios.reserve(a.size() * b.size());
  for (const double y : b) {
    for (const double x : a) ratios.push_back(y / x);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

}  // namespace

RankTest rank_test(std::span<const double> a, std::span<const double> b) {
  RankTest test;
  for (const double y : b) {
    for (const double x : a) test.u += y > x ? 1.0 : y == x ? 0.5 : 0.0;
  }
  const bool exact = a.size() + b.size() <= kMostExact;
  test.p = std::min(1.0, exact ? exact_p(doubled_ranks(a, b), a.size()) : normal_p(test.u, a, b));
  return test;
}

double rank_tail(std::size_t n, std::size_t m, std::size_t u) {
  std::vector<std::size_t> ranks(n + m);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = i + 1;
  const std::vector<double> ways = ways_to_sum(ranks, n);
  const std::size_t least = n * (n + 1) / 2;
  double all = 0, tail = 0;
  for (std::size_t s = 0; s < ways.size(); ++s) {
    all += ways[s];
    if (s <= least + u) tail += ways[s];
  }
  return tail / all;
}

double least_p(std::size_t n, std::size_t m) {
  double combinations = 1;
  for (std::size_t i = 1; i <= n; ++i) combinations *= static_cast<double>(m + i) / static_cast<double>(i);
  return std::min(1.0, 2 / combinations);
}

std::optional<RatioInterval> ratio_interval(std::span<const double> a, std::span<const double> b, double alpha) {
  // The k-th ratio from each end, where fewer than k pairs are as unlikely as alpha allows.
  std::size_t k = 0;
  if (a.size() + b.size() <= kMostExact) {
    while (k < a.size() * b.size() / 2 && 2 * rank_tail(a.size(), b.size(), k) <= alpha + kRounding) ++k;
  } else {
    const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
    const double deviation = std::sqrt(n * m * (n + m + 1) / 12);
    for (k = a.size() * b.size() / 2; k > 0; --k) {
      const double z = (n * m / 2 - static_cast<double>(k - 1) - 0.5) / deviation;
      if (std::erfc(z / std::sqrt(2.0)) <= alpha) break;
    }
  }
  if (k == 0) return std::nullopt;
  const std::vector<double> ratios = sorted_ratios(a, b);
  return RatioInterval{ratios[k - 1], median_of(ratios), ratios[ratios.size() - k]};
}

double ratio_estimate(std::span<const double> a, std::span<const double> b) { return median_of(sorted_ratios(a, b)); }

double median_of(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace gpuflight::analysis
