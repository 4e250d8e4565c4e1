// What each stream was asked to do lately and how far it is known to have come: the evidence for errors and hangs.
//
// Threads: the recorder thread. Allocates per stream with work in flight, at most kRemembered launches each; a stream
// whose work is known to be done holds nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "event/incidents.h"

namespace gpuflight::recorder {

class StreamProgress {
 public:
  // Launches of a stream that are not known to have finished: a GPU takes about 1,000 into a stream's queue before the
  // next launch waits.
  static constexpr std::size_t kRemembered = 1024;
  static constexpr std::size_t kRememberedInAll = 64 * 1024;  // of all streams: 6 MB
  static constexpr std::size_t kNamed = 16;                   // of them in a line

  struct Launch {
    event::Seq seq;
    event::ConfigId config;
    event::GraphId graph;
    event::Dim3 grid;
    std::int64_t launch_ns = 0;
    std::int64_t returned_ns = 0;  // when the call came back: a mark set later stands behind it
    std::int32_t status = 0;
  };

  void add(event::StreamId stream, const Launch& launch);

  // Work whose call had returned by `finished_ns` is done.
  void finished(std::uint32_t stream, std::int64_t finished_ns, std::int64_t now_ns);
  // A mark set at `marked_ns` has not been answered yet.
  void outstanding(std::uint32_t stream, std::int64_t oldest_ns, std::int64_t newest_ns);
  void begin_poll();  // forgets what was outstanding
  void died(std::uint32_t stream);

  struct State {
    std::int64_t finished_ns = 0;
    std::int64_t progress_ns = 0;         // when finished_ns last moved, or the stream last began to have work
    std::int64_t outstanding_ns = 0;      // oldest mark unanswered; 0: none
    std::int64_t newest_mark_ns = 0;
    std::uint64_t in_flight = 0;          // launches not known to have finished
    std::uint64_t forgotten = 0;          // of them, no longer remembered one by one
    std::int64_t forgotten_until_ns = 0;  // the last of those returned
    std::vector<Launch> launches;         // oldest first
    bool dead = false;                    // its context is: nothing more will happen on it
    bool hung = false;                    // watchdog's
    std::int64_t hung_since_ns = 0;
  };
  std::vector<State>& streams() { return streams_; }
  std::int64_t finished_ns(std::uint32_t stream) const noexcept {
    return stream < streams_.size() ? streams_[stream].finished_ns : 0;
  }
  State* state(std::uint32_t stream) { return stream < streams_.size() ? &streams_[stream] : nullptr; }

 private:
  State& at(std::uint32_t stream);

  std::vector<State> streams_;  // by StreamId
  std::size_t remembered_ = 0;
};

}  // namespace gpuflight::recorder
