#include "report/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/kernel_name.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using analysis::GroupBy;
using analysis::LaunchGroup;
using analysis::LogSummary;

constexpr const char* kUnknown = "-";
constexpr std::size_t kLeastNameWidth = 36;
constexpr std::size_t kLeastNameWidthWithTimes = 20;

template <class T>
std::string range_text(const analysis::Range<T>& range) {
  if (!range.known) return kUnknown;
  return range.single() ? fmt::format("{}", range.min) : fmt::format("{}..{}", range.min, range.max);
}

std::string dim_text(const event::Dim3& dim) {
  if (dim.z > 1) return fmt::format("{}x{}x{}", dim.x, dim.y, dim.z);
  return dim.y > 1 ? fmt::format("{}x{}", dim.x, dim.y) : fmt::format("{}", dim.x);
}

std::string block_text(const LaunchGroup& group) {
  if (!group.block_threads.known) return kUnknown;
  if (!group.several_blocks) return dim_text(group.block);
  return range_text(group.block_threads);
}

std::string occupancy_text(const LaunchGroup& group) {
  if (!group.occupancy.known) return kUnknown;
  if (group.occupancy.single()) return percent_text(group.occupancy.min, 1);
  return fmt::format("{:.0f}..{:.0f}%", group.occupancy.min * 100, group.occupancy.max * 100);
}

std::string limiter_text(const LaunchGroup& group) {
  const auto main = group.main_limiter();
  if (!main) return kUnknown;
  const auto kinds = std::count_if(group.limited_by.begin(), group.limited_by.end(), [](auto n) { return n > 0; });
  const char* name = event::kLimiterNames[static_cast<std::size_t>(*main)];
  return kinds > 1 ? fmt::format("{} (+{})", name, kinds - 1) : std::string(name);
}

std::string shared_text(const LaunchGroup& group) {
  if (!group.static_shared_bytes.known && !group.dyn_shared_bytes.known) return kUnknown;
  return range_text(group.static_shared_bytes) + "+" + range_text(group.dyn_shared_bytes);
}

std::string mean_text(const analysis::Durations& durations) {
  const auto mean = durations.mean_ns();
  return mean ? duration_text(*mean) : std::string(kUnknown);
}

std::string time_text(const std::optional<double>& ns) { return ns ? duration_text(*ns) : std::string(kUnknown); }

bool names_kernels(GroupBy by) { return by == GroupBy::kKernel || by == GroupBy::kConfig; }

// One column of the table: how each group fills it.
struct Column {
  const char* heading;
  Align align;
  std::string (*cell)(const LaunchGroup& group, const Shares& shares);
};

constexpr Column kCount = {"count", Align::kRight,
                           [](const LaunchGroup& g, const Shares&) { return count_text(g.launches); }};
constexpr Column kFailed = {"failed", Align::kRight,
                            [](const LaunchGroup& g, const Shares&) { return count_text(g.failed); }};
constexpr Column kCaptured = {"captured", Align::kRight,
                              [](const LaunchGroup& g, const Shares&) { return count_text(g.captured); }};
constexpr Column kTotal = {"total", Align::kRight, [](const LaunchGroup& g, const Shares& shares) {
                             if (shares.estimated) return "~" + time_text(g.estimated_total_ns());
                             if (g.gpu.count == 0) return std::string(kUnknown);
                             return duration_text(static_cast<double>(g.gpu.total_ns));
                           }};
constexpr Column kTimed = {"timed", Align::kRight,
                           [](const LaunchGroup& g, const Shares&) { return count_text(g.gpu.count); }};
constexpr Column kError = {"error", Align::kRight, [](const LaunchGroup& g, const Shares&) {
                             const auto estimate = estimate_of(g);
                             if (!estimate || !estimate->low_ns || estimate->total_ns <= 0) return std::string(kUnknown);
                             const auto percent = [&](double ns) {
                               return fmt::format("{:+.1f}", 100 * (ns / estimate->total_ns - 1));
                             };
                             return percent(*estimate->low_ns) + ".." + percent(*estimate->high_ns) + "%";
                           }};
constexpr Column kMean = {"mean", Align::kRight, [](const LaunchGroup& g, const Shares&) { return mean_text(g.gpu); }};
constexpr Column kMedian = {"median", Align::kRight, [](const LaunchGroup& g, const Shares&) {
                              return time_text(g.gpu.quantile_ns(0.5));
                            }};
constexpr Column kP95 = {"p95", Align::kRight,
                         [](const LaunchGroup& g, const Shares&) { return time_text(g.gpu.quantile_ns(0.95)); }};
