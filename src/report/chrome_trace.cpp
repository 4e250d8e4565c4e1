#include "report/chrome_trace.h"

#include <algorithm>

#include "event/plausible_time.h"
#include "report/kernel_name.h"
#include "report/trace_args.h"

namespace gpuflight::report {
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;
// Streams are numbered from 1; a lane beside the first has a number of its own, far from them.
constexpr std::int64_t kLaneStep = 10'000'000;
// Of a log that does not say which process it is of.
constexpr std::int64_t kNoPid = 1'000'000'000;
constexpr std::string_view kHead = "{\"schemaVersion\": 1, \"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";

std::string occupancy_name(std::uint32_t stream) { return fmt::format("occupancy, stream {}", stream); }

}  // namespace

void ChromeTrace::write(std::string event) {
  if (!begun_) buffer_ += kHead;
  if (events_ > 0) buffer_ += ",\n";
  begun_ = true;
  ++events_;
  buffer_ += event;
  if (buffer_.size() < kBufferBytes) return;
  sink_(buffer_);
  buffer_.clear();
}

std::int64_t ChromeTrace::at(std::int64_t ns) const {
  return std::clamp(ns, -event::kMostNs, event::kMostNs) + clock_.offset_ns - drift_ns_;
}

std::string ChromeTrace::begin(char phase, Place place, std::int64_t time_ns) {
  std::string event = fmt::format("{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":", phase, place.pid, place.tid);
  append_us(event, at(time_ns));
  last_ns_ = std::max(last_ns_, time_ns);
  return event;
}

void ChromeTrace::name_process(std::int64_t pid, std::string_view name, std::int64_t order) {
  if (processes_.size() >= kMostTracks || !processes_.insert(pid).second) return;
  write(fmt::format("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"tid\":0,\"ts\":0,\"args\":{{\"name\":{}}}}}",
                    pid, json_string(name)));
  write(fmt::format("{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{},\"tid\":0,\"ts\":0,\"args\":"
                    "{{\"sort_index\":{}}}}}", pid, order));
}

void ChromeTrace::name_track(Place place, std::string_view name, std::int64_t order) {
  if (tracks_.size() >= kMostTracks || !tracks_.emplace(place, true).second) return;
  write(fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"ts\":0,\"args\":{{\"name\":{}}}}}",
                    place.pid, place.tid, json_string(name)));
  write(fmt::format("{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{},\"tid\":{},\"ts\":0,\"args\":"
                    "{{\"sort_index\":{}}}}}", place.pid, place.tid, order));
}

const std::string& ChromeTrace::quoted_kernel(std::string_view mangled) {
  const auto found = kernels_.find(std::string(mangled));
  if (found != kernels_.end()) return found->second;
  if (kernels_.size() >= kMostNames) kernels_.clear();
  return kernels_.emplace(mangled, json_string(mangled.empty() ? "(unknown kernel)" : demangled(mangled))).first->second;
}

ChromeTrace::Place ChromeTrace::host(std::uint32_t thread) {
  const Place place{host_pid_, thread};
  name_track(place, thread != 0 ? fmt::format("thread {}", thread) : "(unknown thread)", thread);
  return place;
}

ChromeTrace::Place ChromeTrace::device(std::int32_t device) {
  // One log: the ordinal, as Kineto numbers devices.
  const std::int64_t pid = device + static_cast<std::int64_t>(several_ ? logs_ * 1000 : 0);
  const std::string name = device >= 0 ? fmt::format("GPU {}", device) : "(unknown device)";
  name_process(pid, several_ ? fmt::format("{} of process {}", name, host_pid_) : name,
               static_cast<std::int64_t>(logs_) * 1000 + 1 + device);
  return {pid, 0};
}

// Work of one stream runs one after the other, but for nodes of graphs and programmatic dependent launches; slices that
// overlap on one track cannot be drawn.
ChromeTrace::Place ChromeTrace::stream(const Work& work) {
  Place place = device(work.device);
  std::size_t lane = 0;
  if (lanes_.size() < kMostTracks || lanes_.contains({work.device, work.stream})) {
    auto& busy = lanes_[{work.device, work.stream}].busy_until_ns;
    while (lane < busy.size() && busy[lane] > *work.start_ns && lane + 1 < kMostLanes) ++lane;
    if (lane == busy.size()) busy.push_back(INT64_MIN);
    busy[lane] = std::max(busy[lane], *work.end_ns);
  }
  place.tid = work.stream + static_cast<std::int64_t>(lane) * kLaneStep;
  std::string name = work.stream != 0 ? fmt::format("stream {}", work.stream) : "(unknown stream)";
  if (const auto info = streams_.find(work.stream); info != streams_.end()) {
    if (info->second.kind == event::StreamInfo::Kind::kLegacyDefault) name += " (default)";
    if (info->second.kind == event::StreamInfo::Kind::kPerThreadDefault) name += " (per-thread default)";
    if (info->second.priority.value_or(0) != 0) name += fmt::format(" priority {}", *info->second.priority);
  }
  if (lane > 0) name += fmt::format(", side by side {}", lane + 1);
  name_track(place, name, work.stream * static_cast<std::int64_t>(kMostLanes) + static_cast<std::int64_t>(lane));
  return place;
}

