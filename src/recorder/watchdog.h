// Says when a stream has work and nothing of it gets done, and says so again when it goes on. It looks at marks and at
// calls that have not come back, never at the host's streams.
//
// Threads: the recorder thread, once a round. Allocates when it has something to say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "event/incidents.h"
#include "recorder/stream_progress.h"

namespace gpuflight::recorder {

class Watchdog {
 public:
  explicit Watchdog(std::int64_t hang_after_ns) : hang_after_ns_(hang_after_ns) {}

  // A call that a host thread is in now, and what of the GPU it waits for.
  struct WaitingCall {
    event::BlockedCall call;
    event::StreamId stream;  // 0: for no single stream
    std::uint32_t context_uid = 0;  // 0: that of the stream
  };

  // What began or ended to hang since the last call.
  struct Finding {
    event::HangEvent::Phase phase;
    std::uint32_t stream;
    std::int64_t since_ns;
  };
  // `context_of(stream)`: uid of its context.
  template <class ContextOf>
  std::vector<Finding> look(StreamProgress& progress, const std::vector<WaitingCall>& waiting, std::int64_t now_ns,
                            ContextOf&& context_of) {
    std::vector<Finding> findings;
    if (hang_after_ns_ == 0) return findings;
    // Contexts in which a mark, or who waits for one stream by name, says which it is that does not go on.
    std::vector<std::uint32_t> told;
    for (const WaitingCall& call : waiting) {
      const StreamProgress::State* const state = call.stream ? progress.state(call.stream.value) : nullptr;
      if (state == nullptr || state->in_flight == 0 || now_ns - call.call.since_ns < hang_after_ns_) continue;
      told.push_back(context_of(call.stream.value));
    }
    for (std::uint32_t stream = 1; stream < progress.streams().size(); ++stream) {
      if (unanswered(progress.streams()[stream], now_ns)) told.push_back(context_of(stream));
    }
    for (std::uint32_t stream = 1; stream < progress.streams().size(); ++stream) {
      StreamProgress::State& state = progress.streams()[stream];
      if (state.dead) continue;
      const bool idle = state.in_flight == 0 && state.outstanding_ns == 0 && !state.hung;
      if (idle) continue;
      judge(stream, state, unanswered(state, now_ns) || waited_for(stream, state, waiting, told, now_ns, context_of),
            now_ns, findings);
    }
    return findings;
  }

 private:
  bool unanswered(const StreamProgress::State& state, std::int64_t now_ns) const {
    return !state.dead && state.outstanding_ns != 0 && now_ns - state.outstanding_ns >= hang_after_ns_;
  }

  // A launch that no mark follows counts as stuck only while some thread has been waiting for it for as long: a program
  // that launches and goes to sleep has nobody who waits. Who waits for a whole context waits for the stream whose
  // marks are not answered, if there is one.
  template <class ContextOf>
  bool waited_for(std::uint32_t stream, const StreamProgress::State& state, const std::vector<WaitingCall>& waiting,
                  const std::vector<std::uint32_t>& told, std::int64_t now_ns, ContextOf& context_of) const {
    if (state.in_flight == 0) return false;
    for (const WaitingCall& call : waiting) {
      if (now_ns - call.call.since_ns < hang_after_ns_) continue;
      if (call.stream.value == stream) return true;
      if (call.stream || call.context_uid != context_of(stream)) continue;
      if (std::find(told.begin(), told.end(), call.context_uid) == told.end()) return true;
    }
    return false;
  }

  void judge(std::uint32_t stream, StreamProgress::State& state, bool waiting, std::int64_t now_ns,
             std::vector<Finding>& findings) const;

  const std::int64_t hang_after_ns_;  // 0: off
};

}  // namespace gpuflight::recorder
