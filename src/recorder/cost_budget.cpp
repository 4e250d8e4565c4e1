#include "recorder/cost_budget.h"

#include <algorithm>

namespace gpuflight::recorder {
namespace {

constexpr std::size_t index(event::RecordLevel level) { return static_cast<std::size_t>(level); }

}  // namespace

// Levels that would leave out nothing are passed over.
CostBudget::Level CostBudget::lower(Level level, const CostMeans& means) noexcept {
  if (level == Level::kEvents && means.lines) return Level::kSampled;
  if (level == Level::kEvents && means.times) return Level::kSummaries;
  if (level == Level::kSampled) return Level::kSummaries;
  if (level != Level::kHooks && means.cupti && means.hooks) return Level::kHooks;
  return level;
}

CostBudget::Level CostBudget::lowest(Level level, const CostMeans& means) noexcept {
  while (lower(level, means) != level) level = lower(level, means);
  return level;
}

CostBudget::Level CostBudget::higher(Level level, const CostMeans& means) noexcept {
  switch (level) {
    case Level::kHooks:
      if (means.lines || means.times) return Level::kSummaries;
      return Level::kEvents;
    case Level::kSummaries:
      if (means.lines) return Level::kSampled;
      return Level::kEvents;
    default: return Level::kEvents;
  }
}

double CostBudget::app_ns(Level level, const CostPeriod& period, const CostRates& rates,
                          const CostMeans& means) const noexcept {
  const auto launches = static_cast<double>(period.launches), graphs = static_cast<double>(period.graph_launches);
  double ns = static_cast<double>(period.records) * rates.own_ns;
  if (means.cupti && level != Level::kHooks) {
    const double others = std::max(0.0, static_cast<double>(period.calls) - graphs);
    ns += others * rates.callback_ns + graphs * rates.graph_callback_ns;
  }
  if (means.times && level == Level::kEvents) {
    const double nodes =
        level_ == Level::kEvents ? static_cast<double>(period.nodes) : graphs * nodes_per_graph_;
    ns += launches * rates.gpu_times_ns + nodes * rates.node_times_ns;
  }
  return ns;
}

// What the threads pay together, of it the part of the busiest, of its time.
double CostBudget::app_percent(Level level, const CostPeriod& period, const CostRates& rates,
                               const CostMeans& means) const noexcept {
  if (period.records == 0 || period.wall_ns <= 0) return 0;
  const double part = static_cast<double>(period.busiest) / static_cast<double>(period.records);
  return 100 * part * app_ns(level, period, rates, means) / static_cast<double>(period.wall_ns);
}

CostShare CostBudget::share_of(const CostPeriod& period, const CostRates& rates,
                               const CostMeans& means) const noexcept {
  if (period.wall_ns <= 0) return {};
  const double time = static_cast<double>(period.wall_ns) * std::max(1u, rates.processors);
  return {app_percent(level_, period, rates, means), 100 * static_cast<double>(period.recorder_cpu_ns) / time};
}

// What the period would have cost at a higher level. Where that level has never been measured, the next one above it
// tells: it costs more.
double CostBudget::foreseen(Level level, const CostPeriod& period, const CostRates& rates,
                            const CostMeans& means) const noexcept {
  double each = 0;
  for (std::size_t i = index(level) + 1; i-- > 0 && each == 0;) each = recorder_ns_[i];
  CostPeriod higher = period;
  higher.recorder_cpu_ns = std::max(
      period.recorder_cpu_ns, static_cast<std::uint64_t>(each * static_cast<double>(period.records)));
  return app_percent(level, period, rates, means) + share_of(higher, rates, means).recorder_percent;
}

void CostBudget::learn(const CostPeriod& period) noexcept {
  if (level_ == Level::kEvents && period.graph_launches > 0) {
    nodes_per_graph_ = static_cast<double>(period.nodes) / static_cast<double>(period.graph_launches);
  }
  if (period.records < kFewestRecords) return;
  recorder_ns_[index(level_)] =
      static_cast<double>(period.recorder_cpu_ns) / static_cast<double>(period.records);
}

void CostBudget::add(const CostPeriod& period, const CostRates& rates, const CostMeans& means) noexcept {
  const CostShare share = share_of(period, rates, means);
  const auto wall = static_cast<double>(std::max<std::int64_t>(period.wall_ns, 0));
  app_sum_ += share.app_percent * wall;
  recorder_sum_ += share.recorder_percent * wall;
  floor_sum_ += app_percent(lowest(level_, means), period, rates, means) * wall;
  wall_sum_ns_ += wall;
}

CostShare CostBudget::mean() const noexcept {
  if (wall_sum_ns_ <= 0) return {};
  return {app_sum_ / wall_sum_ns_, recorder_sum_ / wall_sum_ns_};
}

CostBudget::Verdict CostBudget::judge(const CostPeriod& period, const CostRates& rates,
                                      const CostMeans& means) noexcept {
  add(period, rates, means);
  Verdict verdict;
  verdict.level = level_;
  verdict.share = share_of(period, rates, means);
  const Level last = lowest(level_, means);
  verdict.floor_percent = app_percent(last, period, rates, means);
  if (trial_ != 0 && ++trial_ >= kProven) {
    trial_ = 0;
    patience_ = kLeastPatience;
  }
  if (settling_) {
    settling_ = false;
    return verdict;
  }
  learn(period);
  if (verdict.share.total() > percent_) {
    fitting_ = 0;
    if (level_ == last) {
      judge_lowest(verdict.share, verdict);
      return verdict;
    }
    // Where a level still costs the program's threads too much, it is not tried.
    Level next = lower(level_, means);
    while (next != last && app_percent(next, period, rates, means) > percent_) next = lower(next, means);
    verdict.level = next;
    return verdict;
  }
  over_at_lowest_ = 0;
  if (level_ == Level::kEvents) return verdict;
  const Level next = higher(level_, means);
  fitting_ = foreseen(next, period, rates, means) <= kHeadroom * percent_ ? fitting_ + 1 : 0;
  if (fitting_ < patience_) return verdict;
  verdict.level = next;
  verdict.reason = Reason::kFits;
  return verdict;
}

// One period may be over for what the level before has left to do.
void CostBudget::judge_lowest(const CostShare& share, Verdict& verdict) noexcept {
  least_at_lowest_ = over_at_lowest_ == 0 ? share.total() : std::min(least_at_lowest_, share.total());
  if (++over_at_lowest_ < kOverAtLowest && verdict.floor_percent <= percent_) return;
  verdict.unattainable = !said_unattainable_;
  said_unattainable_ = true;
  if (verdict.unattainable) verdict.floor_percent = std::max(verdict.floor_percent, least_at_lowest_);
}

void CostBudget::moved_to(Level level) noexcept {
  const bool up = level < level_;
  // A step up that had to be taken back so soon was wrong: the next one waits longer.
  if (!up && trial_ != 0 && trial_ < kTrial) patience_ = std::min(2 * patience_, kMostPatience);
  trial_ = up ? 1 : 0;
  level_ = level;
  settling_ = true;
  fitting_ = 0;
  over_at_lowest_ = 0;
}

void CostBudget::refused() noexcept {
  fitting_ = 0;
  patience_ = std::min(2 * patience_, kMostPatience);
}

}  // namespace gpuflight::recorder