void ChromeTrace::call(std::uint32_t thread, std::string_view name, std::int64_t time_ns,
                       const event::MaybeNs& call_ns, const std::string& args) {
  std::string event = begin('X', host(thread), time_ns);
  event += ",\"dur\":";
  append_us(event, call_ns.value_or(0));
  fmt::format_to(std::back_inserter(event), ",\"cat\":\"cuda_driver\",\"name\":{},\"args\":{{{}}}}}", json_string(name),
                 args);
  write(std::move(event));
}

// An id must be the arrow's own, and many nodes share one correlation.
std::uint64_t ChromeTrace::flow_id(const Work& work) {
  return work.of_node || work.correlation == 0 || several_ ? next_flow_++ : work.correlation;
}

void ChromeTrace::arrow(const char* category, std::uint64_t id, Place from, std::int64_t from_ns, Place to,
                        std::int64_t to_ns) {
  for (const bool end : {false, true}) {
    std::string event = begin(end ? 'f' : 's', end ? to : from, end ? to_ns : from_ns);
    fmt::format_to(std::back_inserter(event), ",\"id\":{},\"cat\":\"{}\",\"name\":\"{}\"{}}}", id, category, category,
                   end ? ",\"bp\":\"e\"" : "");
    write(std::move(event));
  }
}

void ChromeTrace::work(const Work& work, const char* category, std::string_view quoted_name, const std::string& args) {
  const Place place = stream(work);
  std::string event = begin('X', place, *work.start_ns);
  event += ",\"dur\":";
  append_us(event, *work.end_ns - *work.start_ns);
  Args common;
  if (work.device >= 0) common.number("device", work.device);
  if (work.context != 0) common.number("context", work.context);
  common.number("stream", work.stream);
  if (work.correlation != 0) common.number("correlation", work.correlation);
  if (const auto queue = event::elapsed(work.launch_ns, work.start_ns)) common.us("queue (us)", *queue);
  fmt::format_to(std::back_inserter(event), ",\"cat\":\"{}\",\"name\":{},\"args\":{{{}{}{}}}}}", category, quoted_name,
                 common.take(), args.empty() ? "" : ",", args);
  last_ns_ = std::max(last_ns_, *work.end_ns);
  write(std::move(event));
  if (!options_.flows || !work.launch_ns || work.thread == 0) return;
  arrow("ac2g", flow_id(work), host(work.thread), *work.launch_ns, place, *work.start_ns);
}

// The stream's latest kernel counts, and 0 while none runs.
void ChromeTrace::occupancy(const Work& work, double ratio) {
  if (!options_.counters) return;
  Lanes& lane = lanes_[{work.device, work.stream}];
  const Place place = device(work.device);
  const std::string name = occupancy_name(work.stream);
  if (lane.occupied_until_ns != INT64_MIN && lane.occupied_until_ns < *work.start_ns) {
    counter(place, name, lane.occupied_until_ns, "\"percent\":0");
    lane.occupancy = 0;
  }
  if (ratio != lane.occupancy) counter(place, name, *work.start_ns, fmt::format("\"percent\":{}", ratio * 100));
  lane.occupancy = ratio;
  lane.occupied_until_ns = std::max(lane.occupied_until_ns, *work.end_ns);
}

void ChromeTrace::counter(Place place, std::string_view name, std::int64_t time_ns, const std::string& args) {
  std::string event = begin('C', place, time_ns);
  fmt::format_to(std::back_inserter(event), ",\"name\":{},\"args\":{{{}}}}}", json_string(name), args);
  write(std::move(event));
}

void ChromeTrace::instant(Place place, char scope, std::string_view name, std::int64_t time_ns,
                          const std::string& args) {
  std::string event = begin('i', place, time_ns);
  fmt::format_to(std::back_inserter(event), ",\"s\":\"{}\",\"cat\":\"gpuflight\",\"name\":{},\"args\":{{{}}}}}", scope,
                 json_string(name), args);
  write(std::move(event));
}

void ChromeTrace::begin_log(const TraceClock& clock, bool several) {
  clock_ = clock;
  if (!event::plausible(clock_.offset_ns)) clock_.offset_ns = 0;  // of a log that lies about its time
  several_ = several;
  session_seen_ = false;
  drift_ns_ = last_ns_ = 0;
  host_pid_ = kNoPid + static_cast<std::int64_t>(logs_);  // until the log says it
  device_infos_.clear();
  streams_.clear();
  lanes_.clear();
  scopes_.clear();
  records_.clear();
}

// What is open at the end of the log has no other end.
void ChromeTrace::end_log() {
  for (auto& [thread, stack] : scopes_) {
    while (!stack.empty()) close_scope(thread, stack.size() - 1, last_ns_);
  }
  for (const auto& [key, lane] : lanes_) {
    if (lane.occupied_until_ns == INT64_MIN) continue;
    counter(device(key.first), occupancy_name(key.second), lane.occupied_until_ns, "\"percent\":0");
  }
  ++logs_;
}

void ChromeTrace::finish() {
  if (!begun_) buffer_ += kHead;
  fmt::format_to(std::back_inserter(buffer_), "\n], \"deviceProperties\": [{}], \"gpuflight\": {{\"sessions\": [{}]}}",
                 devices_json_, sessions_json_);
  // A blank behind the colon: HTA looks for it so.
  if (rank_) fmt::format_to(std::back_inserter(buffer_), ",\n\"distributedInfo\": {{\"rank\": {}}}", *rank_);
  buffer_ += "}\n";
  sink_(buffer_);
  buffer_.clear();
}

}  // namespace gpuflight::report
