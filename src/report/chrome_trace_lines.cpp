// From the lines of a log to the events of a trace.
#include <algorithm>
#include <array>

#include "event/plausible_time.h"
#include "report/chrome_trace.h"
#include "report/trace_args.h"

namespace gpuflight::report {
namespace {

constexpr std::int64_t kOtherPids = 500'000'000;
// As Kineto writes them.
constexpr std::array<const char*, event::kCopyKindCount> kCopyWords = {"?",    "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                                       "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
constexpr std::array<const char*, event::kMemoryKindCount> kMemoryWords = {
    "Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"};

const char* memory_word(event::MemoryKind kind) { return kMemoryWords[static_cast<std::size_t>(kind)]; }

// A call with what its line says of how it went.
Args call_args(const event::MaybeNs& call_ns, const event::MaybeStatus& status, std::uint32_t correlation,
               const std::optional<std::string>& scope) {
  Args args;
  if (correlation != 0) args.number("correlation", correlation);
  if (status.value_or(0) != 0) args.number("status", *status);
  if (!call_ns && !status) args.text("returned", "no");
  args.scope(scope);
  return args;
}

bool sane(const event::MaybeNs& start, const event::MaybeNs& end) {
  return event::elapsed(start, end).value_or(-1) >= 0;
}

std::string copy_name(const event::MemcpyEvent& copy) {
  return fmt::format("Memcpy {} ({} -> {})", kCopyWords[static_cast<std::size_t>(copy.kind)], memory_word(copy.source),
                     memory_word(copy.destination));
}

void transfer_args(Args& args, std::uint64_t bytes, const event::MaybeNs& start, const event::MaybeNs& end) {
  args.number("bytes", bytes);
  if (sane(start, end) && *end > *start) {
    args.number("memory bandwidth (GB/s)", static_cast<double>(bytes) / static_cast<double>(*end - *start));
  }
}

}  // namespace

void ChromeTrace::add_session(const log::SessionStartLine& line) {
  if (session_seen_) return;  // each segment says it again
  session_seen_ = true;
  const event::SessionStart& s = line.session;
  // A process number as small as a device's would put its threads among the streams.
  if (s.pid > 0 && s.pid < kOtherPids) host_pid_ = s.pid;
  if (host_pid_ < static_cast<std::int64_t>(1000 * (logs_ + 1)) || processes_.contains(host_pid_)) {
    host_pid_ += kOtherPids;
  }
  const std::size_t slash = s.program.rfind('/');
  const std::string program = slash == std::string::npos ? s.program : s.program.substr(slash + 1);
  name_process(host_pid_, fmt::format("{} {}", program.empty() ? "process" : program, s.pid),
               static_cast<std::int64_t>(logs_) * 1000);
  nlohmann::ordered_json session{{"program", s.program}, {"pid", s.pid},           {"host", s.host},
                                 {"t0_unix_ns", s.t0_unix_ns}, {"offset_ns", clock_.offset_ns}};
  for (const auto& [name, value] : s.rank) {
    session[name] = value;
    const bool number = !value.empty() && value.size() < 10 && value.find_first_not_of("0123456789") == value.npos;
    if (name == "RANK" && number) rank_ = std::stoll(value);
  }
  if (sessions_json_.size() > 1 << 20) return;
  if (!sessions_json_.empty()) sessions_json_ += ",";
  sessions_json_ += session.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void ChromeTrace::add(const log::LogEvent& event) {
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) return add_kernel(*kernel);
  if (const auto* copy = std::get_if<log::MemcpyLine>(&event)) return add_copy(*copy);
  if (const auto* fill = std::get_if<log::MemsetLine>(&event)) return add_fill(*fill);
  if (const auto* graph = std::get_if<log::GraphLaunchLine>(&event)) return add_graph(*graph);
  if (const auto* scope = std::get_if<log::ScopeLine>(&event)) return add_scope(*scope);
  if (const auto* memory = std::get_if<log::MemoryLine>(&event)) return add_memory(*memory);
  if (const auto* edge = std::get_if<log::StreamEdgeLine>(&event)) return add_edge(*edge);
  if (const auto* time = std::get_if<log::KernelTimeLine>(&event)) return add_time(*time);
  if (const log::ApiLine* const line = log::api_line(event)) return add_call(*line);
  if (const auto* session = std::get_if<log::SessionStartLine>(&event)) return add_session(*session);
  if (const auto* stream = std::get_if<event::StreamInfo>(&event)) {
    if (streams_.size() < kMostTracks) streams_[stream->stream.value] = *stream;
  } else if (const auto* clock = std::get_if<event::ClockEvent>(&event)) {
    if (clock_.correct_drift && event::plausible(clock->drift_ns)) drift_ns_ = clock->drift_ns;
  } else if (const auto* info = std::get_if<log::DeviceInfoLine>(&event)) {
    const event::DeviceInfo& d = info->device;
    if (device_infos_.size() >= 256 || !device_infos_.insert(d.device).second) return;
    if (!devices_json_.empty()) devices_json_ += ",";
    devices_json_ += nlohmann::ordered_json{
        {"id", d.device + static_cast<std::int64_t>(several_ ? logs_ * 1000 : 0)}, {"name", d.name},
        {"totalGlobalMem", d.global_bytes}, {"computeMajor", d.compute_major}, {"computeMinor", d.compute_minor},
        {"maxThreadsPerBlock", d.max_threads_per_block}, {"maxThreadsPerMultiprocessor", d.max_threads_per_sm},
        {"regsPerBlock", d.regs_per_block}, {"warpSize", d.warp_size}, {"sharedMemPerBlock", d.shared_bytes_per_block},
        {"numSms", d.sm_count}, {"regsPerMultiprocessor", d.regs_per_sm},
        {"sharedMemPerBlockOptin", d.shared_bytes_per_block_optin},
        {"sharedMemPerMultiprocessor", d.shared_bytes_per_sm}}
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else if (const auto* error = std::get_if<event::ErrorEvent>(&event)) {
    Args args;
    args.number("code", error->code).text("call", error->call);
    instant({host_pid_, error->thread}, 'p', error->name.empty() ? "CUDA error" : error->name, error->time_ns,
            args.take());
  } else if (const auto* hang = std::get_if<event::HangEvent>(&event)) {
    const bool begins = hang->phase == event::HangEvent::Phase::kBegin;
    Args args;
    const std::int64_t hung_ns = event::elapsed(hang->since_ns, hang->time_ns).value_or(0);
    args.number("of stream", hang->stream.stream.value).us("hung (us)", hung_ns);
    instant({host_pid_, 0}, 'p', begins ? "hang" : "hang is over", hang->time_ns, args.take());
  } else if (const auto* notice = std::get_if<event::Notice>(&event)) {
    if (notice->severity == event::Severity::kInfo) return;
    instant({host_pid_, 0}, 'p', notice->code, notice->time_ns, Args().text("message", notice->message).take());
  }
}

void ChromeTrace::add_kernel(const log::KernelEventLine& line) {
  const event::KernelLaunch& launch = line.launch;
  const bool of_node = launch.graph_node.has_value();
  if (!launch.unlaunched && !of_node) {
    Args args = call_args(launch.call_ns, launch.status, launch.correlation.value, line.scope);
    if (launch.captured) args.text("captured", "yes");
    if (const event::MaybeNs& off = launch.launch_error_ns; off && event::plausible(*off)) {
      args.us("begins at most so much sooner or later (us)", *off);
    } else if (launch.between) {
      args.text("begins", "here or later");
    }
    // Known is how long it ran, not when: it has no place on a track of the GPU.
    if (const event::MaybeNs& ran = launch.by_events.duration_ns; ran && event::plausible(*ran)) {
      args.us("kernel ran at most (us)", *ran);
      if (const auto least = event::elapsed(launch.by_events.error_ns, ran)) args.us("and at least (us)", *least);
    }
    call(launch.thread, "cuLaunchKernel", launch.launch_ns, launch.call_ns, args.take());
  }
  if (!sane(launch.start_ns, launch.end_ns)) return;
  Work w{line.kernel.device, line.context.value_or(0), launch.stream.value, launch.correlation.value, launch.thread,
         of_node, launch.launch_ns, launch.start_ns, launch.end_ns};
  if (launch.unlaunched) w.launch_ns.reset();
  Args args;
  if (line.kernel.num_regs >= 0) args.number("registers per thread", line.kernel.num_regs);
  if (line.config_known) {
    const std::int64_t fixed = std::max(line.kernel.static_shared_bytes, 0);
    args.number("shared memory", fixed + line.shape.dyn_shared_bytes).dim("block", line.shape.block);
  }
  args.dim("grid", launch.grid);
  if (line.occupancy_ratio) {
    args.number("est. achieved occupancy %", static_cast<int>(*line.occupancy_ratio * 100 + 0.5));
    args.number("occupancy", *line.occupancy_ratio);
  }
  if (line.occupancy.limiters != 0) {
    args.text("limiting_resource", event::kLimiterNames[static_cast<std::size_t>(line.occupancy.limiter)]);
  }
  args.maybe("waves", line.waves);
  if (launch.graph) args.number("graph", launch.graph.value);
  args.maybe("graph node id", launch.graph_node);
  args.scope(line.scope);
  work(w, "kernel", quoted_kernel(line.kernel.name), args.take());
  if (line.occupancy_ratio) occupancy(w, *line.occupancy_ratio);
}

// Of a kernel whose call has been drawn already.
void ChromeTrace::add_time(const log::KernelTimeLine& line) {
  const event::KernelTime& time = line.time;
  if (!sane(time.start_ns, time.end_ns)) return;
  const Work w{line.device.value_or(-1), line.context.value_or(0), time.stream.value, 0, 0, false, time.launch_ns,
               time.start_ns, time.end_ns};
  work(w, "kernel", quoted_kernel(line.name), {});
}

template <class Event>
std::optional<ChromeTrace::Work> ChromeTrace::work_of(const Event& event, std::optional<std::int32_t> device,
                                                      std::optional<std::uint32_t> context) {
  if (!sane(event.start_ns, event.end_ns)) return std::nullopt;
  return Work{device.value_or(-1),    context.value_or(0),        event.stream.value,      event.correlation.value,
              event.origin.thread,    event.graph_node.has_value(), event.origin.launch_ns, event.start_ns,
              event.end_ns};
}

// The name of the call is not in the line; what it did is.
void ChromeTrace::add_copy(const log::MemcpyLine& line) {
  const event::MemcpyEvent& copy = line.copy;
  const event::WorkOrigin& origin = copy.origin;
  if (origin.launch_ns && !copy.graph_node) {
    const std::string name = fmt::format("copy {}{}", kCopyWords[static_cast<std::size_t>(copy.kind)],
                                         copy.async ? " async" : "");
    call(origin.thread, name, *origin.launch_ns, origin.call_ns,
         call_args(origin.call_ns, origin.status, copy.correlation.value, line.scope)
             .number("bytes", copy.bytes)
             .take());
  }
  const auto w = work_of(copy, line.device, line.context);
  if (!w) return;
  Args args;
  transfer_args(args, copy.bytes, copy.start_ns, copy.end_ns);
  args.maybe("source device", copy.source_device).maybe("destination device", copy.destination_device);
  if (copy.graph) args.number("graph", copy.graph.value);
  args.maybe("graph node id", copy.graph_node).scope(line.scope);
  work(*w, "gpu_memcpy", json_string(copy_name(copy)), args.take());
}

void ChromeTrace::add_fill(const log::MemsetLine& line) {
  const event::MemsetEvent& fill = line.fill;
  const event::WorkOrigin& origin = fill.origin;
  if (origin.launch_ns && !fill.graph_node) {
    call(origin.thread, fill.async ? "fill async" : "fill", *origin.launch_ns, origin.call_ns,
         call_args(origin.call_ns, origin.status, fill.correlation.value, line.scope)
             .number("bytes", fill.bytes)
             .take());
  }
  const auto w = work_of(fill, line.device, line.context);
  if (!w) return;
  Args args;
  transfer_args(args, fill.bytes, fill.start_ns, fill.end_ns);
  if (fill.graph) args.number("graph", fill.graph.value);
  args.maybe("graph node id", fill.graph_node).scope(line.scope);
  work(*w, "gpu_memset", json_string(fmt::format("Memset ({})", memory_word(fill.memory))), args.take());
}

// The nodes have lines of their own, or the graph has times as a whole.
void ChromeTrace::add_graph(const log::GraphLaunchLine& line) {
  const event::GraphLaunch& launch = line.launch;
  Args args = call_args(launch.call_ns, launch.status, launch.correlation.value, line.scope);
  if (launch.graph) args.number("graph", launch.graph.value);
  if (launch.captured) args.text("captured", "yes");
  call(launch.thread, "cuGraphLaunch", launch.launch_ns, launch.call_ns, args.take());
  if (!sane(launch.start_ns, launch.end_ns)) return;
  const Work w{line.device.value_or(-1), line.context.value_or(0), launch.stream.value, launch.correlation.value,
               launch.thread, false, launch.launch_ns, launch.start_ns, launch.end_ns};
  work(w, "kernel", json_string(launch.graph ? fmt::format("graph {}", launch.graph.value) : "graph"), {});
}

void ChromeTrace::add_memory(const log::MemoryLine& line) {
  const event::MemoryEvent& memory = line.memory;
  Args args = call_args(memory.call_ns, memory.status, 0, line.scope);
  args.maybe("bytes", memory.bytes);
  if (memory.address != 0) args.text("address", fmt::format("{:#x}", memory.address));
  call(memory.thread, line.call, memory.time_ns, memory.call_ns, args.take());
  if (!memory.total_bytes || !options_.counters) return;
  const char* const kind = event::allocation_name(memory.kind);
  std::string name = std::string("memory, ") + (kind != nullptr ? kind : "unknown");
  if (memory.pool) name += fmt::format(" {:#x}", *memory.pool);
  const Place place = memory.device >= 0 ? device(memory.device) : Place{host_pid_, 0};
  const bool returned = memory.call_ns && event::plausible(memory.time_ns) && event::plausible(*memory.call_ns);
  counter(place, name, returned ? memory.time_ns + *memory.call_ns : memory.time_ns,
          fmt::format("\"bytes\":{}", *memory.total_bytes));
}

void ChromeTrace::add_edge(const log::StreamEdgeLine& line) {
  const event::StreamEdge& edge = line.edge;
  const bool wait = edge.operation == event::StreamEdge::Operation::kWait;
  Args args = call_args(edge.call_ns, edge.status, 0, line.scope);
  args.text("event", fmt::format("{:#x}", edge.event)).number("of stream", edge.stream.value);
  call(edge.thread, wait ? "cuStreamWaitEvent" : "cuEventRecord", edge.time_ns, edge.call_ns, args.take());
  if (edge.event == 0 || !options_.flows) return;
  if (!wait) {
    if (records_.size() >= kMostRecords) records_.clear();
    records_[edge.event] = {edge.thread, edge.time_ns};
  } else if (const auto record = records_.find(edge.event); record != records_.end()) {
    arrow("stream_edge", next_flow_++, host(record->second.thread), record->second.time_ns, host(edge.thread),
          edge.time_ns);
  }
}

// No argument "stream": tools take what has one for work of the GPU.
void ChromeTrace::add_call(const log::ApiLine& line) {
  Args args = call_args(line.call.call_ns, line.call.status, 0, line.scope);
  if (line.call.stream) args.number("of stream", line.call.stream.value);
  call(line.call.thread, line.name, line.call.time_ns, line.call.call_ns, args.take());
}

void ChromeTrace::add_scope(const log::ScopeLine& line) {
  const event::ScopeEvent& event = line.event;
  const std::string path = line.scope.value_or("");
  if (event.phase == event::ScopeEvent::Phase::kMark) {
    return instant(host(event.thread), 't', path, event.time_ns, {});
  }
  last_ns_ = std::max(last_ns_, event.time_ns);
  if (scopes_.size() >= kMostTracks && !scopes_.contains(event.thread)) return;
  std::vector<OpenScope>& stack = scopes_[event.thread];
  if (event.phase == event::ScopeEvent::Phase::kBegin) {
    if (stack.size() < kMostScopes) stack.push_back({path, event.time_ns});
    return;
  }
  for (std::size_t i = stack.size(); i-- > 0;) {
    if (stack[i].path == path) return close_scope(event.thread, i, event.time_ns);
  }
}

// The innermost is a slice around what was called in it. One that ends before those inside it does (a range started and
// ended anywhere) is drawn on a track of its own.
void ChromeTrace::close_scope(std::uint32_t thread, std::size_t i, std::int64_t end_ns) {
  std::vector<OpenScope>& stack = scopes_[thread];
  const OpenScope scope = stack[i];
  const bool innermost = i + 1 == stack.size();
  std::string_view name = scope.path;
  if (i > 0 && name.starts_with(stack[i - 1].path + "/")) name.remove_prefix(stack[i - 1].path.size() + 1);
  stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(i));
  const std::string rest = fmt::format(",\"cat\":\"user_annotation\",\"name\":{},\"args\":{{{}}}}}", json_string(name),
                                       Args().text("path", scope.path).take());
  if (innermost) {
    std::string slice = begin('X', host(thread), scope.begin_ns) + ",\"dur\":";
    append_us(slice, std::max(event::elapsed(scope.begin_ns, end_ns).value_or(0), std::int64_t{0}));
    return write(slice + rest);
  }
  const std::uint64_t id = next_flow_++;
  write(begin('b', host(thread), scope.begin_ns) + fmt::format(",\"id\":{}", id) + rest);
  write(begin('e', host(thread), end_ns) + fmt::format(",\"id\":{}", id) + rest);
}

}  // namespace gpuflight::report
