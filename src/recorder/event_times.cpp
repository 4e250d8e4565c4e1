#include "recorder/event_times.h"

namespace gpuflight::recorder {

void EventTimes::begin_round() noexcept {
  if (timer_ == nullptr) return;
  timer_->poll([&](const capture::EventTimer::Time& time) {
    try {
      times_.push_back({time});
    } catch (...) {  // its line gets no time, at the latest at the end
    }
  });
}

void EventTimes::round(Drain& drain) noexcept {
  if (timer_ == nullptr) return;
  std::erase_if(times_, [&](Waiting& one) {
    return drain.join().on_event_time(one.time) || ++one.rounds > kMostRounds;
  });
  timer_->note_launches(drain.counts().launches);
}

std::optional<event::SessionEnd::EventTimes> EventTimes::totals() const noexcept {
  if (timer_ == nullptr) return std::nullopt;
  const capture::EventTimer::Counts counts = timer_->counts();
  return event::SessionEnd::EventTimes{counts.every, counts.begun, static_cast<std::uint64_t>(counts.cost_ns)};
}

}  // namespace gpuflight::recorder
