// How much is recorded, so that the recorder's own cost stays within a share of the program's time (option `budget`).
// Pure logic: told once a period what was made and what it cost, it says which level to go to. Down as soon as a period
// was over the budget, up only when several periods in a row would have fitted a level higher.
//
// Threads: the recorder thread only. Blocks: no. Allocates: no.
#pragma once

#include <array>
#include <cstdint>

#include "event/level.h"

namespace gpuflight::recorder {

// What was made in a period, and what our threads took.
struct CostPeriod {
  std::int64_t wall_ns = 0;
  std::uint64_t records = 0;         // by the program's threads, whether there was room for them or not
  std::uint64_t busiest = 0;         // of these by the one thread slot that made most
  std::uint64_t calls = 0;           // of records: driver calls; the rest are scopes and marks
  std::uint64_t launches = 0;        // of calls: of kernels
  std::uint64_t graph_launches = 0;  // of calls
  std::uint64_t nodes = 0;           // work of graphs of which the GPU told times
  std::uint64_t recorder_cpu_ns = 0;
};

// What one of them costs the thread that makes it.
struct CostRates {
  double own_ns = 0;             // our part of a call
  double callback_ns = 0;        // CUPTI's, empty callbacks at entry and return
  double graph_callback_ns = 0;  // the same of cuGraphLaunch
  double gpu_times_ns = 0;       // a kernel's activity record
  double node_times_ns = 0;      // a node's
  std::uint32_t processors = 1;  // that the process may use
};

// What a step down can leave out, as the recording was set up and stands now.
struct CostMeans {
  bool lines = false;  // launches have lines
  bool times = false;  // GPU times, at level events
  bool cupti = false;  // launches are seen through CUPTI, at all levels but hooks
  bool hooks = false;  // and could be seen by the hooks
};

struct CostShare {
  double app_percent = 0;       // of the time of the thread that makes most records
  double recorder_percent = 0;  // of the time of all processors that the process may use
  double total() const noexcept { return app_percent + recorder_percent; }
};

class CostBudget {
 public:
  using Level = event::RecordLevel;
  using Reason = event::LevelEvent::Reason;

  explicit CostBudget(double percent) noexcept : percent_(percent) {}

  struct Verdict {
    Level level = Level::kEvents;  // the present one: stay
    Reason reason = Reason::kOverBudget;
    CostShare share;
    double floor_percent = 0;   // of app_percent: what no level takes away
    bool unattainable = false;  // the lowest level costs more; said once
  };
  Verdict judge(const CostPeriod& period, const CostRates& rates, const CostMeans& means) noexcept;
  // Whether the wish came true.
  void moved_to(Level level) noexcept;
  void refused() noexcept;

  Level level() const noexcept { return level_; }
  double percent() const noexcept { return percent_; }
  // Over all periods judged or added.
  CostShare mean() const noexcept;
  double mean_floor_percent() const noexcept { return wall_sum_ns_ > 0 ? floor_sum_ / wall_sum_ns_ : 0; }
  void add(const CostPeriod& period, const CostRates& rates, const CostMeans& means) noexcept;
  CostShare share_of(const CostPeriod& period, const CostRates& rates, const CostMeans& means) const noexcept;

 private:
  static constexpr std::uint32_t kLeastPatience = 5, kMostPatience = 80;  // periods that must fit before a step up
  static constexpr std::uint32_t kTrial = 10;       // periods within which a step down says that the step up was wrong
  static constexpr std::uint32_t kProven = 30;      // and after which it was right
  static constexpr std::uint32_t kOverAtLowest = 2;  // periods in a row
  static constexpr double kHeadroom = 0.8;          // of the budget that a higher level may be foreseen to take
  static constexpr std::uint64_t kFewestRecords = 1000;  // to tell the recorder's cost of one by

  static Level lower(Level level, const CostMeans& means) noexcept;
  static Level lowest(Level level, const CostMeans& means) noexcept;
  static Level higher(Level level, const CostMeans& means) noexcept;
  double app_ns(Level level, const CostPeriod& period, const CostRates& rates, const CostMeans& means) const noexcept;
  double app_percent(Level level, const CostPeriod& period, const CostRates& rates,
                     const CostMeans& means) const noexcept;
  double foreseen(Level level, const CostPeriod& period, const CostRates& rates, const CostMeans& means) const noexcept;
  void learn(const CostPeriod& period) noexcept;
  void judge_lowest(const CostShare& share, Verdict& verdict) noexcept;

  const double percent_;
  Level level_ = Level::kEvents;
  std::array<double, event::kRecordLevelNames.size()> recorder_ns_{};  // per record, by level; 0: not known
  double nodes_per_graph_ = 0;
  bool settling_ = false;  // the period has work of the level before
  std::uint32_t fitting_ = 0, patience_ = kLeastPatience;
  std::uint32_t trial_ = 0;  // periods since the last step up, until it is proven; 0: none to be proven
  std::uint32_t over_at_lowest_ = 0;
  double least_at_lowest_ = 0;
  bool said_unattainable_ = false;
  double app_sum_ = 0, recorder_sum_ = 0, floor_sum_ = 0, wall_sum_ns_ = 0;  // percent times ns
};

}  // namespace gpuflight::recorder
