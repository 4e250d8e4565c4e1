// The table of `gpuflight report`: a summary as text, JSON or CSV. Keys of the JSON and columns of the CSV are described
// in docs/CLI.md and stay.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/log_summary.h"

namespace gpuflight::report {

enum class SortBy : std::uint8_t {
  kShare, kCount, kTime, kCall, kOccupancy, kRegisters, kShared, kName, kMean, kMax, kQueue
};
inline constexpr std::array<const char*, 11> kSortByNames = {"share",  "count", "time", "call", "occupancy", "registers",
                                                             "shared", "name",  "mean", "max",  "queue"};
std::optional<SortBy> sort_by(std::string_view name);

struct ReportOptions {
  SortBy sort = SortBy::kShare;
  std::size_t top = 0;      // 0: all
  bool full_names = false;
  std::size_t width = 120;  // columns of the text form
  bool colour = false;
};

inline constexpr int kReportSchema = 1;  // "report_schema" of the JSON form

// Groups with launches in the order asked for; most first but for names and occupancy, where the least is first.
// Equal ones by name, so that the order never depends on the run.
std::vector<const analysis::LaunchGroup*> ranked(const analysis::LogSummary& summary, SortBy sort);

// Share of GPU time where the launches of the summary that could have one have one, else share of launches. Where a
// few lack it (at most 10 %: what still ran at the end, records that were lost) of the time that is known; where only
// samples were taken of what they stand for.
struct Shares {
  bool of_gpu_time = false;
  bool estimated = false;  // by samples
  double whole = 0;
  double of(const analysis::LaunchGroup& group) const;
};
Shares shares_of(const analysis::LogSummary& summary);

// Of samples: the GPU time of all launches, and where it lies with a probability of 95 % (1.96 standard errors to both
// sides, and below that what events may have told too much).
struct Estimate {
  double total_ns = 0;
  double too_long_ns = 0;
  std::optional<double> standard_error_ns, low_ns, high_ns;  // null: too few were timed
};
std::optional<Estimate> estimate_of(const analysis::LaunchGroup& group);

std::string render_text(const analysis::LogSummary& summary, const ReportOptions& options);
std::string render_json(const analysis::LogSummary& summary, const ReportOptions& options);
std::string render_csv(const analysis::LogSummary& summary, const ReportOptions& options);

}  // namespace gpuflight::report
