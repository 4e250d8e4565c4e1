// How much is recorded under a budget for the recorder's own cost (option `budget`), and the line that says a change.
#pragma once

#include <array>
#include <cstdint>

#include "event/events.h"

namespace gpuflight::event {

// From the most to the least. Every launch is counted at each of them.
enum class RecordLevel : std::uint8_t {
  kEvents,     // as configured
  kSampled,    // a line for every N-th launch of a configuration, no GPU times
  kSummaries,  // launches in summaries only, no GPU times
  kHooks,      // the same, and launches are seen by the driver's entry points instead of CUPTI
};
inline constexpr std::array<const char*, 4> kRecordLevelNames = {"events", "sampled", "summaries", "hooks"};

struct LevelEvent {
  enum class Reason : std::uint8_t {
    kOverBudget,  // the last period cost more
    kFits,        // the level above would cost less
    kEnd,         // no change: the mean over the recording, at its end
  };
  Seq seq;
  std::int64_t time_ns = 0;
  RecordLevel from = RecordLevel::kEvents, to = RecordLevel::kEvents;
  Reason reason = Reason::kOverBudget;
  double budget_percent = 0;
  double app_percent = 0;       // of the busiest launching thread's time
  double recorder_percent = 0;  // of the processors' time, by the recorder's own threads
  double floor_percent = 0;     // of app_percent: what no level takes away
  double share_percent() const { return app_percent + recorder_percent; }
};
inline constexpr std::array<const char*, 3> kLevelReasonNames = {"over_budget", "fits", "end"};

}  // namespace gpuflight::event