constexpr Column kMax = {"max", Align::kRight, [](const LaunchGroup& g, const Shares&) {
                           if (!g.gpu.each_ns.known) return std::string(kUnknown);
                           return duration_text(static_cast<double>(g.gpu.each_ns.max));
                         }};
constexpr Column kDeviation = {"std dev", Align::kRight, [](const LaunchGroup& g, const Shares&) {
                                 return time_text(g.gpu.deviation_ns());
                               }};
constexpr Column kQueue = {"queue", Align::kRight,
                           [](const LaunchGroup& g, const Shares&) { return mean_text(g.queue); }};
constexpr Column kRegs = {"regs", Align::kRight,
                          [](const LaunchGroup& g, const Shares&) { return range_text(g.num_regs); }};
constexpr Column kShared = {"shared st+dyn", Align::kRight,
                            [](const LaunchGroup& g, const Shares&) { return shared_text(g); }};
constexpr Column kBlock = {"block", Align::kRight, [](const LaunchGroup& g, const Shares&) { return block_text(g); }};
constexpr Column kOccupancy = {"occ", Align::kRight,
                               [](const LaunchGroup& g, const Shares&) { return occupancy_text(g); }};
constexpr Column kLimiter = {"limiter", Align::kLeft,
                             [](const LaunchGroup& g, const Shares&) { return limiter_text(g); }};
constexpr Column kCall = {"call mean", Align::kRight,
                          [](const LaunchGroup& g, const Shares&) { return mean_text(g.call); }};

Column share_column(const Shares& shares) {
  const char* const heading = shares.estimated ? "~time" : shares.of_gpu_time ? "time" : "share";
  return {heading, Align::kRight,
          [](const LaunchGroup& g, const Shares& s) { return percent_text(s.of(g), 1); }};
}

// Without the names.
TextTable filled(const std::vector<Column>& columns, const std::vector<const LaunchGroup*>& groups,
                 const Shares& shares, std::vector<std::vector<std::string>>& rows) {
  TextTable table;
  for (const Column& column : columns) table.add_column(column.heading, column.align);
  rows.clear();
  for (const LaunchGroup* group : groups) {
    std::vector<std::string> cells;
    for (const Column& column : columns) cells.push_back(column.cell(*group, shares));
    rows.push_back(std::move(cells));
  }
  return table;
}

std::size_t width_of(TextTable table, const std::vector<std::vector<std::string>>& rows) {
  table.add_column("", Align::kLeft);
  for (auto row : rows) {
    row.emplace_back();
    table.add_row(std::move(row));
  }
  return table.width_before_last();
}

}  // namespace

TextTable kernel_table(const LogSummary& summary, const std::vector<const LaunchGroup*>& groups,
                       const ReportOptions& options) {
  const Shares shares = shares_of(summary);
  const LaunchGroup totals = summary.totals();
  const bool times = totals.gpu.count > 0;
  std::vector<Column> columns = {share_column(shares)};
  if (times) columns.push_back(kTotal);
  if (times && shares.estimated) columns.push_back(kError);
  columns.push_back(kCount);
  if (times && shares.estimated) columns.push_back(kTimed);
  if (totals.failed > 0) columns.push_back(kFailed);
  if (totals.captured > 0) columns.push_back(kCaptured);
  if (times) columns.insert(columns.end(), {kMean, kMedian, kP95, kMax, kDeviation, kQueue});
  const std::size_t facts_at = columns.size();
  columns.insert(columns.end(), {kOccupancy, kLimiter});

  std::vector<std::vector<std::string>> rows;
  TextTable table;
  std::size_t used = 0;
  const auto fill = [&](const std::vector<Column>& with) {
    table = filled(with, groups, shares, rows);
    used = width_of(table, rows);
  };
  std::vector<Column> all = columns;
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(facts_at), {kRegs, kShared, kBlock});
  all.push_back(kCall);
  fill(all);
  // Beside times there is not always room for everything; JSON and CSV have it.
  if (times && used + kLeastNameWidth > options.width) fill(columns);
  const std::size_t least = times && names_kernels(summary.by()) ? kLeastNameWidthWithTimes : kLeastNameWidth;
  const std::size_t left = options.width > used + least ? options.width - used : least;

  const bool kernels = names_kernels(summary.by());
  table.add_column(kernels ? "kernel" : analysis::kGroupByNames[static_cast<std::size_t>(summary.by())], Align::kLeft);
  KernelNames names(left, options.full_names);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].push_back(kernels || options.full_names ? names.of(groups[i]->label)
                                                    : shortened(printable(groups[i]->label), left));
    table.add_row(std::move(rows[i]));
  }
  return table;
}

}  // namespace gpuflight::report
