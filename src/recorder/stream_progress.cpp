#include "recorder/stream_progress.h"

#include <algorithm>

namespace gpuflight::recorder {

StreamProgress::State& StreamProgress::at(std::uint32_t stream) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  return streams_[stream];
}

void StreamProgress::add(event::StreamId stream, const Launch& launch) {
  if (!stream || launch.status != 0) return;  // refused: it never was in the stream
  State& state = at(stream.value);
  if (state.dead || launch.returned_ns <= state.finished_ns) return;  // drained after it was known to be done
  if (state.in_flight == 0) state.progress_ns = std::max(state.progress_ns, launch.launch_ns);
  ++state.in_flight;
  if (state.launches.empty() || (state.launches.size() < kRemembered && remembered_ < kRememberedInAll)) {
    state.launches.push_back(launch);
    ++remembered_;
  } else {
    // The oldest are the evidence and the newest are what queues behind: the middle is counted.
    state.forgotten_until_ns = std::max(state.forgotten_until_ns, state.launches.back().returned_ns);
    ++state.forgotten;
    state.launches.back() = launch;
  }
}

void StreamProgress::finished(std::uint32_t stream, std::int64_t finished_ns, std::int64_t now_ns) {
  if (stream == 0) return;
  State& state = at(stream);
  if (finished_ns <= state.finished_ns) return;
  state.finished_ns = finished_ns;
  state.progress_ns = now_ns;
  const auto first_left = std::find_if(state.launches.begin(), state.launches.end(),
                                       [&](const Launch& l) { return l.returned_ns > finished_ns; });
  remembered_ -= static_cast<std::size_t>(first_left - state.launches.begin());
  state.launches.erase(state.launches.begin(), first_left);
  if (state.launches.empty()) state.launches.shrink_to_fit();
  // Of those forgotten in between some may be done too: they stay counted until all of them are.
  if (state.forgotten_until_ns <= finished_ns) state.forgotten = 0;
  state.in_flight = state.launches.size() + state.forgotten;
}

void StreamProgress::died(std::uint32_t stream) {
  State& state = at(stream);
  remembered_ -= state.launches.size();
  state = State{};
  state.dead = true;
}

void StreamProgress::begin_poll() {
  for (State& state : streams_) state.outstanding_ns = 0;
}

void StreamProgress::outstanding(std::uint32_t stream, std::int64_t oldest_ns, std::int64_t newest_ns) {
  if (stream == 0) return;
  State& state = at(stream);
  if (state.outstanding_ns == 0 || oldest_ns < state.outstanding_ns) state.outstanding_ns = oldest_ns;
  state.newest_mark_ns = std::max(state.newest_mark_ns, newest_ns);
}

}  // namespace gpuflight::recorder
