// GPU times by events in the life of a recording: read back each round, handed to the join, held to their budget.
//
// Threads: the recorder thread; close by who ends the recording. Blocks: close, for a bounded time. Allocates, bounded by
// the events in flight.
#pragma once

#include <vector>

#include "capture/event_timer.h"
#include "recorder/drain.h"

namespace gpuflight::recorder {

class EventTimes {
 public:
  explicit EventTimes(capture::EventTimer* timer) : timer_(timer) {}  // null: the option is off

  // Before the rings are emptied, so that a launch is seen before its time.
  void begin_round() noexcept;
  // After it.
  void round(Drain& drain) noexcept;
  // The driver may be taken down from here on.
  void close() noexcept {
    if (timer_ != nullptr) timer_->close();
  }
  std::optional<event::SessionEnd::EventTimes> totals() const noexcept;

 private:
  capture::EventTimer* const timer_;
  // A round under a budget may leave records in the rings: a time waits for its own, so many rounds.
  static constexpr std::uint32_t kMostRounds = 200;
  struct Waiting {
    capture::EventTimer::Time time;
    std::uint32_t rounds = 0;
  };
  std::vector<Waiting> times_;
};

}  // namespace gpuflight::recorder
