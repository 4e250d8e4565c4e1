#include <cmath>
#include <iterator>
#include <limits>

#include "log/field_table.h"

namespace gpuflight::log {
namespace {

using namespace fields;
using event::Limiter;

bool read_limiters(const Value& v, event::LimiterSet& to) {
  simdjson::dom::array array;
  if (v.is_null()) return true;
  if (v.get(array) != simdjson::SUCCESS) return false;
  for (const Value one : array) {
    Limiter limiter;
    if (!read_name(one, limiter, event::kLimiterNames)) return false;
    to |= event::limiter_bit(limiter);
  }
  return true;
}

bool read_limit_blocks(const Value& v, std::array<std::int32_t, event::kLimiterCount>& to) {
  simdjson::dom::object object;
  if (v.get(object) != simdjson::SUCCESS) return false;
  for (const auto field : object) {
    const auto it = std::find(event::kLimiterNames.begin(), event::kLimiterNames.end(), field.key);
    if (it == event::kLimiterNames.end()) continue;
    if (!read_or_null(field.value, to[static_cast<std::size_t>(it - event::kLimiterNames.begin())])) return false;
  }
  return true;
}

bool read_source(const Value& v, event::OccupancySource& to) {
  constexpr std::array<const char*, 3> kNames = {"none", "driver", "model"};
  return v.is_null() || read_name(v, to, kNames);
}

bool read_pairs(const Value& v, std::vector<std::pair<std::string, std::string>>& to) {
  simdjson::dom::object object;
  if (v.get(object) != simdjson::SUCCESS) return false;
  for (const auto field : object) {
    std::string text;
    if (!read(field.value, text)) return false;
    to.emplace_back(std::string(field.key), std::move(text));
  }
  return true;
}

bool read_losses(const Value& v, std::array<std::uint64_t, event::kLossCauseCount>& to) {
  simdjson::dom::object object;
  if (v.get(object) != simdjson::SUCCESS) return false;
  for (const auto field : object) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (field.key == event::kLossCauseNames[i] && !read(field.value, to[i])) return false;
    }
  }
  return true;
}

bool read_schema(const Value& v, SessionStartLine& to) {
  std::string_view text;
  if (v.get(text) != simdjson::SUCCESS) return false;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, to.schema_major);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') return false;
  const auto minor = std::from_chars(major.ptr + 1, end, to.schema_minor);
  return minor.ec == std::errc{} && minor.ptr == end;
}

bool read_node_kinds(const Value& v, std::array<std::uint64_t, event::kNodeKindCount>& to) {
  simdjson::dom::object object;
  if (v.get(object) != simdjson::SUCCESS) return false;
  for (const auto field : object) {
    const auto it = std::find(event::kNodeKindNames.begin(), event::kNodeKindNames.end(), field.key);
    if (it == event::kNodeKindNames.end()) continue;
    if (!read(field.value, to[static_cast<std::size_t>(it - event::kNodeKindNames.begin())])) return false;
  }
  return true;
}

template <class T>
std::optional<double>& share_of(T& line, Limiter limiter) {
  return line.limit_occupancy[static_cast<std::size_t>(limiter)];
}

template <class T>
constexpr auto config_fields() {
#define F(key, required, expression) GPUFLIGHT_FIELD(T, key, required, expression)
  return std::array{
      F("name", true, (e.config_known = !v.is_null(), read_or_null(v, e.kernel.name))),
      F("occupancy", false, (e.details = true, read(v, e.occupancy_ratio))),
      F("num_regs", false, read_or_null(v, e.kernel.num_regs)),
      F("static_shared_bytes", false, read_or_null(v, e.kernel.static_shared_bytes)),
      F("dyn_shared_bytes", false, read_or_null(v, e.shape.dyn_shared_bytes)),
      F("block", true, v.is_null() || read_dim(v, e.shape.block)),
      F("max_active_blocks", false, read_or_null(v, e.occupancy.max_active_blocks)),
      F("reg_occupancy", false, read(v, share_of(e, Limiter::kRegisters))),
      F("smem_occupancy", false, read(v, share_of(e, Limiter::kSharedMem))),
      F("warp_occupancy", false, read(v, share_of(e, Limiter::kWarps))),
      F("block_occupancy", false, read(v, share_of(e, Limiter::kBlocks))),
      F("limiting_resource", false, v.is_null() || read_name(v, e.occupancy.limiter, event::kLimiterNames)),
      F("limiting_resources", false, read_limiters(v, e.occupancy.limiters)),
      F("barrier_occupancy", false, read(v, share_of(e, Limiter::kBarriers))),
      F("cluster_occupancy", false, read(v, share_of(e, Limiter::kCluster))),
      F("limit_blocks", false, read_limit_blocks(v, e.occupancy.limit_blocks)),
      F("occupancy_source", false, read_source(v, e.occupancy.source)),
      F("model_blocks", false, (e.occupancy.model_disagrees = true, read_or_null(v, e.occupancy.model_blocks))),
      F("max_active_clusters", false, read_or_null(v, e.occupancy.max_active_clusters)),
      F("local_bytes_per_thread", false, read_or_null(v, e.kernel.local_bytes_per_thread)),
      F("max_threads_per_block", false, read_or_null(v, e.kernel.max_threads_per_block)),
      F("binary_version", false, read_or_null(v, e.kernel.binary_version)),
      F("cluster", false, v.is_null() || read_dim(v, e.shape.cluster)),
      F("cooperative", false, read_or_null(v, e.shape.cooperative)),
      F("carveout", false, read_or_null(v, e.shape.carveout)),
      F("module_hash", false, v.is_null() || read_hex(v, e.kernel.module_hash, "")),
  };
#undef F
}

