#include "analysis/log_facts.h"

#include <algorithm>

namespace gpuflight::analysis {

void LogFacts::add(const log::LogEvent& event) {
  if (const auto* line = std::get_if<log::SessionStartLine>(&event)) {
    if (!start) start = line->session;  // each segment repeats it
  } else if (const auto* line = std::get_if<log::DeviceInfoLine>(&event)) {
    const auto same = [&](const event::DeviceInfo& d) { return d.device == line->device.device; };
    if (devices.size() < 256 && std::none_of(devices.begin(), devices.end(), same)) devices.push_back(line->device);
  } else if (const auto* notice = std::get_if<event::Notice>(&event)) {
    ++notices_total;
    if (notices.size() < kMaxNotices) notices.push_back(*notice);
    saw_time(notice->time_ns);
  } else if (const auto* loss = std::get_if<event::LossEvent>(&event)) {
    ledger = loss->ledger;
    saw_time(loss->time_ns);
  } else if (const auto* last = std::get_if<event::SessionEnd>(&event)) {
    end = *last;
    ledger = last->ledger;
    saw_time(last->time_ns);
  } else if (const auto* scope = std::get_if<log::ScopeLine>(&event)) {
    saw_time(scope->event.time_ns);
  } else if (const auto* graph = std::get_if<log::GraphLaunchLine>(&event)) {
    if (!graph->launch.captured) ++graph_launches;
    saw_time(graph->launch.launch_ns);
  } else if (const log::ApiLine* const call = log::api_line(event)) {
    ++(std::holds_alternative<log::SyncLine>(event) ? sync_calls : api_calls);
    saw_time(call->call.time_ns);
  } else if (const auto* error = std::get_if<event::ErrorEvent>(&event)) {
    ++errors_total;
    if (errors.size() < kMaxIncidents) errors.push_back(*error);
    saw_time(error->time_ns);
  } else if (const auto* hang = std::get_if<event::HangEvent>(&event)) {
    add_hang(*hang);
    saw_time(hang->time_ns);
  } else if (const auto* fork = std::get_if<event::ForkEvent>(&event)) {
    ++forks;
    saw_time(fork->time_ns);
  } else if (const auto* ended = std::get_if<event::ExitEvent>(&event)) {
    exit = *ended;
    saw_time(ended->time_ns);
  }
}

void LogFacts::add_hang(const event::HangEvent& hang) {
  if (hang.phase == event::HangEvent::Phase::kBegin) {
    ++hangs_total;
    if (hangs.size() < kMaxIncidents) hangs.push_back({hang, std::nullopt});
    return;
  }
  for (Hang& known : hangs) {
    if (known.begin.stream.stream == hang.stream.stream && !known.end_ns) known.end_ns = hang.time_ns;
  }
}

}  // namespace gpuflight::analysis
