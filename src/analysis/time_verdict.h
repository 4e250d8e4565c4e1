// Whether a time changed between two sides of recordings, and how sure that is.
//
// Launches of one run are not independent: they share the clocks, the temperature and the placement of their run, and two
// runs of the same program differ by more than launches within one do. A test over launches therefore finds a
// difference between any two runs. What is compared is one number of each recording, its median or 95th percentile.
//
// From the rank test's interval of the factor between the sides, widened by what the numbers themselves may be off:
//   SAME    the interval lies within the minimum effect, to both sides
//   SLOWER  the interval lies above 1, the estimate beyond the minimum effect
//   FASTER  the same the other way round
//   UNSURE  anything else; fewer than three recordings a side; a steady drift that explains the difference
//
// With three recordings a side the interval is that of all pairs' ratios: SLOWER is then that every recording of the one
// side took longer than every one of the other. By chance alone that happens once in 20 times (p = 0.1, two-sided, is
// the smallest there is), which is the rate of false SLOWER without a minimum effect; time_verdict_test measures it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/rank_test.h"

namespace gpuflight::analysis {

enum class TimeVerdict : std::uint8_t { kSame, kFaster, kSlower, kUnsure };
inline constexpr const char* kTimeVerdictNames[] = {"SAME", "FASTER", "SLOWER", "UNSURE"};

inline constexpr std::size_t kLeastRecordings = 3;

struct TimeRule {
  double least_effect = 0.05;   // of 1: differences below do not matter
  std::optional<double> alpha;  // none: 0.05, or what three recordings a side can give (0.1) where these are so few
  double alpha_for(std::size_t n, std::size_t m) const;
};

// Of one recording.
struct TimeSample {
  double ns = 0;
  std::optional<std::int64_t> when_ns;  // when it was recorded, since 1970
  double error = 0;                     // ns is off by this part of itself at most
};

struct TimeChange {
  TimeVerdict verdict = TimeVerdict::kUnsure;
  std::string reason;                  // of UNSURE
  std::vector<double> before, after;   // as given
  double before_ns = 0, after_ns = 0;  // medians over the recordings; 0: none
  std::optional<double> ratio;         // after / before
  std::optional<RatioInterval> interval;
  std::optional<double> p;
  bool drifts = false;                 // the reason is drift
};
TimeChange compare_times(const std::vector<TimeSample>& before, const std::vector<TimeSample>& after,
                         const TimeRule& rule);

}  // namespace gpuflight::analysis
