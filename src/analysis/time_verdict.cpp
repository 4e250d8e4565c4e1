#include "analysis/time_verdict.h"

#include <algorithm>
#include <cmath>

namespace gpuflight::analysis {
namespace {

constexpr double kAlpha = 0.05, kAlphaOfFew = 0.1;

std::vector<double> values_of(const std::vector<TimeSample>& samples) {
  std::vector<double> values;
  // A time of 0 is shorter than the clock can tell, and has no ratio.
  for (const TimeSample& sample : samples) values.push_back(std::max(sample.ns, 1.0));
  return values;
}

double largest_error(const std::vector<TimeSample>& samples) {
  double error = 0;
  for (const TimeSample& sample : samples) error = std::max(error, sample.error);
  return error;
}

std::vector<TimeSample> by_time(std::vector<TimeSample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const TimeSample& a, const TimeSample& b) { return *a.when_ns < *b.when_ns; });
  return samples;
}

bool all_dated(const std::vector<TimeSample>& samples) {
  return std::all_of(samples.begin(), samples.end(), [](const TimeSample& s) { return s.when_ns.has_value(); });
}

// Adds the sums of a line through the logarithms over their places in time.
void add_slope(const std::vector<TimeSample>& samples, double& products, double& squares) {
  double mean = 0;
  for (const TimeSample& sample : samples) mean += std::log(std::max(sample.ns, 1.0));
  mean /= static_cast<double>(samples.size());
  const double middle = static_cast<double>(samples.size() - 1) / 2;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double place = static_cast<double>(i) - middle;
    products += place * (std::log(std::max(samples[i].ns, 1.0)) - mean);
    squares += place * place;
  }
}

// Where one side was recorded as a whole before the other, a drift over all of them looks like a difference. How much
// of one it would make (as a logarithm), by the slope within the sides; 0 where they were recorded in turns, which is
// what to do.
double drift_between(const std::vector<TimeSample>& before, const std::vector<TimeSample>& after) {
  if (!all_dated(before) || !all_dated(after)) return 0;
  const std::vector<TimeSample> a = by_time(before), b = by_time(after);
  const bool a_first = *a.back().when_ns < *b.front().when_ns, b_first = *b.back().when_ns < *a.front().when_ns;
  if (!a_first && !b_first) return 0;
  double products = 0, squares = 0;
  add_slope(a, products, squares);
  add_slope(b, products, squares);
  const double steps = static_cast<double>(a.size() + b.size()) / 2;
  return squares > 0 ? products / squares * (a_first ? steps : -steps) : 0;
}

}  // namespace

double TimeRule::alpha_for(std::size_t n, std::size_t m) const {
  if (alpha) return *alpha;
  const double least = least_p(n, m);
  return least > kAlpha && least <= kAlphaOfFew + 1e-9 ? least : kAlpha;
}

TimeChange compare_times(const std::vector<TimeSample>& before, const std::vector<TimeSample>& after,
                         const TimeRule& rule) {
  TimeChange change;
  change.before = values_of(before);
  change.after = values_of(after);
  change.before_ns = median_of(change.before);
  change.after_ns = median_of(change.after);
  if (before.empty() || after.empty()) {
    change.reason = "no GPU times";
    return change;
  }
  change.ratio = ratio_estimate(change.before, change.after);
  if (before.size() < kLeastRecordings || after.size() < kLeastRecordings) {
    change.reason = "fewer than three recordings";
    return change;
  }
  change.p = rank_test(change.before, change.after).p;
  change.interval = ratio_interval(change.before, change.after, rule.alpha_for(before.size(), after.size()));
  if (!change.interval) {
    change.reason = "too few recordings for this alpha";
    return change;
  }
  const double blur = (1 + largest_error(before)) * (1 + largest_error(after));
  RatioInterval& interval = *change.interval;
  interval.low /= blur;
  interval.high *= blur;
  const double most = 1 + rule.least_effect, least = 1 / most;
  if (interval.low >= least && interval.high <= most) {
    change.verdict = TimeVerdict::kSame;
    return change;
  }
  const bool slower = interval.low > 1 && interval.estimate >= most;
  const bool faster = interval.high < 1 && interval.estimate <= least;
  if (!slower && !faster) {
    const bool differs = interval.low > 1 || interval.high < 1;
    change.reason = differs ? "a difference about as large as the minimum effect" : "the recordings spread too far";
    return change;
  }
  const double drift = drift_between(before, after);
  const double left = std::log(interval.estimate) - drift;
  if (drift * (slower ? 1 : -1) > 0 && left * (slower ? 1 : -1) < std::log(most)) {
    change.drifts = true;
    change.reason = "a drift over the recordings explains it";
    return change;
  }
  change.verdict = slower ? TimeVerdict::kSlower : TimeVerdict::kFaster;
  return change;
}

}  // namespace gpuflight::analysis
