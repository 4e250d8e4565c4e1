#include "report/curve_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "report/advice_text.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using occupancy::CurveOver;
using occupancy::OccupancyCurve;

constexpr int kRows = 10;
constexpr std::size_t kLabel = 6;  // "100% |"
constexpr std::size_t kMostColumns = 96, kLeastColumns = 32;

const char* axis_title(CurveOver over) {
  switch (over) {
    case CurveOver::kBlock:
      return "threads per block";
    case CurveOver::kRegisters:
      return "registers per thread";
    case CurveOver::kShared:
      return "bytes of shared memory per block";
  }
  return "";
}

// What each column shows: of blocks of 32 threads each one or more whole columns, else evenly spaced values.
std::vector<std::int32_t> columns_of(const OccupancyCurve& curve, std::size_t width) {
  const std::size_t room = std::clamp(width > kLabel ? width - kLabel : 0, kLeastColumns, kMostColumns);
  std::vector<std::int32_t> xs;
  if (curve.over == CurveOver::kBlock) {
    const std::size_t each = std::max<std::size_t>(1, room / std::max<std::size_t>(curve.points.size(), 1));
    for (const auto& point : curve.points) xs.insert(xs.end(), each, point.x);
    return xs;
  }
  for (std::size_t i = 0; i < room; ++i) {
    const auto span = static_cast<std::int64_t>(curve.most) - curve.least;
    xs.push_back(curve.least +
                 static_cast<std::int32_t>(span * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(room - 1)));
  }
  return xs;
}

// The mark below the axis and what holds there, beside it where there is room.
std::string mark_text(const OccupancyCurve& curve, const occupancy::CurvePoint& point, std::size_t column,
                      std::size_t width) {
  const std::string text = fmt::format("{}: {}, {}, limited by {}", count_text(static_cast<std::uint64_t>(curve.now)),
                                       percent_text(static_cast<double>(point.warps) / curve.max_warps, 1),
                                       point.blocks == 1 ? "1 block" : fmt::format("{} blocks", point.blocks),
                                       limiter_words(point.limiters));
  if (column + 2 + text.size() <= width) return std::string(column, ' ') + "^ " + text + "\n";
  if (text.size() + 1 <= column) return std::string(column - text.size() - 1, ' ') + text + " ^\n";
  return std::string(column, ' ') + "^\n" + wrapped(text, width, 0) + "\n";
}

}  // namespace

std::string curve_plot(const OccupancyCurve& curve, std::size_t width) {
  const std::vector<std::int32_t> xs = columns_of(curve, width);
  if (xs.empty() || curve.max_warps <= 0) return {};
  const bool inside = curve.at(curve.now) != nullptr;
  const auto here = static_cast<std::size_t>(std::lower_bound(xs.begin(), xs.end(), curve.now) - xs.begin());
  std::string out = fmt::format("occupancy over {}\n", axis_title(curve.over));
  for (int row = kRows; row >= 1; --row) {
    std::string bars;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      // At the present place what holds there, not at the column's own value, which may be a step further.
      const auto* point = curve.at(inside && i == here ? curve.now : xs[i]);
      const bool filled = point != nullptr && 2 * kRows * point->warps >= (2 * row - 1) * curve.max_warps;
      bars += !filled ? ' ' : inside && i == here ? '|' : '#';
    }
    bars.erase(bars.find_last_not_of(' ') + 1);
    out += fmt::format("{:>3}% |{}\n", row * 100 / kRows, bars);
  }
  const std::string least = fmt::format("{}", curve.points.front().x);
  const std::string most = count_text(static_cast<std::uint64_t>(curve.most));
  const std::size_t between = xs.size() > least.size() + most.size() ? xs.size() - least.size() - most.size() : 1;
  out += "     +" + std::string(xs.size(), '-') + "\n";
  out += std::string(kLabel, ' ') + least + std::string(between, ' ') + most + "\n";
  const auto* const point = curve.at(curve.now);
  return point == nullptr ? out : out + mark_text(curve, *point, kLabel + std::min(here, xs.size() - 1), width);
}

}  // namespace gpuflight::report
