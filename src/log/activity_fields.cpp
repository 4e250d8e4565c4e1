// The keys of what the GPU did beside kernels, of memory, edges between streams, late times and clocks.
#include "log/field_table.h"

namespace gpuflight::log {
namespace {

using namespace fields;

constexpr std::array<const char*, 2> kMemoryOperationNames = {"alloc", "free"};
constexpr std::array<const char*, 2> kEdgeOperationNames = {"record", "wait"};

// null, and a word that a later CUPTI brings: not known.
template <class Enum, std::size_t N>
bool read_word(const Value& v, Enum& to, const std::array<const char*, N>& names) {
  std::string_view text;
  if (v.is_null()) return true;
  if (v.get(text) != simdjson::SUCCESS) return false;
  for (std::size_t i = 1; i < N; ++i) {
    if (text == names[i]) to = static_cast<Enum>(i);
  }
  return true;
}

bool read_allocation(const Value& v, event::AllocationKind& to) {
  to = event::kUnknownAllocation;
  return v.is_null() || read_name(v, to, event::kAllocationKindNames);
}

bool read_handle(const Value& v, std::uint64_t& to) { return v.is_null() || read_hex(v, to, "0x"); }
bool read_handle(const Value& v, std::optional<std::uint64_t>& to) {
  return v.is_null() || read_hex(v, to.emplace(), "0x");
}

// From `device` on; `work`: the event in the line.
template <class T, auto work>
constexpr auto work_fields() {
#define F(key, required, expression) GPUFLIGHT_FIELD(T, key, required, expression)
  return std::array{
      F("device", false, read(v, e.device)),
      F("context", false, read(v, e.context)),
      F("stream", false, read_or_null(v, (e.*work).stream)),
      F("scope", false, read(v, e.scope)),
      F("thread", false, read_or_null(v, (e.*work).origin.thread)),
      F("seq", false, read(v, (e.*work).seq)),
      F("correlation", false, read_or_null(v, (e.*work).correlation)),
      F("launch_ns", false, read(v, (e.*work).origin.launch_ns)),
      F("call_ns", false, read(v, (e.*work).origin.call_ns)),
      F("status", false, read(v, (e.*work).origin.status)),
      F("start_ns", true, read(v, (e.*work).start_ns)),
      F("end_ns", true, read(v, (e.*work).end_ns)),
      F("duration_ns", false, ignore(v)),
      F("queue_ns", false, ignore(v)),
      F("bytes_per_second", false, ignore(v)),
      F("graph", false, read_or_null(v, (e.*work).graph)),
      F("graph_node", false, read(v, (e.*work).graph_node)),
      F("late", false, read(v, (e.*work).late)),
  };
#undef F
}

#define F(key, required, expression) GPUFLIGHT_FIELD(MemcpyLine, key, required, expression)
constexpr auto kMemcpyFields = joined(std::array{
    F("kind", false, read_word(v, e.copy.kind, event::kCopyKindNames)),
    F("source", false, read_word(v, e.copy.source, event::kMemoryKindNames)),
    F("destination", false, read_word(v, e.copy.destination, event::kMemoryKindNames)),
    F("bytes", true, read(v, e.copy.bytes)),
    F("async", false, read(v, e.copy.async)),
    F("source_device", false, read(v, e.copy.source_device)),
    F("destination_device", false, read(v, e.copy.destination_device)),
}, work_fields<MemcpyLine, &MemcpyLine::copy>());
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(MemsetLine, key, required, expression)
constexpr auto kMemsetFields = joined(std::array{
    F("memory", false, read_word(v, e.fill.memory, event::kMemoryKindNames)),
    F("bytes", true, read(v, e.fill.bytes)),
    F("value", false, read(v, e.fill.value)),
    F("async", false, read(v, e.fill.async)),
}, work_fields<MemsetLine, &MemsetLine::fill>());
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(MemoryLine, key, required, expression)
constexpr std::array kMemoryFields = {
    F("operation", true, read_name(v, e.memory.operation, kMemoryOperationNames)),
    F("kind", false, read_allocation(v, e.memory.kind)),
    F("call", true, read(v, e.call)),
    F("address", false, read_handle(v, e.memory.address)),
    F("bytes", false, read(v, e.memory.bytes)),
    F("device", false, read_or_null(v, e.memory.device)),
    F("context", false, read_or_null(v, e.memory.context)),
    F("stream", false, read_or_null(v, e.memory.stream)),
    F("pool", false, read_handle(v, e.memory.pool)),
    F("total_bytes", false, read(v, e.memory.total_bytes)),
    F("peak_bytes", false, read(v, e.memory.peak_bytes)),
    F("scope", false, read(v, e.scope)),
    F("thread", false, read_or_null(v, e.memory.thread)),
    F("seq", false, read(v, e.memory.seq)),
    F("time_ns", true, read(v, e.memory.time_ns)),
    F("call_ns", false, read(v, e.memory.call_ns)),
    F("status", false, read(v, e.memory.status)),
    F("late", false, read(v, e.memory.late)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(StreamEdgeLine, key, required, expression)
constexpr std::array kEdgeFields = {
    F("operation", true, read_name(v, e.edge.operation, kEdgeOperationNames)),
    F("event", false, read_handle(v, e.edge.event)),
    F("stream", false, read_or_null(v, e.edge.stream)),
    F("scope", false, read(v, e.scope)),
    F("thread", false, read_or_null(v, e.edge.thread)),
    F("seq", false, read(v, e.edge.seq)),
    F("time_ns", true, read(v, e.edge.time_ns)),
    F("call_ns", false, read(v, e.edge.call_ns)),
    F("status", false, read(v, e.edge.status)),
    F("captured", false, read(v, e.edge.captured)),
    F("late", false, read(v, e.edge.late)),
};
#undef F

// What says of which kernel_event a line is; `of`: the event in the line.
template <class T, auto of>
constexpr auto kernel_reference_fields() {
#define F(key, required, expression) GPUFLIGHT_FIELD(T, key, required, expression)
  return std::array{
      F("name", false, read_or_null(v, e.name)),
      F("config", false, read_or_null(v, (e.*of).config)),
      F("device", false, read(v, e.device)),
      F("context", false, read(v, e.context)),
      F("stream", false, read_or_null(v, (e.*of).stream)),
      F("seq", false, read(v, (e.*of).seq)),
      F("event", true, read(v, (e.*of).event)),
      F("launch_ns", true, read(v, (e.*of).launch_ns)),
  };
#undef F
}

#define F(key, required, expression) GPUFLIGHT_FIELD(KernelTimeLine, key, required, expression)
constexpr auto kTimeFields = joined(kernel_reference_fields<KernelTimeLine, &KernelTimeLine::time>(), std::array{
    F("start_ns", true, read(v, e.time.start_ns)),
    F("end_ns", true, read(v, e.time.end_ns)),
    F("duration_ns", false, read(v, e.duration_ns)),
    F("time_source", false, read_time_source(v, e.timed_by_events)),
    F("error_ns", false, read(v, e.time.by_events.error_ns)),
});
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(KernelPendingLine, key, required, expression)
constexpr auto kPendingFields =
    joined(kernel_reference_fields<KernelPendingLine, &KernelPendingLine::pending>(), std::array{
    F("time_ns", true, read(v, e.pending.time_ns)),
    F("pending_ns", false, ignore(v)),
    F("behind", false, read(v, e.pending.behind)),
});
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::ClockEvent, key, required, expression)
constexpr std::array kClockFields = {
    F("seq", false, read(v, e.seq)),
    F("time_ns", true, read(v, e.time_ns)),
    F("monotonic_ns", true, read(v, e.monotonic_ns)),
    F("unix_ns", true, read(v, e.unix_ns)),
    F("gpu_ns", false, read(v, e.gpu_ns)),
    F("error_ns", false, read(v, e.error_ns)),
    F("drift_ns", false, read(v, e.drift_ns)),
};
#undef F

FieldTrouble read_memory(const simdjson::dom::object& object, LogEvent& event) {
  MemoryLine& line = fresh<MemoryLine>(event);
  const FieldTrouble trouble = fill(kMemoryFields, object, line);
  line.memory.call = call_number(line.call);
  return trouble;
}

}  // namespace

FieldTrouble read_activity(LineType type, const simdjson::dom::object& object, LogEvent& event) {
  switch (type) {
    case LineType::kMemcpy: return fill(kMemcpyFields, object, fresh<MemcpyLine>(event));
    case LineType::kMemset: return fill(kMemsetFields, object, fresh<MemsetLine>(event));
    case LineType::kMemory: return read_memory(object, event);
    case LineType::kStreamEdge: return fill(kEdgeFields, object, fresh<StreamEdgeLine>(event));
    case LineType::kKernelTime: {
      auto& line = fresh<KernelTimeLine>(event);
      const FieldTrouble trouble = fill(kTimeFields, object, line);
      if (line.timed_by_events) line.time.by_events.duration_ns = line.duration_ns;
      return trouble;
    }
    case LineType::kKernelPending: return fill(kPendingFields, object, fresh<KernelPendingLine>(event));
    case LineType::kClock: return fill(kClockFields, object, fresh<event::ClockEvent>(event));
    default: return {};
  }
}

}  // namespace gpuflight::log
