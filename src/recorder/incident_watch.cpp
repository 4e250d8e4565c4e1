#include "recorder/incident_watch.h"

#include <algorithm>
#include <optional>

#include "event/driver_status.h"

namespace gpuflight::recorder {

void IncidentWatch::on_launch(const event::KernelLaunch& launch) noexcept {
  if (launch.captured || !launch.status) return;
  try {
    progress_.add(launch.stream, {launch.seq, launch.config, {}, launch.grid, launch.launch_ns,
                                  launch.returned_by().value_or(launch.launch_ns), *launch.status});
  } catch (...) {
  }
}

void IncidentWatch::on_graph(const event::GraphLaunch& launch) noexcept {
  if (launch.captured || !launch.status) return;
  try {
    progress_.add(launch.stream, {launch.seq, {}, launch.graph, {0, 0, 0}, launch.launch_ns,
                                  launch.returned_by().value_or(launch.launch_ns), *launch.status});
  } catch (...) {
  }
}

// A synchronisation that came back without an error proves that what had been launched before it is done.
void IncidentWatch::on_call(const event::ApiEvent& call, std::uint32_t context_uid) noexcept {
  if (call.status != 0 || !call.call_ns) return;
  const std::int64_t now = call.time_ns + *call.call_ns;
  try {
    switch (static_cast<event::ApiCall>(call.call)) {
      case event::ApiCall::kStreamSynchronize:
        finish(call.stream.value, call.time_ns, now);
        break;
      case event::ApiCall::kCtxSynchronize:
        for (std::uint32_t stream = 1; stream < progress_.streams().size(); ++stream) {
          const event::StreamInfo* const row = parts_.streams.row(stream);
          if (row != nullptr && row->context.value == context_uid) finish(stream, call.time_ns, now);
        }
        break;
      default:
        break;
    }
  } catch (...) {
  }
}

void IncidentWatch::finish(std::uint32_t stream, std::int64_t finished_ns, std::int64_t now_ns) {
  if (stream == 0 || stream >= parts_.streams.used()) return;
  progress_.finished(stream, finished_ns, now_ns);
  flight::StreamEntry& entry = parts_.file.streams()[stream];
  entry.finished_ns.store(progress_.state(stream)->finished_ns, std::memory_order_relaxed);
}

void IncidentWatch::poll_markers(std::int64_t now_ns) noexcept {
  progress_.begin_poll();
  if (parts_.markers == nullptr) return;
  // The board is walked to its end: a stream for which there is no memory is left out.
  parts_.markers->poll(
      [&](std::uint32_t stream, std::int64_t finished_ns) noexcept {
        try {
          finish(stream, finished_ns, now_ns);
        } catch (...) {
        }
      },
      [&](std::uint32_t stream, std::int64_t oldest_ns, std::int64_t newest_ns) noexcept {
        try {
          progress_.outstanding(stream, oldest_ns, newest_ns);
          if (stream < parts_.streams.used()) {
            parts_.file.streams()[stream].marked_ns.store(newest_ns, std::memory_order_relaxed);
          }
        } catch (...) {
        }
      });
}

// What is known to be done before a round need not be remembered in it.
void IncidentWatch::begin_round(std::int64_t now_ns) noexcept {
  seen_errors_ = parts_.errors.take();
  poll_markers(now_ns);
}

IncidentWatch::Incidents IncidentWatch::end_round(const std::vector<Watchdog::WaitingCall>& waiting,
                                                  std::int64_t now_ns) noexcept {
  Incidents incidents;
  try {
    poll_markers(now_ns);
    for (const capture::SeenError& seen : seen_errors_) incidents.errors.push_back(describe(seen));
    seen_errors_.clear();
    std::vector<Watchdog::WaitingCall> known;
    std::vector<event::BlockedCall> blocked;
    const std::int64_t known_since_ns = calls_known_since_ns_.load(std::memory_order_relaxed);
    for (const Watchdog::WaitingCall& call : waiting) {
      if (call.call.since_ns < known_since_ns) continue;
      known.push_back(call);
      blocked.push_back(call.call);
    }
    const auto context = [this](std::uint32_t stream) { return context_of(stream); };
    for (const Watchdog::Finding& finding : watchdog_.look(progress_, known, now_ns, context)) {
      event::HangEvent hang;
      hang.phase = finding.phase;
      hang.time_ns = now_ns;
      hang.since_ns = finding.since_ns;
      hang.stream = in_flight(finding.stream, *progress_.state(finding.stream));
      hang.blocked = blocked;
      if (finding.phase == event::HangEvent::Phase::kBegin) {
        // One cause often stops many streams: the command is run for the first.
        if (hung_streams_++ == 0 && !hang_command_.empty()) run_command(hang);
      } else if (hung_streams_ > 0) {
        --hung_streams_;
      }
      incidents.hangs.push_back(std::move(hang));
    }
  } catch (...) {
  }
  return incidents;
}

std::uint32_t IncidentWatch::context_of(std::uint32_t stream) const {
  const event::StreamInfo* const row = parts_.streams.row(stream);
  return row != nullptr ? row->context.value : 0;
}

event::SuspectLaunch IncidentWatch::suspect(const StreamProgress::Launch& launch) const {
  event::SuspectLaunch out;
  out.seq = launch.seq;
  out.config = launch.config;
  out.graph = launch.graph;
  out.grid = launch.grid;
  out.launch_ns = launch.launch_ns;
  out.status = launch.status;
  if (const event::KernelConfig* const config = parts_.kernels.config(launch.config)) {
    out.block = config->shape.block;
    out.dyn_shared_bytes = config->shape.dyn_shared_bytes;
    if (const event::KernelInfo* const kernel = parts_.kernels.kernel(config->kernel)) out.name = kernel->name;
  }
  return out;
}

event::StreamInFlight IncidentWatch::in_flight(std::uint32_t stream, const StreamProgress::State& state) const {
  event::StreamInFlight out;
  out.stream = event::StreamId{stream};
  out.count = state.in_flight;
  out.finished_ns = state.finished_ns;
  for (std::size_t i = 0; i < state.launches.size() && i < StreamProgress::kNamed; ++i) {
    out.launches.push_back(suspect(state.launches[i]));
  }
  return out;
}

event::ErrorEvent IncidentWatch::describe(const capture::SeenError& seen) {
  event::ErrorEvent error;
  error.time_ns = seen.time_ns;
  error.code = seen.code;
  error.call = seen.call;
  error.thread = seen.thread;
  error.context = event::ContextId{seen.context_uid};
  const char* name = nullptr;
  if (parts_.driver.get_error_name != nullptr &&
      parts_.driver.get_error_name(static_cast<CUresult>(seen.code), &name) == CUDA_SUCCESS && name != nullptr) {
    error.name = name;
  }
  if (const auto* const known = event::sticky_status(seen.code); known != nullptr && error.name.empty()) {
    error.name = known->name;  // the driver is past telling it
  }
  std::size_t candidates = 0;
  const StreamProgress::Launch* oldest = nullptr;
  bool oldest_is_marked = false;
  for (std::uint32_t stream = 1; stream < progress_.streams().size(); ++stream) {
    const event::StreamInfo* const row = parts_.streams.row(stream);
    const StreamProgress::State& state = progress_.streams()[stream];
    if (row == nullptr || row->context != error.context || state.launches.empty()) continue;
    error.in_flight.push_back(in_flight(stream, state));
    // Between the last mark answered and the first that was not: only what stands there can have been running.
    // A stream whose marks have all been answered had done all that they stand behind: not what came after, so of that it is
    // only less likely.
    const bool marked = state.outstanding_ns != 0;
    const std::int64_t until = marked ? state.outstanding_ns : INT64_MAX;
    for (const StreamProgress::Launch& launch : state.launches) {
      if (launch.returned_ns <= until) ++candidates;
    }
    if (marked && !oldest_is_marked) {
      oldest = nullptr;
      oldest_is_marked = true;
    }
    if (marked != oldest_is_marked) continue;
    if (oldest == nullptr || state.launches.front().launch_ns < oldest->launch_ns) oldest = &state.launches.front();
  }
  if (oldest != nullptr) {
    error.culprit = suspect(*oldest);
    error.confidence = candidates <= 1 ? "exact" : "oldest_in_flight";
  }
  // Dead is not hung.
  for (std::uint32_t stream = 1; stream < progress_.streams().size(); ++stream) {
    if (context_of(stream) != error.context.value) continue;
    if (progress_.streams()[stream].hung && hung_streams_ > 0) --hung_streams_;
    progress_.died(stream);
  }
  return error;
}

void IncidentWatch::run_command(const event::HangEvent& hang) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"GPUFLIGHT_HANG_PID", std::to_string(parts_.file.header().pid)},
      {"GPUFLIGHT_HANG_STREAM", std::to_string(hang.stream.stream.value)},
      {"GPUFLIGHT_HANG_SECONDS", std::to_string((hang.time_ns - hang.since_ns) / 1'000'000'000)},
  };
  if (!hang.stream.launches.empty()) facts.emplace_back("GPUFLIGHT_HANG_KERNEL", hang.stream.launches.front().name);
  command_.run(hang_command_, facts);
}

}  // namespace gpuflight::recorder
