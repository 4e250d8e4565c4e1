#include "analysis/extrapolation.h"

#include <cmath>

namespace gpuflight::analysis {
namespace {

struct Pooled {
  std::uint64_t timed = 0;
  double total_ns = 0;
  std::optional<double> variance;  // of all timed ones, whatever their configuration

  explicit Pooled(const std::vector<const Stratum*>& strata) {
    double squares = 0;
    bool known = true;
    for (const Stratum* one : strata) {
      timed += one->timed;
      total_ns += one->total_ns;
      known = known && one->spread_known;
    }
    if (!known || timed < 2) return;
    for (const Stratum* one : strata) {
      if (one->timed == 0) continue;
      const double away = one->total_ns / static_cast<double>(one->timed) - mean();
      squares += one->squares() + static_cast<double>(one->timed) * away * away;
    }
    variance = squares / static_cast<double>(timed - 1);
  }
  double mean() const { return total_ns / static_cast<double>(timed); }
};

// What one timed launch stands for has the variance of its kind, or, where it is the only one of that, of all.
std::optional<double> variance_of(const Stratum& one, const Pooled& all) {
  const auto n = static_cast<double>(std::max(one.executed, one.timed)), k = static_cast<double>(one.timed);
  if (one.timed >= one.executed) return 0;
  if (!one.spread_known) return std::nullopt;
  if (one.timed >= 2) return n * n * (one.squares() / (k - 1)) / k * (1 - k / n);
  if (!all.variance) return std::nullopt;
  return one.timed == 1 ? n * n * *all.variance * (1 - 1 / n) : n * n * *all.variance;
}

}  // namespace

void Stratum::add(double ns) {
  ++timed;
  total_ns += ns;
  const double distance = ns - mean_;
  mean_ += distance / static_cast<double>(timed);
  squares_ += distance * (ns - mean_);
}

void Stratum::add_sum(std::uint64_t count, double total) {
  if (count == 0) return;
  timed += count;
  total_ns += total;
  spread_known = false;
}

std::optional<double> Extrapolation::standard_error_ns() const {
  return variance ? std::optional<double>(std::sqrt(std::max(*variance, 0.0))) : std::nullopt;
}

void Extrapolation::add(const Extrapolation& other) {
  total_ns += other.total_ns;
  variance = variance && other.variance ? std::optional<double>(*variance + *other.variance) : std::nullopt;
}

std::optional<Extrapolation> Extrapolation::of(const std::vector<const Stratum*>& strata) {
  const Pooled all(strata);
  if (all.timed == 0) return std::nullopt;
  Extrapolation sum{0, 0.0};
  for (const Stratum* one : strata) {
    const auto n = static_cast<double>(std::max(one->executed, one->timed));
    const double mean = one->timed > 0 ? one->total_ns / static_cast<double>(one->timed) : all.mean();
    sum.add({n * mean, variance_of(*one, all)});
  }
  return sum;
}

}  // namespace gpuflight::analysis
