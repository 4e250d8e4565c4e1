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
  } else if (const auto* copy = std::get_if<log::MemcpyLine>(&event)) {
    ++copies;
    saw_time(copy->copy.end_ns.value_or(copy->copy.origin.launch_ns.value_or(0)));
  } else if (const auto* fill = std::get_if<log::MemsetLine>(&event)) {
    ++fills;
    saw_time(fill->fill.end_ns.value_or(fill->fill.origin.launch_ns.value_or(0)));
  } else if (const auto* memory = std::get_if<log::MemoryLine>(&event)) {
    ++memory_calls;
    saw_time(memory->memory.time_ns);
  } else if (const auto* edge = std::get_if<log::StreamEdgeLine>(&event)) {
    ++stream_edges;
    saw_time(edge->edge.time_ns);
  } else if (const auto* one = std::get_if<log::KernelPendingLine>(&event)) {
    ++pending_total;
    if (pending.size() < kMaxPending) pending.emplace(one->pending.event.value, *one);
    saw_time(one->pending.time_ns);
  } else if (const auto* pair = std::get_if<event::ClockEvent>(&event)) {
    clock = *pair;
    saw_time(pair->time_ns);
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
  } else if (const auto* level = std::get_if<event::LevelEvent>(&event)) {
    add_level(*level);
    saw_time(level->time_ns);
  } else if (const auto* ended = std::get_if<event::ExitEvent>(&event)) {
    exit = *ended;
    saw_time(ended->time_ns);
  }
}

std::string_view LogFacts::option(std::string_view name) const {
  if (!start) return {};
  for (const auto& [key, value] : start->configuration) {
    if (key == name) return value;
  }
  return {};
}

std::string_view LogFacts::timing() const { return option("timing"); }

std::string_view LogFacts::budget() const {
  const std::string_view text = option("budget");
  return text == "off" ? std::string_view() : text;
}

void LogFacts::add_level(const event::LevelEvent& level) {
  last_level = level;
  if (level.reason == event::LevelEvent::Reason::kEnd) {
    level_end = level;
    return;
  }
  ++level_changes;
  if (levels.size() < kMaxLevels) levels.push_back(level);
  const std::int64_t at = std::max(level.time_ns, level_since_ns);
  level_ns[static_cast<std::size_t>(level.from)] += at - level_since_ns;
  level_since_ns = at;
}

std::array<std::int64_t, event::kRecordLevelNames.size()> LogFacts::time_at_levels() const {
  auto spent = level_ns;
  const event::RecordLevel now = last_level ? last_level->to : event::RecordLevel::kEvents;
  spent[static_cast<std::size_t>(now)] += std::max<std::int64_t>(0, duration_ns() - level_since_ns);
  return spent;
}

std::string_view LogFacts::event_times() const { return option("event_times"); }

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
