#include "analysis/rules/timeline_pass.h"

#include <algorithm>
#include <cstdlib>

#include "event/api_call.h"
#include "event/plausible_time.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostConfigs = 400'000, kMostStreams = 100'000, kMostDevices = 64, kMostCollectives = 100'000;

// Of a call whose name this version does not know nothing is told.
const char* name_of(std::uint32_t call) { return event::facts(static_cast<event::ApiCall>(call)).name; }

// Copies that the host waits in whatever it asked for: by the name of the call, where no times are known.
bool blocks_by_name(event::ApiCall call) {
  const std::string_view name = event::facts(call).name;
  return name.starts_with("cuMemcpy") && !name.ends_with("Async");
}

}  // namespace

TimelinePass::TimelinePass(std::vector<std::unique_ptr<Rule>> rules, std::size_t window)
    : rules_(std::move(rules)), window_(window) {
  for (const auto& rule : rules_) rule->attach(*this);
}

void TimelinePass::add(const log::LogEvent& event, std::uint32_t file, std::uint64_t line) {
  file_ = file;
  line_ = line;
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) {
    add_kernel(*kernel);
  } else if (const auto* time = std::get_if<log::KernelTimeLine>(&event)) {
    add_late_time(*time);
  } else if (const auto* graph = std::get_if<log::GraphLaunchLine>(&event)) {
    add_graph(*graph);
  } else if (const auto* copy = std::get_if<log::MemcpyLine>(&event)) {
    add_copy(*copy);
  } else if (const auto* fill = std::get_if<log::MemsetLine>(&event)) {
    add_fill(*fill);
  } else if (const auto* level = std::get_if<event::LevelEvent>(&event)) {
    add_level(*level);
  } else if (const auto* memory = std::get_if<log::MemoryLine>(&event)) {
    add_memory(*memory);
  } else if (const auto* sync = std::get_if<log::SyncLine>(&event)) {
    add_api(*sync, true);
  } else if (const auto* api = std::get_if<log::ApiLine>(&event)) {
    add_api(*api, false);
  } else if (const auto* edge = std::get_if<log::StreamEdgeLine>(&event)) {
    add_edge(*edge);
  } else if (const auto* stream = std::get_if<event::StreamInfo>(&event)) {
    if (streams_.size() < kMostStreams) streams_[stream->stream.value] = *stream;
  } else if (const auto* device = std::get_if<log::DeviceInfoLine>(&event)) {
    if (devices_.size() < kMostDevices) devices_[device->device.device] = device->device;
  }
}

std::uint32_t TimelinePass::config_row(const log::KernelEventLine& line) {
  const std::uint32_t number = line.launch.config.value;
  const auto known = config_rows_.find(number);
  // Number 0 is no configuration: whatever it was, it may be another one each time.
  if (known != config_rows_.end() && number != 0) return known->second;
  if (configs_.size() >= kMostConfigs || number == 0) return kNoConfig;
  LaunchConfig config;
  config.name = line.kernel.name;
  config.shape = line.shape;
  config.num_regs = line.kernel.num_regs;
  config.local_bytes_per_thread = line.kernel.local_bytes_per_thread;
  config.static_shared_bytes = line.kernel.static_shared_bytes;
  if (line.details) {
    config.max_active_blocks = line.occupancy.max_active_blocks;
    config.occupancy = line.occupancy_ratio;
    if (line.occupancy.source != event::OccupancySource::kNone) config.limiter = line.occupancy.limiter;
  }
  const auto row = static_cast<std::uint32_t>(configs_.size());
  is_collective_.push_back(config.name.find("nccl") != std::string::npos &&
                           config.name.find("Kernel") != std::string::npos);
  configs_.push_back(std::move(config));
  config_rows_[number] = row;
  return row;
}

