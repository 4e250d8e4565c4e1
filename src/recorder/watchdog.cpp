#include "recorder/watchdog.h"

namespace gpuflight::recorder {

void Watchdog::judge(std::uint32_t stream, StreamProgress::State& state, bool waiting, std::int64_t now_ns,
                     std::vector<Finding>& findings) const {
  const bool stuck = waiting && now_ns - state.progress_ns >= hang_after_ns_;
  if (stuck && !state.hung) {
    state.hung = true;
    state.hung_since_ns = state.progress_ns;
    findings.push_back({event::HangEvent::Phase::kBegin, stream, state.hung_since_ns});
  } else if (state.hung && state.progress_ns > state.hung_since_ns) {
    state.hung = false;
    findings.push_back({event::HangEvent::Phase::kEnd, stream, state.hung_since_ns});
  }
}

}  // namespace gpuflight::recorder
