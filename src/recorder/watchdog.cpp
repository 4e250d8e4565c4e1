#include "recorder/watchdog.h"

#include <algorithm>

namespace gpuflight::recorder {

std::vector<Watchdog::Finding> Watchdog::look(StreamProgress& progress, const std::vector<event::BlockedCall>& blocked,
                                              std::int64_t now_ns) {
  std::vector<Finding> findings;
  if (hang_after_ns_ == 0) return findings;
  // A launch that no mark follows counts as stuck only while some thread has been waiting in a call for as long: a
  // program that launches and goes to sleep has marks behind all its work or nobody who waits for it.
  const bool someone_waits = std::any_of(blocked.begin(), blocked.end(), [&](const event::BlockedCall& call) {
    return now_ns - call.since_ns >= hang_after_ns_;
  });
  for (std::uint32_t stream = 1; stream < progress.streams().size(); ++stream) {
    StreamProgress::State& state = progress.streams()[stream];
    const bool unanswered = state.outstanding_ns != 0 && now_ns - state.outstanding_ns >= hang_after_ns_;
    const bool waited_for = someone_waits && state.in_flight > 0;
    const bool stuck = (unanswered || waited_for) && now_ns - state.progress_ns >= hang_after_ns_;
    if (stuck && !state.hung) {
      state.hung = true;
      state.hung_since_ns = state.progress_ns;
      findings.push_back({event::HangEvent::Phase::kBegin, stream, state.hung_since_ns});
    } else if (state.hung && state.progress_ns > state.hung_since_ns) {
      state.hung = false;
      findings.push_back({event::HangEvent::Phase::kEnd, stream, state.hung_since_ns});
    }
  }
  return findings;
}

}  // namespace gpuflight::recorder