void TimelinePass::add_kernel(const log::KernelEventLine& line) {
  const event::KernelLaunch& launch = line.launch;
  const std::uint32_t row = config_row(line);
  if (launch.seq.slot() != event::kGpuSlot) {
    HostCall call;
    call.ref = ref(launch.seq, launch.launch_ns);
    call.kind = CallKind::kLaunch;
    call.name = "kernel launch";
    call.thread = launch.thread;
    call.stream = launch.stream.value;
    call.context = line.context.value_or(0);
    call.device = line.kernel.device;
    call.time_ns = launch.launch_ns;
    call.call_ns = launch.call_ns.value_or(-1);
    call.config = row;
    call.size = launch.grid.count();
    call.captured = launch.captured;
    call.untimed = !launch.captured && launch.status.value_or(0) == 0 && !(launch.start_ns && launch.end_ns);
    if (call.untimed) ++totals_.untimed;
    put_call(call);
  }
  if (launch.captured) return;
  GpuWork work;
  work.ref = ref(launch.seq, 0);
  work.device = line.kernel.device;
  work.stream = launch.stream.value;
  work.thread = launch.thread;
  work.graph = launch.graph.value;
  work.config = row;
  work.size = launch.grid.count();
  if (!launch.unlaunched) work.launch_ns = launch.launch_ns;
  work.call_ns = launch.call_ns.value_or(-1);
  put_work(work, launch.start_ns, launch.end_ns);
}

void TimelinePass::add_late_time(const log::KernelTimeLine& line) {
  const event::KernelTime& time = line.time;
  if (time.start_ns && time.end_ns && totals_.untimed > 0) --totals_.untimed;
  GpuWork work;
  work.ref = ref(time.event, 0);
  work.device = line.device.value_or(-1);
  work.stream = time.stream.value;
  const auto row = config_rows_.find(time.config.value);
  if (row != config_rows_.end()) work.config = row->second;
  work.launch_ns = time.launch_ns;
  put_work(work, time.start_ns, time.end_ns);
}

void TimelinePass::add_graph(const log::GraphLaunchLine& line) {
  const event::GraphLaunch& launch = line.launch;
  HostCall call;
  call.ref = ref(launch.seq, launch.launch_ns);
  call.kind = CallKind::kGraphLaunch;
  call.name = "cuGraphLaunch";
  call.thread = launch.thread;
  call.stream = launch.stream.value;
  call.context = line.context.value_or(0);
  call.device = line.device.value_or(-1);
  call.time_ns = launch.launch_ns;
  call.call_ns = launch.call_ns.value_or(-1);
  call.size = launch.graph.value;
  call.captured = launch.captured;
  put_call(call);
  if (launch.captured) return;
  GpuWork work;
  work.ref = call.ref;
  work.kind = WorkKind::kGraph;
  work.device = call.device;
  work.stream = call.stream;
  work.thread = call.thread;
  work.graph = launch.graph.value;
  work.launch_ns = launch.launch_ns;
  work.call_ns = call.call_ns;
  put_work(work, launch.start_ns, launch.end_ns);
}

void TimelinePass::put_copy_call(const GpuWork& work, const event::WorkOrigin& origin, std::uint32_t context) {
  if (!origin.launch_ns || event::Seq(work.ref.seq).slot() == event::kGpuSlot) return;
  HostCall call;
  call.ref = work.ref;
  call.ref.at_ns = *origin.launch_ns;
  const bool copy = work.kind == WorkKind::kCopy;
  call.kind = copy ? CallKind::kCopy : CallKind::kFill;
  call.name = copy ? (work.async ? "asynchronous copy" : "copy") : (work.async ? "asynchronous fill" : "fill");
  // A fill of device memory is asynchronous to the host whatever its name says, and so is a copy on the device. A small
  // copy from pageable memory to the device returns once it is staged.
  const bool to_host = work.copy == event::CopyKind::kDtoH || work.copy == event::CopyKind::kAtoH;
  call.waits = copy ? (!work.async && work.copy != event::CopyKind::kDtoD) || (work.pageable() && to_host)
                    : !work.async && work.destination != event::MemoryKind::kDevice;
  call.thread = work.thread;
  call.stream = work.stream;
  call.context = context;
  call.device = work.device;
  call.time_ns = *origin.launch_ns;
  call.call_ns = origin.call_ns.value_or(-1);
  call.size = work.size;
  put_call(call);
}

