// Errors and hangs: gathers what is known of the streams' progress while records are drained, and turns what went wrong
// into events with their evidence.
//
// Threads: the recorder thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "capture/error_board.h"
#include "capture/kernel_table.h"
#include "capture/marker_board.h"
#include "capture/stream_table.h"
#include "event/api_call.h"
#include "event/incidents.h"
#include "flight/flight_file.h"
#include "recorder/detached_command.h"
#include "recorder/stream_progress.h"
#include "recorder/watchdog.h"

namespace gpuflight::recorder {

class IncidentWatch {
 public:
  struct Parts {
    const capture::DriverApi& driver;
    const capture::KernelTable& kernels;
    const capture::StreamTable& streams;
    capture::MarkerBoard* markers;  // null: no marks
    capture::ErrorBoard& errors;
    flight::FlightFile& file;
  };
  struct Incidents {
    std::vector<event::ErrorEvent> errors;
    std::vector<event::HangEvent> hangs;
    bool any_begun() const {
      if (!errors.empty()) return true;
      for (const auto& hang : hangs) {
        if (hang.phase == event::HangEvent::Phase::kBegin) return true;
      }
      return false;
    }
  };

  IncidentWatch(const Parts& parts, std::int64_t hang_after_ns, std::string hang_command)
      : parts_(parts), watchdog_(hang_after_ns), hang_command_(std::move(hang_command)) {}

  // While records are drained.
  // Work of the stream whose launch call had returned by then is known to be done; 0: nothing is known.
  std::int64_t finished_ns(std::uint32_t stream) const noexcept {
    return progress_.finished_ns(stream);
  }
  void on_launch(const event::KernelLaunch& launch) noexcept;
  void on_graph(const event::GraphLaunch& launch) noexcept;
  void on_call(const event::ApiEvent& call, std::uint32_t context_uid) noexcept;

  // Around a round: errors seen before it have all their launches drained after it.
  void begin_round(std::int64_t now_ns) noexcept;
  Incidents end_round(const std::vector<Watchdog::WaitingCall>& waiting, std::int64_t now_ns) noexcept;

  // By any thread. The return of calls entered before or during a pause may not have been seen.
  void on_paused() noexcept { calls_known_since_ns_.store(INT64_MAX, std::memory_order_relaxed); }
  void on_resumed(std::int64_t now_ns) noexcept { calls_known_since_ns_.store(now_ns, std::memory_order_relaxed); }

 private:
  void poll_markers(std::int64_t now_ns) noexcept;
  void finish(std::uint32_t stream, std::int64_t finished_ns, std::int64_t now_ns);
  event::SuspectLaunch suspect(const StreamProgress::Launch& launch) const;
  event::StreamInFlight in_flight(std::uint32_t stream, const StreamProgress::State& state) const;
  event::ErrorEvent describe(const capture::SeenError& seen);
  void run_command(const event::HangEvent& hang);
  std::uint32_t context_of(std::uint32_t stream) const;

  Parts parts_;
  StreamProgress progress_;
  Watchdog watchdog_;
  const std::string hang_command_;
  DetachedCommand command_;
  std::vector<capture::SeenError> seen_errors_;
  std::atomic<std::int64_t> calls_known_since_ns_{0};
  std::size_t hung_streams_ = 0;
};

}  // namespace gpuflight::recorder