#define F(key, required, expression) GPUFLIGHT_FIELD(KernelEventLine, key, required, expression)
constexpr auto kKernelFields = joined(config_fields<KernelEventLine>(), std::array{
    F("grid", true, read_dim(v, e.launch.grid)),
    F("config", false, read_or_null(v, e.launch.config)),
    F("waves", false, read(v, e.waves)),
    F("device", false, v.is_null() ? (e.kernel.device = -1, true) : read(v, e.kernel.device)),
    F("context", false, read(v, e.context)),
    F("stream", false, read_or_null(v, e.launch.stream)),
    F("scope", false, read(v, e.scope)),
    F("thread", false, read_or_null(v, e.launch.thread)),
    F("seq", false, read(v, e.launch.seq)),
    F("correlation", false, read_or_null(v, e.launch.correlation)),
    F("launch_ns", false, read(v, e.launch.launch_ns)),
    F("call_ns", false, read(v, e.launch.call_ns)),
    F("status", false, read(v, e.launch.status)),
    F("start_ns", false, read(v, e.launch.start_ns)),
    F("end_ns", false, read(v, e.launch.end_ns)),
    F("duration_ns", false, read(v, e.duration_ns)),
    F("queue_ns", false, read(v, e.queue_ns)),
    F("graph", false, read_or_null(v, e.launch.graph)),
    F("graph_node", false, read(v, e.launch.graph_node)),
    F("captured", false, read(v, e.launch.captured)),
    F("late", false, read(v, e.launch.late)),
    F("queue_negative", false, ignore(v)),
    F("unlaunched", false, read(v, e.launch.unlaunched)),
    F("launch_error_ns", false, (e.launch.between = true) && read(v, e.launch.launch_error_ns)),
    F("time_source", false, read_time_source(v, e.timed_by_events)),
    F("error_ns", false, read(v, e.launch.by_events.error_ns)),
});
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(KernelSummaryLine, key, required, expression)
constexpr auto kSummaryFields = joined(config_fields<KernelSummaryLine>(), std::array{
    F("config", false, read_or_null(v, e.summary.config)),
    F("seq", false, read(v, e.summary.seq)),
    F("from_ns", true, read(v, e.summary.from_ns)),
    F("to_ns", true, read(v, e.summary.to_ns)),
    F("session", false, read(v, e.summary.session)),
    F("count", true, read(v, e.summary.count)),
    F("failed", false, read(v, e.summary.failed)),
    F("captured", false, read(v, e.summary.captured)),
    F("replayed", false, read(v, e.summary.replayed)),
    F("call_total_ns", false, read(v, e.summary.call_total_ns)),
    F("calls_timed", false, read(v, e.calls_timed)),
    F("call_min_ns", false, read(v, e.summary.call_min_ns)),
    F("call_max_ns", false, read(v, e.summary.call_max_ns)),
    F("timed", false, read(v, e.timed)),
    F("total_ns", false, read(v, e.summary.total_ns)),
    F("min_ns", false, read(v, e.summary.min_ns)),
    F("max_ns", false, read(v, e.summary.max_ns)),
    F("p50_ns", false, read(v, e.summary.p50_ns)),
    F("p95_ns", false, read(v, e.summary.p95_ns)),
    F("p99_ns", false, read(v, e.summary.p99_ns)),
});
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(GraphLaunchLine, key, required, expression)
constexpr std::array kGraphFields = {
    F("graph", false, read_or_null(v, e.launch.graph)),
    F("device", false, read(v, e.device)),
    F("context", false, read(v, e.context)),
    F("stream", false, read_or_null(v, e.launch.stream)),
    F("scope", false, read(v, e.scope)),
    F("thread", false, read_or_null(v, e.launch.thread)),
    F("seq", false, read(v, e.launch.seq)),
    F("correlation", false, read_or_null(v, e.launch.correlation)),
    F("launch_ns", true, read(v, e.launch.launch_ns)),
    F("call_ns", false, read(v, e.launch.call_ns)),
    F("status", false, read(v, e.launch.status)),
    F("start_ns", false, read(v, e.launch.start_ns)),
    F("end_ns", false, read(v, e.launch.end_ns)),
    F("duration_ns", false, ignore(v)),
    F("captured", false, read(v, e.launch.captured)),
    F("contents", false, read_or_null(v, e.launch.contents)),
    F("node_events", false, read(v, e.launch.node_events)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::GraphInfo, key, required, expression)
constexpr std::array kGraphInfoFields = {
    F("contents", true, read(v, e.contents)), F("seq", false, read(v, e.seq)),
    F("nodes", true, read_node_kinds(v, e.nodes)), F("disabled", false, read(v, e.disabled)),
    F("kernels", true, read(v, e.kernels)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(GraphKernelLine, key, required, expression)
constexpr auto kGraphKernelFields = joined(config_fields<GraphKernelLine>(), std::array{
    F("grid", true, read_dim(v, e.info.kernel.grid)),
    F("config", false, read_or_null(v, e.info.kernel.config)),
    F("device", false, v.is_null() ? (e.kernel.device = -1, true) : read(v, e.kernel.device)),
    F("seq", false, read(v, e.info.seq)),
    F("contents", true, read(v, e.info.contents)),
    F("count", true, read(v, e.info.kernel.count)),
});
#undef F

constexpr std::array<const char*, 3> kPhaseNames = {"begin", "end", "mark"};
constexpr std::array<const char*, 3> kStreamKindNames = {"legacy_default", "per_thread_default", "created"};
constexpr std::array<const char*, 3> kSeverityNames = {"info", "warning", "error"};

#define F(key, required, expression) GPUFLIGHT_FIELD(ScopeLine, key, required, expression)
constexpr std::array kScopeFields = {
    F("phase", true, read_name(v, e.event.phase, kPhaseNames)),
    F("scope", true, read(v, e.scope)),
    F("thread", false, read_or_null(v, e.event.thread)),
    F("seq", false, read(v, e.event.seq)),
    F("time_ns", true, read(v, e.event.time_ns)),
    F("range", false, read(v, e.event.range)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(SessionStartLine, key, required, expression)
constexpr std::array kSessionStartFields = {
    F("schema", true, read_schema(v, e)),
    F("segment", false, read(v, e.segment)),
    F("seq", false, read(v, e.session.seq)),
    F("library_version", false, read(v, e.session.library_version)),
    F("program", false, read_or_null(v, e.session.program)),
    F("args", false, read_strings(v, e.session.args)),
    F("args_masked", false, read(v, e.session.args_masked)),
    F("cwd", false, read_or_null(v, e.session.cwd)),
    F("pid", false, read(v, e.session.pid)),
    F("ppid", false, read(v, e.session.ppid)),
    F("process_start_ticks", false, read_or_null(v, e.session.process_start_ticks)),
    F("boot_id", false, read_or_null(v, e.session.boot_id)),
    F("host", false, read_or_null(v, e.session.host)),
    F("user", false, read_or_null(v, e.session.user)),
    F("t0_unix_ns", false, read(v, e.session.t0_unix_ns)),
    F("t0_monotonic_ns", false, read(v, e.session.t0_monotonic_ns)),
    F("t0_rfc3339", false, read(v, e.session.t0_rfc3339)),
    F("rank", false, read_pairs(v, e.session.rank)),
    F("configuration", false, read_pairs(v, e.session.configuration)),
    F("driver_version", false, read(v, e.session.driver_version)),
    F("libcuda_path", false, read_or_null(v, e.session.libcuda_path)),
    F("cupti_version", false, read(v, e.session.cupti_version)),
    F("cupti_path", false, read_or_null(v, e.session.cupti_path)),
    F("cupti_reason", false, read_or_null(v, e.session.cupti_reason)),
    F("capture", false, read_or_null(v, e.session.capture)),
    F("capture_reason", false, read_or_null(v, e.session.capture_reason)),
    F("flight_path", false, read_or_null(v, e.session.flight_path)),
    F("mode", false, read_or_null(v, e.session.mode)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(DeviceInfoLine, key, required, expression)
#define N(key) F(#key, false, read_or_null(v, e.device.key))
constexpr std::array kDeviceFields = {
    F("seq", false, read(v, e.seq)), F("device", true, read(v, e.device.device)),
    N(name), N(uuid), N(pci_bus_id), N(compute_major), N(compute_minor), N(sm_count), N(warp_size),
    N(max_threads_per_block), N(max_threads_per_sm), F("max_warps_per_sm", false, ignore(v)), N(max_blocks_per_sm),
    N(regs_per_block), N(regs_per_sm), N(shared_bytes_per_block), N(shared_bytes_per_block_optin),
    N(shared_bytes_per_sm), N(reserved_shared_bytes_per_block), N(l2_bytes), N(global_bytes), N(sm_clock_khz),
    N(memory_clock_khz), N(memory_bus_bits), N(copy_engines), N(cooperative_launch), N(cluster_launch), N(ecc),
    N(integrated), N(managed_memory), N(memory_pools),
};
#undef N
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::StreamInfo, key, required, expression)
constexpr std::array kStreamFields = {
    F("stream", true, read(v, e.stream)),
    F("context", false, read_or_null(v, e.context)),
    F("device", false, read_or_null(v, e.device)),
    F("kind", false, read_name(v, e.kind, kStreamKindNames)),
    F("handle", false, read_hex(v, e.handle, "0x")),
    F("priority", false, read(v, e.priority)),
    F("flags", false, read(v, e.flags)),
    F("thread", false, read_or_null(v, e.thread)),
    F("seq", false, read(v, e.seq)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::Notice, key, required, expression)
constexpr std::array kNoticeFields = {
    F("severity", false, read_name(v, e.severity, kSeverityNames)),
    F("code", true, read(v, e.code)),
    F("message", false, read(v, e.message)),
    F("seq", false, read(v, e.seq)),
    F("time_ns", false, read(v, e.time_ns)),
};
#undef F

template <class T>
constexpr auto ledger_fields() {
#define F(key, required, expression) GPUFLIGHT_FIELD(T, key, required, expression)
  return std::array{
      F("seq", false, read(v, e.seq)),
      F("time_ns", false, read(v, e.time_ns)),
      F("seen", true, read(v, e.ledger.seen)),
      F("written", true, read(v, e.ledger.written)),
      F("summarised", false, read(v, e.ledger.summarised)),
      F("pending", false, read(v, e.ledger.pending)),
      F("lost", false, ignore(v)),
      F("lost_by_cause", false, read_losses(v, e.ledger.lost)),
      F("rotated_away", false, read(v, e.ledger.rotated_away)),
      F("null_time", false, read(v, e.ledger.null_time)),
      F("table_full", false, read(v, e.ledger.table_full)),
      F("occupancy_mismatch", false, read(v, e.ledger.occupancy_mismatch)),
  };
#undef F
}

event::SessionEnd::EventTimes& event_times_of(event::SessionEnd& end) {
  return end.event_times ? *end.event_times : end.event_times.emplace();
}

constexpr auto kLossFields = joined(
    ledger_fields<event::LossEvent>(),
    std::array{GPUFLIGHT_FIELD(event::LossEvent, "lost_since_last", false, read_losses(v, e.lost))});

#define F(key, required, expression) GPUFLIGHT_FIELD(event::SessionEnd, key, required, expression)
constexpr auto kSessionEndFields = joined(ledger_fields<event::SessionEnd>(), std::array{
    F("reason", true, read(v, e.reason)),
    F("bytes_written", false, read(v, e.bytes_written)),
    F("recorder_cpu_ns", false, read(v, e.recorder_cpu_ns)),
    F("added_ns_per_launch", false, read(v, e.added_ns_per_launch)),
    F("launches", false, read(v, e.launches)),
    F("graph_launches", false, read(v, e.graph_launches)),
    F("captured", false, read(v, e.captured)),
    F("failed", false, read(v, e.failed)),
    F("kernels", false, read(v, e.kernels)),
    F("configs", false, read(v, e.configs)),
    F("graph_kernels", false, read(v, e.graph_kernels)),
    F("replayed_kernels", false, read(v, e.replayed_kernels)),
    F("unlaunched", false, read(v, e.unlaunched)),
    F("event_every", false, read(v, event_times_of(e).every)),
    F("event_timed", false, read(v, event_times_of(e).timed)),
    F("event_cost_ns", false, read(v, event_times_of(e).cost_ns)),
});
#undef F
#undef GPUFLIGHT_FIELD

// What the ratios say, where the line says it in no other way.
template <class T>
void derive(T& line) {
  event::Occupancy& o = line.occupancy;
  if (!line.config_known || !line.details) return;
  o.warps_per_block = static_cast<std::int32_t>(std::min<std::uint64_t>((line.shape.block.count() + 31) / 32, 1 << 16));
  // Null blocks and yet a full share: the kernel uses none of that resource.
  for (std::size_t i = 0; i < o.limit_blocks.size(); ++i) {
    if (o.limit_blocks[i] < 0 && line.limit_occupancy[i] == 1.0) o.limit_blocks[i] = event::kUnlimitedBlocks;
  }
  const double ratio = line.occupancy_ratio.value_or(0);
  if (ratio <= 0 || ratio > 1 || o.max_active_blocks <= 0) return;
  const double most = std::round(double(o.max_active_blocks) * o.warps_per_block / ratio);
  if (most <= std::numeric_limits<std::int16_t>::max()) o.max_warps_per_sm = static_cast<std::int32_t>(most);
}

constexpr std::array<std::string_view, kLineTypeCount> kTypeNames = {
    "",           "kernel_event", "graph_launch_event", "scope_event",  "session_start", "device_info",
    "stream_info", "kernel_summary", "notice_event",     "loss_event", "session_end",
    "sync_event",  "api_event",      "error_event",      "hang_event",  "fork_event",
    "exit_event",  "memcpy_event", "memset_event",     "memory_event", "stream_edge",
    "kernel_time", "kernel_pending", "clock_event",      "graph_info",   "graph_kernel",
    "level_event"};

}  // namespace

LineType line_type(std::string_view name) {
  for (std::size_t i = 1; i < kTypeNames.size(); ++i) {
    if (kTypeNames[i] == name) return static_cast<LineType>(i);
  }
  return LineType::kNone;
}

FieldTrouble read_fields(LineType type, const simdjson::dom::object& object, LogEvent& event) {
  switch (type) {
    case LineType::kKernel: {
      auto& line = fresh<KernelEventLine>(event);
      const FieldTrouble trouble = fill(kKernelFields, object, line);
      derive(line);
      if (line.timed_by_events) line.launch.by_events.duration_ns = line.duration_ns;
      return trouble;
    }
    case LineType::kKernelSummary: {
      auto& line = fresh<KernelSummaryLine>(event);
      const FieldTrouble trouble = fill(kSummaryFields, object, line);
      derive(line);
      return trouble;
    }
    case LineType::kGraphKernel: {
      auto& line = fresh<GraphKernelLine>(event);
      const FieldTrouble trouble = fill(kGraphKernelFields, object, line);
      derive(line);
      return trouble;
    }
    case LineType::kGraphInfo: return fill(kGraphInfoFields, object, fresh<event::GraphInfo>(event));
    case LineType::kGraphLaunch: return fill(kGraphFields, object, fresh<GraphLaunchLine>(event));
    case LineType::kScope: return fill(kScopeFields, object, fresh<ScopeLine>(event));
    case LineType::kSessionStart: return fill(kSessionStartFields, object, fresh<SessionStartLine>(event));
    case LineType::kDeviceInfo: return fill(kDeviceFields, object, fresh<DeviceInfoLine>(event));
    case LineType::kStreamInfo: return fill(kStreamFields, object, fresh<event::StreamInfo>(event));
    case LineType::kNotice: return fill(kNoticeFields, object, fresh<event::Notice>(event));
    case LineType::kLoss: return fill(kLossFields, object, fresh<event::LossEvent>(event));
    case LineType::kSessionEnd: return fill(kSessionEndFields, object, fresh<event::SessionEnd>(event));
    case LineType::kSync:
    case LineType::kApi:
    case LineType::kError:
    case LineType::kHang:
    case LineType::kFork:
    case LineType::kExit:
    case LineType::kLevel: return read_incident(type, object, event);
    case LineType::kMemcpy:
    case LineType::kMemset:
    case LineType::kMemory:
    case LineType::kStreamEdge:
    case LineType::kKernelTime:
    case LineType::kKernelPending:
    case LineType::kClock: return read_activity(type, object, event);
    case LineType::kNone: break;
  }
  return {};
}

}  // namespace gpuflight::log