// What copies and fills have in common; what only one of them has is there already.
template <class Event, class Line>
void TimelinePass::add_transfer(GpuWork work, const Event& event, const Line& line) {
  work.ref = ref(event.seq, 0);
  work.async = event.async;
  work.device = line.device.value_or(-1);
  work.stream = event.stream.value;
  work.thread = event.origin.thread;
  work.graph = event.graph.value;
  work.size = event.bytes;
  work.launch_ns = event.origin.launch_ns.value_or(kNoTime);
  work.call_ns = event.origin.call_ns.value_or(-1);
  put_copy_call(work, event.origin, line.context.value_or(0));
  put_work(work, event.start_ns, event.end_ns);
}

void TimelinePass::add_copy(const log::MemcpyLine& line) {
  GpuWork work;
  work.kind = WorkKind::kCopy;
  work.copy = line.copy.kind;
  work.source = line.copy.source;
  work.destination = line.copy.destination;
  add_transfer(work, line.copy, line);
}

void TimelinePass::add_fill(const log::MemsetLine& line) {
  GpuWork work;
  work.kind = WorkKind::kFill;
  work.destination = line.fill.memory;
  add_transfer(work, line.fill, line);
}

void TimelinePass::add_memory(const log::MemoryLine& line) {
  const event::MemoryEvent& memory = line.memory;
  HostCall call;
  call.ref = ref(memory.seq, memory.time_ns);
  call.kind = memory.operation == event::MemoryEvent::Operation::kAlloc ? CallKind::kAlloc : CallKind::kFree;
  call.name = name_of(memory.call);
  call.thread = memory.thread;
  call.stream = memory.stream.value;
  call.context = memory.context.value;
  call.device = memory.device;
  call.time_ns = memory.time_ns;
  call.call_ns = memory.call_ns.value_or(-1);
  call.size = memory.bytes.value_or(0);
  call.allocation = memory.kind;
  call.pool = memory.pool.value_or(0);
  call.total_bytes = memory.total_bytes;
  put_call(call);
}

void TimelinePass::add_api(const log::ApiLine& line, bool sync) {
  const auto number = static_cast<event::ApiCall>(line.call.call);
  HostCall call;
  call.ref = ref(line.call.seq, line.call.time_ns);
  const event::ApiKind kind = event::facts(number).kind;
  call.kind = sync ? CallKind::kSync : kind == event::ApiKind::kCopy ? CallKind::kCopy
                                    : kind == event::ApiKind::kFill ? CallKind::kFill : CallKind::kOther;
  call.name = name_of(line.call.call);
  call.waits = sync || (kind == event::ApiKind::kCopy && blocks_by_name(number));
  call.thread = line.call.thread;
  call.stream = line.call.stream.value;
  call.time_ns = line.call.time_ns;
  call.call_ns = line.call.call_ns.value_or(-1);
  put_call(call);
}

void TimelinePass::add_edge(const log::StreamEdgeLine& line) {
  const event::StreamEdge& edge = line.edge;
  HostCall call;
  call.ref = ref(edge.seq, edge.time_ns);
  call.kind = edge.operation == event::StreamEdge::Operation::kRecord ? CallKind::kRecord : CallKind::kWait;
  call.name = call.kind == CallKind::kRecord ? "cuEventRecord" : "cuStreamWaitEvent";
  call.thread = edge.thread;
  call.stream = edge.stream.value;
  call.time_ns = edge.time_ns;
  call.call_ns = edge.call_ns.value_or(-1);
  call.captured = edge.captured;
  put_call(call);
}

// Between two changes launches may have no lines: that a device had no work meanwhile is not known.
void TimelinePass::add_level(const event::LevelEvent& level) {
  if (level.reason == event::LevelEvent::Reason::kEnd) return;
  HostCall call;
  call.ref = ref(level.seq, level.time_ns);
  call.time_ns = level.time_ns;
  call.untimed = true;
  put_call(call);
}

