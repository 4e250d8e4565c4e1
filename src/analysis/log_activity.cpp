// What LogSummary takes from lines that are no launches: times that came late, copies, calls, memory, and when each
// device was busy.
#include "analysis/log_summary.h"
#include "event/plausible_time.h"

namespace gpuflight::analysis {
namespace {

constexpr std::size_t kMostDevices = 64;
constexpr std::size_t kUntimedPlaces = std::size_t{1} << 18;

std::size_t untimed_place(event::Seq seq) {
  return (seq.counter() ^ (std::uint64_t{seq.slot()} * 0x9e3779b97f4a7c15ull >> 32)) & (kUntimedPlaces - 1);
}

}  // namespace

void LogSummary::add_work(std::int32_t device, DeviceTimeline::Work work, const event::MaybeNs& start,
                          const event::MaybeNs& end) {
  if (event::elapsed(start, end).value_or(-1) < 0) return;
  auto timeline = timelines_.find(device);
  if (timeline == timelines_.end()) {
    if (timelines_.size() >= kMostDevices) return;
    timeline = timelines_.try_emplace(device).first;
  }
  timeline->second.add(work, *start, *end);
}

void LogSummary::note_untimed(event::Seq seq, std::uint32_t group, std::uint32_t config) {
  if (untimed_.empty()) untimed_.resize(kUntimedPlaces);
  untimed_[untimed_place(seq)] = {seq.value, group, config};
}

// Of a kernel that has had its line: counted there, only its time is new.
void LogSummary::add_time(const log::KernelTimeLine& line) {
  LogFacts& log = logs_.back();
  const event::KernelTime& time = line.time;
  const event::MaybeNs& by_events = time.by_events.duration_ns;
  const auto duration = by_events ? by_events : event::elapsed(time.start_ns, time.end_ns);
  if (duration.value_or(-1) < 0 || !event::plausible(*duration)) return;
  log.pending.erase(time.event.value);
  if (time.end_ns) log.saw_time(*time.end_ns);
  ++log.late_times;
  if (by_events) ++log.event_timed;
  if (log.untimed_kernels > 0) --log.untimed_kernels;
  add_work(line.device.value_or(-1), DeviceTimeline::Work::kKernel, time.start_ns, time.end_ns);
  const Untimed* const known = untimed_.empty() ? nullptr : &untimed_[untimed_place(time.event)];
  if (known == nullptr || known->seq != time.event.value) {
    ++log.unplaced_times;
    return;
  }
  LaunchGroup& group = groups_[known->group];
  group.gpu.add(*duration, *budget_);
  if (Stratum* const kind = stratum(known->group, known->config)) kind->add(static_cast<double>(*duration));
  if (const event::MaybeNs& error = time.by_events.error_ns; by_events && error && *error >= 0) {
    group.event_error.add(*error);
  }
  if (const auto queue = event::elapsed(time.launch_ns, time.start_ns)) group.queue.add(*queue);
}

void LogSummary::add_activity(const log::LogEvent& event) {
  if (const auto* copy = std::get_if<log::MemcpyLine>(&event)) {
    activity_.add(*copy);
    const event::MemcpyEvent& e = copy->copy;
    add_work(copy->device.value_or(-1), DeviceTimeline::Work::kCopy, e.start_ns, e.end_ns);
  } else if (const auto* fill = std::get_if<log::MemsetLine>(&event)) {
    activity_.add(*fill);
    add_work(fill->device.value_or(-1), DeviceTimeline::Work::kCopy, fill->fill.start_ns, fill->fill.end_ns);
  } else if (const auto* graph = std::get_if<log::GraphLaunchLine>(&event)) {
    activity_.add(*graph);
    // What of a graph traced as a whole was kernel and what was copy is not known: it counts as kernel.
    add_work(graph->device.value_or(-1), DeviceTimeline::Work::kKernel, graph->launch.start_ns, graph->launch.end_ns);
  } else if (const auto* memory = std::get_if<log::MemoryLine>(&event)) {
    activity_.add(*memory);
  } else if (const auto* edge = std::get_if<log::StreamEdgeLine>(&event)) {
    activity_.add(*edge);
  } else if (const log::ApiLine* const call = log::api_line(event)) {
    activity_.add(*call, std::holds_alternative<log::SyncLine>(event));
  }
}

}  // namespace gpuflight::analysis
