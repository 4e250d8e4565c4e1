// Lines of what the GPU did beside kernels, of memory, edges between streams and clocks.
#include "log/encoder.h"
#include "log/line.h"

namespace gpuflight::log {
namespace {

template <std::size_t N>
void name_or_null(Line& line, std::string_view key, const std::array<const char*, N>& names, std::size_t i) noexcept {
  i < N && names[i] != nullptr ? line.text(key, names[i]) : line.null(key);
}

void scope_or_null(Line& line, std::string_view scope) noexcept {
  line.raw("scope", scope.empty() ? "null" : scope);
}

// The part that copies and fills have in common, from `scope` on.
template <class Event>
void work_members(Line& line, std::string_view scope, const Event& event) noexcept {
  scope_or_null(line, scope);
  line.id("thread", event.origin.thread);
  line.number("seq", event.seq.value);
  line.id("correlation", event.correlation.value);
  line.maybe("launch_ns", event.origin.launch_ns);
  line.maybe("call_ns", event.origin.call_ns);
  line.maybe("status", event.origin.status);
  line.maybe("start_ns", event.start_ns);
  line.maybe("end_ns", event.end_ns);
  const event::MaybeNs duration = event::elapsed_ns(event.start_ns, event.end_ns);
  line.maybe("duration_ns", duration);
  line.maybe("queue_ns", event::elapsed_ns(event.origin.launch_ns, event.start_ns));
  std::optional<std::uint64_t> throughput;
  if (duration && *duration > 0) {
    const double per_second = static_cast<double>(event.bytes) * 1e9 / static_cast<double>(*duration);
    if (per_second < 9e15) throughput = static_cast<std::uint64_t>(per_second + 0.5);
  }
  line.maybe("bytes_per_second", throughput);
  line.id("graph", event.graph.value);
  line.maybe("graph_node", event.graph_node);
  if (event.late) line.boolean("late", true);
}

}  // namespace

bool append_memcpy_event(Buffer& out, const RenderedStream& stream, std::string_view scope,
                         const event::MemcpyEvent& copy) noexcept {
  Line line(out, "memcpy_event");
  name_or_null(line, "kind", event::kCopyKindNames, static_cast<std::size_t>(copy.kind));
  name_or_null(line, "source", event::kMemoryKindNames, static_cast<std::size_t>(copy.source));
  name_or_null(line, "destination", event::kMemoryKindNames, static_cast<std::size_t>(copy.destination));
  line.number("bytes", copy.bytes);
  line.boolean("async", copy.async);
  line.maybe("source_device", copy.source_device);
  line.maybe("destination_device", copy.destination_device);
  line.rendered(stream.view().substr(1));
  work_members(line, scope, copy);
  return line.end();
}

bool append_memset_event(Buffer& out, const RenderedStream& stream, std::string_view scope,
                         const event::MemsetEvent& fill) noexcept {
  Line line(out, "memset_event");
  name_or_null(line, "memory", event::kMemoryKindNames, static_cast<std::size_t>(fill.memory));
  line.number("bytes", fill.bytes);
  line.number("value", fill.value);
  line.boolean("async", fill.async);
  line.rendered(stream.view().substr(1));
  work_members(line, scope, fill);
  return line.end();
}

bool append_memory_event(Buffer& out, std::string_view scope, const event::MemoryEvent& memory) noexcept {
  Line line(out, "memory_event");
  line.text("operation", memory.operation == event::MemoryEvent::Operation::kAlloc ? "alloc" : "free");
  name_or_null(line, "kind", event::kAllocationKindNames, static_cast<std::size_t>(memory.kind));
  line.text("call", event::facts(static_cast<event::ApiCall>(memory.call)).name);
  memory.address != 0 ? line.hex("address", "0x", memory.address, 16) : line.null("address");
  line.maybe("bytes", memory.bytes);
  memory.device >= 0 ? line.number("device", memory.device) : line.null("device");
  line.id("context", memory.context.value);
  line.id("stream", memory.stream.value);
  memory.pool ? line.hex("pool", "0x", *memory.pool, 16) : line.null("pool");
  line.maybe("total_bytes", memory.total_bytes);
  line.maybe("peak_bytes", memory.peak_bytes);
  scope_or_null(line, scope);
  line.id("thread", memory.thread);
  line.number("seq", memory.seq.value);
  line.number("time_ns", memory.time_ns);
  line.maybe("call_ns", memory.call_ns);
  line.maybe("status", memory.status);
  if (memory.late) line.boolean("late", true);
  return line.end();
}

bool append_stream_edge(Buffer& out, std::string_view scope, const event::StreamEdge& edge) noexcept {
  Line line(out, "stream_edge");
  line.text("operation", edge.operation == event::StreamEdge::Operation::kRecord ? "record" : "wait");
  edge.event != 0 ? line.hex("event", "0x", edge.event, 16) : line.null("event");
  line.id("stream", edge.stream.value);
  scope_or_null(line, scope);
  line.id("thread", edge.thread);
  line.number("seq", edge.seq.value);
  line.number("time_ns", edge.time_ns);
  line.maybe("call_ns", edge.call_ns);
  line.maybe("status", edge.status);
  line.boolean("captured", edge.captured);
  if (edge.late) line.boolean("late", true);
  return line.end();
}

bool append_kernel_time(Buffer& out, const RenderedConfig& config, const RenderedStream& stream,
                        const event::KernelTime& time) noexcept {
  if (!config.valid()) {
    out.drop_line();
    return false;
  }
  Line line(out, "kernel_time");
  line.rendered(config.name_pair());
  line.id("config", time.config.value);
  line.rendered(stream.view().substr(1));
  line.number("seq", time.seq.value);
  line.number("event", time.event.value);
  line.number("launch_ns", time.launch_ns);
  line.maybe("start_ns", time.start_ns);
  line.maybe("end_ns", time.end_ns);
  const event::MaybeNs& by_events = time.by_events.duration_ns;
  line.maybe("duration_ns", by_events ? by_events : event::elapsed_ns(time.start_ns, time.end_ns));
  if (by_events) {
    line.text("time_source", "events");
    line.maybe("error_ns", time.by_events.error_ns);
  }
  return line.end();
}

bool append_kernel_pending(Buffer& out, const RenderedConfig& config, const RenderedStream& stream,
                           const event::KernelPending& pending) noexcept {
  if (!config.valid()) {
    out.drop_line();
    return false;
  }
  Line line(out, "kernel_pending");
  line.rendered(config.name_pair());
  line.id("config", pending.config.value);
  line.rendered(stream.view().substr(1));
  line.number("seq", pending.seq.value);
  line.number("event", pending.event.value);
  line.number("launch_ns", pending.launch_ns);
  line.number("time_ns", pending.time_ns);
  line.number("pending_ns", pending.time_ns - pending.launch_ns);
  line.number("behind", pending.behind);
  return line.end();
}

bool append_clock_event(Buffer& out, const event::ClockEvent& clock) noexcept {
  Line line(out, "clock_event");
  line.number("seq", clock.seq.value);
  line.number("time_ns", clock.time_ns);
  line.number("monotonic_ns", clock.monotonic_ns);
  line.number("unix_ns", clock.unix_ns);
  line.maybe("gpu_ns", clock.gpu_ns);
  line.number("error_ns", clock.error_ns);
  line.number("drift_ns", clock.drift_ns);
  return line.end();
}

}  // namespace gpuflight::log