void TimelinePass::put_work(GpuWork work, const event::MaybeNs& start, const event::MaybeNs& end) {
  const auto length = event::elapsed(start, end);
  if (!length || *length < 0) return;
  if (work.launch_ns != kNoTime && !event::plausible(work.launch_ns)) work.launch_ns = kNoTime;
  if (!spend(*length + (work.launch_ns == kNoTime ? 0 : std::abs(*start - work.launch_ns)))) return;
  if (!event::plausible(work.call_ns)) work.call_ns = -1;
  work.start_ns = *start;
  work.end_ns = *end;
  work.ref.at_ns = *start;
  window_.put(*start, work.ref.seq, work, [&](Item& item) { give(item); });
}

bool TimelinePass::spend(std::int64_t ns) {
  if (ns > left_ns_) return false;
  left_ns_ -= ns;
  return true;
}

void TimelinePass::put_call(HostCall call) {
  if (!event::plausible(call.time_ns) || !event::plausible(call.call_ns)) return;
  if (!spend(2 * std::max<std::int64_t>(call.call_ns, 0))) return;
  window_.put(call.time_ns, call.ref.seq, call, [&](Item& item) { give(item); });
}

void TimelinePass::give(Item& item) {
  if (auto* work = std::get_if<GpuWork>(&item)) {
    give_work(*work);
  } else {
    give_call(std::get<HostCall>(item));
  }
}

void TimelinePass::give_call(const HostCall& call) {
  ++totals_.calls;
  if (call.kind == CallKind::kLaunch && !call.captured) ++totals_.launches;
  if (call.kind == CallKind::kSync && call.call_ns > 0) totals_.sync_ns += call.call_ns;
  totals_.first_call_ns =
      totals_.first_call_ns == kNoTime ? call.time_ns : std::min(totals_.first_call_ns, call.time_ns);
  totals_.last_call_ns = std::max(totals_.last_call_ns, call.end_ns());
  gaps_.saw_call(call);
  for (const auto& rule : rules_) rule->on_call(call);
}

void TimelinePass::give_work(GpuWork& work) {
  const auto device = totals_.devices.find(work.device);
  if (device == totals_.devices.end() && totals_.devices.size() >= kMostDevices) return;
  ++totals_.works;
  const auto end = stream_ends_.find(work.stream);
  if (work.launch_ns != kNoTime) {
    work.ready_ns = work.launch_ns;
    // Nodes of one graph may run side by side on one stream.
    if (end != stream_ends_.end() && work.graph == 0) work.ready_ns = std::max(work.ready_ns, end->second);
  }
  longest_.add(work.ref, work.duration_ns());
  const auto gap = gaps_.saw_work(work, totals_.devices[work.device]);
  if (work.config < is_collective_.size() && is_collective_[work.config] && collectives_.size() < kMostCollectives) {
    collectives_.push_back(work.ref);
  }
  for (const auto& rule : rules_) {
    if (gap) rule->on_gap(*gap, work);
    rule->on_work(work);
  }
  if (end != stream_ends_.end()) {
    end->second = std::max(end->second, work.end_ns);
  } else if (stream_ends_.size() < kMostStreams) {
    stream_ends_[work.stream] = work.end_ns;
  }
}

void TimelinePass::finish(std::vector<Finding>& findings) {
  window_.flush([&](Item& item) { give(item); });
  for (const auto& rule : rules_) rule->at_end(totals_, findings);
}

const LaunchConfig* TimelinePass::config(std::uint32_t row) const {
  return row < configs_.size() ? &configs_[row] : nullptr;
}

const event::StreamInfo* TimelinePass::stream(std::uint32_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : &found->second;
}

const event::DeviceInfo* TimelinePass::device(std::int32_t device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? nullptr : &found->second;
}

}  // namespace gpuflight::analysis::rules
