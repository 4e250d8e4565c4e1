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
  }
}

}  // namespace gpuflight::analysis
