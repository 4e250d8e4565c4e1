// Events of every type with known values: what the log tests encode, keep as golden lines and read back.
#pragma once

#include <string>

#include "event/activity.h"
#include "event/api_call.h"
#include "event/events.h"
#include "event/incidents.h"
#include "event/level.h"
#include "log/encoder.h"

namespace gpuflight::log_fixture {

using namespace gpuflight::event;

// The block reduction of the seed article on sm_86: 16 KiB of static shared memory limit it.
inline KernelInfo naive_kernel() {
  KernelInfo k;
  k.name = "_Z18block_reduce_naivePKfPfi";
  k.num_regs = 16;
  k.static_shared_bytes = 16384;
  k.local_bytes_per_thread = 0;
  k.max_threads_per_block = 1024;
  k.binary_version = 86;
  k.module_hash = 0x0123456789abcdefull;
  return k;
}

inline KernelConfig naive_config() {
  KernelConfig c;
  c.kernel = KernelId{1};
  c.shape.block = {256, 1, 1};
  c.occupancy = {OccupancySource::kDriver, 5, 8, 48, {6, 16, 16, 5, -1, -1}, limiter_bit(Limiter::kSharedMem),
                 Limiter::kSharedMem, false, 5, -1};
  return c;
}

// Clusters, a carve-out, a model that disagrees, two limiters at once.
inline KernelConfig cluster_config() {
  KernelConfig c = naive_config();
  c.shape.block = {128, 2, 1};
  c.shape.cluster = {2, 1, 1};
  c.shape.carveout = 100;
  c.shape.carveout_from_launch = true;
  c.shape.cooperative = true;
  c.shape.dyn_shared_bytes = 1024;
  c.occupancy = {OccupancySource::kModel, 3, 8, 64, {8, 32, 4, 3, 12, 3},
                 static_cast<LimiterSet>(limiter_bit(Limiter::kSharedMem) | limiter_bit(Limiter::kCluster)),
                 Limiter::kSharedMem, true, 4, 198};
  return c;
}

// Of a launch between two events.
inline EventTime by_events() { return {21'500, 2'400}; }

inline KernelLaunch launch() {
  KernelLaunch l;
  l.seq = Seq(3, 41);
  l.config = ConfigId{7};
  l.grid = {16384, 1, 1};
  l.stream = StreamId{2};
  l.correlation = CorrelationId{9001};
  l.thread = 4242;
  l.launch_ns = 1'234'567'890;
  l.call_ns = 3'210;
  l.status = 0;
  return l;
}

// With everything a launch can say.
inline KernelLaunch timed_launch() {
  KernelLaunch l = launch();
  l.seq = Seq(3, 42);
  l.grid = {2147483647, 65535, 65535};
  l.start_ns = 1'234'567'000;
  l.end_ns = 1'234'600'000;
  l.graph = GraphId{5};
  l.graph_node = 17;
  l.captured = true;
  l.late = true;
  l.status = 719;
  return l;
}

inline StreamInfo stream() {
  StreamInfo s;
  s.seq = Seq(0, 3);
  s.stream = StreamId{2};
  s.context = ContextId{1};
  s.device = 0;
  s.kind = StreamInfo::Kind::kCreated;
  s.handle = 0x7f00deadbeef1234ull;
  s.priority = -5;
  s.flags = 1;
  return s;
}

inline StreamInfo default_stream(StreamInfo::Kind kind, std::uint32_t id, std::uint32_t thread) {
  StreamInfo s;
  s.stream = StreamId{id};
  s.kind = kind;
  s.thread = thread;
  return s;
}

inline GraphLaunch graph_launch() {
  GraphLaunch g;
  g.seq = Seq(3, 43);
  g.graph = GraphId{5};
  g.stream = StreamId{2};
  g.correlation = CorrelationId{9002};
  g.thread = 4242;
  g.launch_ns = 1'234'700'000;
  g.call_ns = 25'000;
  g.status = 0;
  return g;
}

inline GraphInfo graph_info() {
  GraphInfo g;
  g.seq = Seq(0, 30);
  g.contents = ContentsId{3};
  g.nodes[static_cast<std::size_t>(NodeKind::kKernel)] = 40;
  g.nodes[static_cast<std::size_t>(NodeKind::kMemcpy)] = 2;
  g.disabled = 1;
  g.kernels = 1;
  return g;
}

inline GraphKernelInfo graph_kernel() {
  GraphKernelInfo k;
  k.seq = Seq(0, 31);
  k.contents = ContentsId{3};
  k.kernel = {ConfigId{7}, {16384, 1, 1}, 40};
  k.device = 0;
  return k;
}

inline ScopeEvent scope_event() {
  ScopeEvent s;
  s.seq = Seq(4, 1);
  s.phase = ScopeEvent::Phase::kBegin;
  s.thread = 4243;
  s.time_ns = 77;
  return s;
}

inline SessionStart session_start() {
  SessionStart s;
  s.seq = Seq(0, 1);
  s.library_version = "0.1.0";
  s.program = "/opt/app/train \"fast\"";
  s.args = {"--lr", "0,1", "--token", "***"};
  s.args_masked = true;
  s.cwd = "/opt/app";
  s.pid = 1234;
  s.ppid = 1;
  s.process_start_ticks = 987654;
  s.boot_id = "6ea2a1b2-1f0b-4c3a-9d43-0f6d9a3f7c11";
  s.host = "node17";
  s.user = "ada";
  s.t0_unix_ns = 1'753'000'000'123'456'789;
  s.t0_monotonic_ns = 86'400'000'000'000;
  s.t0_rfc3339 = "2025-07-20T08:26:40.123456789Z";
  s.rank = {{"RANK", "3"}, {"WORLD_SIZE", "8"}};
  s.configuration = {{"details", "on"}, {"log", "app.%p.ndjson"}};
  s.driver_version = 13000;
  s.libcuda_path = "/usr/lib/x86_64-linux-gnu/libcuda.so.1";
  s.cupti_version = 130001;
  s.cupti_path = "/usr/local/cuda/lib64/libcupti.so.13";
  s.cupti_reason = "toolkit";
  s.capture = "cupti";
  s.capture_reason = "GPU times are wanted";
  s.flight_path = "/opt/app/app.1234.flight";
  s.mode = "stream";
  return s;
}

inline DeviceInfo device() {
  DeviceInfo d;
  d.device = 0;
  d.name = "NVIDIA RTX A4000";
  d.uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  d.pci_bus_id = "0000:0B:00.0";
  d.compute_major = 8;
  d.compute_minor = 6;
  d.sm_count = 48;
  d.max_threads_per_block = 1024;
  d.max_threads_per_sm = 1536;
  d.max_blocks_per_sm = 16;
  d.regs_per_block = 65536;
  d.regs_per_sm = 65536;
  d.shared_bytes_per_block = 49152;
  d.shared_bytes_per_block_optin = 101376;
  d.shared_bytes_per_sm = 102400;
  d.reserved_shared_bytes_per_block = 1024;
  d.l2_bytes = 4 << 20;
  d.global_bytes = 16'890'000'000;
  d.sm_clock_khz = 1'560'000;
  d.memory_clock_khz = 7'001'000;
  d.memory_bus_bits = 256;
  d.copy_engines = 2;
  d.cooperative_launch = true;
  d.managed_memory = true;
  d.memory_pools = true;
  return d;
}

inline KernelSummary summary() {
  KernelSummary s;
  s.seq = Seq(0, 9);
  s.config = ConfigId{7};
  s.from_ns = 1'000'000'000;
  s.to_ns = 2'000'000'000;
  s.count = 320'000;
  s.failed = 1;
  s.captured = 2;
  s.call_total_ns = 960'000'000;
  s.call_min_ns = 2'100;
  s.call_max_ns = 90'000;
  s.session = true;
  return s;
}

inline Ledger ledger() {
  Ledger l;
  l.lost = {1, 2, 3, 4, 5, 6, 7};
  l.written = 1000;
  l.summarised = 100;
  l.pending = 10;
  l.seen = 1138;
  l.rotated_away = 50;
  l.null_time = 5;
  l.table_full = 2;
  l.occupancy_mismatch = 1;
  return l;
}

inline LossEvent loss() {
  LossEvent e;
  e.seq = Seq(0, 11);
  e.time_ns = 3'000'000'000;
  e.lost = {1, 0, 0, 0, 0, 0, 7};
  e.ledger = ledger();
  return e;
}

inline Notice notice() {
  return {Seq(0, 10), 2'500'000'000, Severity::kWarning, "cupti_slot_taken", "another client holds CUPTI"};
}

inline SessionEnd session_end() {
  SessionEnd e;
  e.seq = Seq(0, 12);
  e.time_ns = 4'000'000'000;
  e.reason = "exit";
  e.ledger = ledger();
  e.bytes_written = 123'456;
  e.recorder_cpu_ns = 5'000'000;
  e.added_ns_per_launch = 61;
  e.launches = 1100;
  e.graph_launches = 20;
  e.captured = 3;
  e.failed = 1;
  e.kernels = 12;
  e.configs = 15;
  e.graph_kernels = 16;
  e.unlaunched = 17;
  return e;
}

inline ApiEvent sync_call() {
  ApiEvent a;
  a.seq = Seq(3, 44);
  a.call = static_cast<std::uint32_t>(ApiCall::kStreamSynchronize);
  a.stream = StreamId{2};
  a.thread = 4242;
  a.time_ns = 1'234'800'000;
  a.call_ns = 700'000;
  a.status = 700;
  return a;
}

inline SuspectLaunch suspect() {
  SuspectLaunch s;
  s.seq = Seq(3, 41);
  s.config = ConfigId{7};
  s.name = "_Z18block_reduce_naivePKfPfi";
  s.grid = {16384, 1, 1};
  s.block = {256, 1, 1};
  s.dyn_shared_bytes = 1024;
  s.launch_ns = 1'234'567'890;
  s.status = 0;
  return s;
}

inline SuspectLaunch suspect_graph() {
  SuspectLaunch s;
  s.seq = Seq(3, 43);
  s.graph = GraphId{5};
  s.launch_ns = 1'234'700'000;
  s.status = 0;
  return s;
}

inline ErrorEvent error_event() {
  ErrorEvent e;
  e.seq = Seq(0, 13);
  e.time_ns = 1'235'500'000;
  e.code = 700;
  e.name = "CUDA_ERROR_ILLEGAL_ADDRESS";
  e.call = "cuStreamSynchronize";
  e.thread = 4242;
  e.context = ContextId{1};
  e.culprit = suspect();
  e.confidence = "oldest_in_flight";
  e.in_flight = {{StreamId{2}, 2, {suspect(), suspect_graph()}, 1'234'000'000}, {StreamId{4}, 9, {}, 0}};
  return e;
}

inline HangEvent hang_event() {
  HangEvent h;
  h.seq = Seq(0, 14);
  h.time_ns = 31'234'567'890;
  h.since_ns = 1'234'567'890;
  h.stream = {StreamId{2}, 2, {suspect(), suspect_graph()}, 0};
  h.blocked = {{4242, "cuStreamSynchronize", 1'234'800'000}};
  return h;
}

inline GraphLaunch timed_graph_launch() {
  GraphLaunch g = graph_launch();
  g.contents = ContentsId{3};
  g.node_events = false;
  g.start_ns = 1'234'740'000;
  g.end_ns = 1'234'990'500;
  return g;
}

// A kernel that a kernel launched.
inline KernelLaunch unlaunched_kernel() {
  KernelLaunch l;
  l.seq = Seq(kGpuSlot, 7);
  l.config = ConfigId{7};
  l.grid = {4, 1, 1};
  l.stream = StreamId{2};
  l.launch_ns = 1'234'568'000;
  l.start_ns = 1'234'568'000;
  l.end_ns = 1'234'570'500;
  l.unlaunched = true;
  return l;
}

inline WorkOrigin origin() {
  WorkOrigin o;
  o.thread = 4242;
  o.launch_ns = 1'234'900'000;
  o.call_ns = 4'100;
  o.status = 0;
  return o;
}

inline MemcpyEvent memcpy_event() {
  MemcpyEvent m;
  m.seq = Seq(3, 45);
  m.kind = CopyKind::kHtoD;
  m.source = MemoryKind::kPinned;
  m.destination = MemoryKind::kDevice;
  m.bytes = 1 << 20;
  m.async = true;
  m.stream = StreamId{2};
  m.correlation = CorrelationId{9003};
  m.origin = origin();
  m.start_ns = 1'234'910'000;
  m.end_ns = 1'234'951'000;
  return m;
}

// Between two devices, a node of a graph.
inline MemcpyEvent peer_copy() {
  MemcpyEvent m = memcpy_event();
  m.seq = Seq(kGpuSlot, 8);
  m.kind = CopyKind::kPtoP;
  m.source = MemoryKind::kDevice;
  m.source_device = 0;
  m.destination_device = 1;
  m.origin.call_ns.reset();
  m.graph = GraphId{5};
  m.graph_node = 18;
  m.late = true;
  return m;
}

inline MemsetEvent memset_event() {
  MemsetEvent m;
  m.seq = Seq(3, 46);
  m.memory = MemoryKind::kDevice;
  m.bytes = 4096;
  m.value = 255;
  m.stream = StreamId{2};
  m.correlation = CorrelationId{9004};
  m.origin = origin();
  m.start_ns = 1'234'960'000;
  m.end_ns = 1'234'961'500;
  return m;
}

inline MemoryEvent allocation() {
  MemoryEvent m;
  m.seq = Seq(3, 47);
  m.kind = AllocationKind::kPool;
  m.call = static_cast<std::uint32_t>(ApiCall::kMemAllocFromPoolAsync);
  m.address = 0x7f12a0000000ull;
  m.bytes = 1 << 20;
  m.device = 0;
  m.context = ContextId{1};
  m.stream = StreamId{2};
  m.pool = 0x5581aa00ull;
  m.total_bytes = 3 << 20;
  m.peak_bytes = 5 << 20;
  m.thread = 4242;
  m.time_ns = 1'235'000'000;
  m.call_ns = 9'000;
  m.status = 0;
  return m;
}

inline StreamEdge edge() {
  StreamEdge e;
  e.seq = Seq(3, 49);
  e.event = 0x5581bb10ull;
  e.stream = StreamId{2};
  e.thread = 4242;
  e.time_ns = 1'235'100'000;
  e.call_ns = 600;
  e.status = 0;
  return e;
}

inline KernelTime kernel_time() {
  KernelTime t;
  t.seq = Seq(0, 20);
  t.event = Seq(3, 41);
  t.config = ConfigId{7};
  t.stream = StreamId{2};
  t.launch_ns = 1'234'567'890;
  t.start_ns = 1'234'570'000;
  t.end_ns = 61'234'570'000;
  return t;
}

inline KernelPending kernel_pending() {
  KernelPending p;
  p.seq = Seq(0, 21);
  p.event = Seq(3, 41);
  p.config = ConfigId{7};
  p.stream = StreamId{2};
  p.launch_ns = 1'234'567'890;
  p.time_ns = 6'300'000'000;
  p.behind = 12;
  return p;
}

inline LevelEvent level_event() {
  LevelEvent l;
  l.seq = Seq(0, 18);
  l.time_ns = 5'000'000'000;
  l.from = RecordLevel::kEvents;
  l.to = RecordLevel::kSampled;
  l.budget_percent = 0.5;
  l.app_percent = 2.4;
  l.recorder_percent = 0.1;
  l.floor_percent = 1.25;
  return l;
}

inline ClockEvent clock_event() {
  ClockEvent c;
  c.seq = Seq(0, 22);
  c.time_ns = 60'000'000'000;
  c.monotonic_ns = 86'460'000'000'000;
  c.unix_ns = 1'753'000'060'123'456'789;
  c.gpu_ns = 1'753'000'060'123'456'012;
  c.error_ns = 84;
  c.drift_ns = -3;
  return c;
}

inline ExitEvent exit_event() {
  ExitEvent e;
  e.seq = Seq(0, 16);
  e.time_ns = 31'300'000'000;
  e.pid = 4711;
  e.signal = 9;
  e.signal_name = "SIGKILL";
  e.oom_kill = true;
  e.signal_from = "run";
  return e;
}

// What the GPU did beside kernels, and about its times: known and not known.
inline void append_activity(log::Buffer& out, const log::RenderedStream& on, const log::RenderedConfig& config,
                            std::string_view scope) {
  using namespace gpuflight::log;
  append_memcpy_event(out, on, scope, memcpy_event());
  append_memcpy_event(out, on, {}, peer_copy());
  append_memcpy_event(out, RenderedStream(), {}, MemcpyEvent{});
  append_memset_event(out, on, scope, memset_event());
  append_memset_event(out, RenderedStream(), {}, MemsetEvent{});
  append_memory_event(out, scope, allocation());
  MemoryEvent unseen;  // the free of what was allocated before the recording began
  unseen.operation = MemoryEvent::Operation::kFree;
  unseen.kind = AllocationKind::kPinned;
  unseen.call = static_cast<std::uint32_t>(ApiCall::kMemFreeHost);
  unseen.late = true;
  append_memory_event(out, {}, unseen);
  append_stream_edge(out, scope, edge());
  StreamEdge wait;
  wait.operation = StreamEdge::Operation::kWait;
  wait.captured = true;
  wait.late = true;
  append_stream_edge(out, {}, wait);
  append_kernel_time(out, config, on, kernel_time());
  append_kernel_time(out, render_unknown_config(true), RenderedStream(), KernelTime{});
  KernelTime measured = kernel_time();
  measured.start_ns.reset();
  measured.end_ns.reset();
  measured.by_events = by_events();
  append_kernel_time(out, config, on, measured);
  append_kernel_pending(out, config, on, kernel_pending());
  append_clock_event(out, clock_event());
  append_clock_event(out, ClockEvent{});
}

// One line at least of every type, kernel_event in all its forms.
inline void append_all(log::Buffer& out) {
  using namespace gpuflight::log;
  Buffer scope;
  append_json_string(scope, "step/\"forward\"");
  RenderedStream on = render_stream(stream());
  append_session_start(out, session_start(), 1);
  append_session_start(out, SessionStart{}, 2);  // nothing known
  append_device_info(out, device(), Seq(0, 2));
  append_device_info(out, DeviceInfo{}, Seq(0, 2));
  append_stream_info(out, stream());
  append_stream_info(out, default_stream(StreamInfo::Kind::kLegacyDefault, 1, 0));
  append_stream_info(out, default_stream(StreamInfo::Kind::kPerThreadDefault, 4, 9));
  RenderedConfig naive = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  append_kernel_event(out, naive, on, {}, launch());
  append_kernel_event(out, naive, on, scope.view(), timed_launch());
  RenderedConfig cluster = render_config(naive_kernel(), cluster_config(), ConfigId{8}, true, 132);
  append_kernel_event(out, cluster, on, scope.view(), launch());
  RenderedConfig bare = render_config(naive_kernel(), naive_config(), ConfigId{7}, false, 48);
  append_kernel_event(out, bare, on, {}, launch());
  RenderedConfig unknown = render_unknown_config(true), unknown_bare = render_unknown_config(false);
  KernelLaunch nothing;  // the call never came back
  append_kernel_event(out, unknown, RenderedStream(), {}, nothing);
  append_kernel_event(out, unknown_bare, RenderedStream(), {}, nothing);
  append_graph_launch_event(out, on, scope.view(), graph_launch());
  append_graph_launch_event(out, RenderedStream(), {}, GraphLaunch{});
  append_graph_launch_event(out, on, {}, timed_graph_launch());
  append_graph_info(out, graph_info());
  append_graph_kernel(out, naive, graph_kernel());
  append_graph_kernel(out, bare, graph_kernel());
  append_graph_kernel(out, unknown, {Seq(0, 32), ContentsId{3}, {{}, {1, 2, 3}, 1}, -1});
  append_kernel_event(out, naive, on, {}, unlaunched_kernel());
  KernelLaunch measured = launch();
  measured.seq = Seq(3, 45);
  measured.correlation = {};
  measured.by_events = by_events();
  append_kernel_event(out, naive, on, {}, measured);
  measured.by_events.error_ns.reset();
  append_kernel_event(out, naive, on, {}, measured);
  KernelLaunch shared = launch();
  shared.seq = Seq(3, 46);
  shared.correlation = {};
  shared.call_ns.reset();
  shared.between = true;
  append_kernel_event(out, naive, on, {}, shared);
  shared.launch_error_ns = 12'400;
  append_kernel_event(out, naive, on, {}, shared);
  for (const auto phase : {ScopeEvent::Phase::kBegin, ScopeEvent::Phase::kEnd, ScopeEvent::Phase::kMark}) {
    ScopeEvent event = scope_event();
    event.phase = phase;
    append_scope_event(out, scope.view(), event);
  }
  ScopeEvent range = scope_event();
  range.range = 7;
  append_scope_event(out, scope.view(), range);
  append_kernel_summary(out, naive, summary());
  append_kernel_summary(out, bare, summary());
  append_kernel_summary(out, unknown, KernelSummary{});
  append_api_event(out, scope.view(), sync_call());
  ApiEvent copy;  // never came back
  copy.call = static_cast<std::uint32_t>(ApiCall::kMemcpyHtoD);
  copy.thread = 4242;
  copy.late = true;
  append_api_event(out, {}, copy);
  append_error_event(out, error_event());
  append_error_event(out, ErrorEvent{});
  append_hang_event(out, hang_event());
  HangEvent over = hang_event();
  over.phase = HangEvent::Phase::kEnd;
  over.stream.launches.clear();
  over.blocked.clear();
  append_hang_event(out, over);
  append_fork_event(out, {Seq(0, 15), 1'000, 4711});
  append_exit_event(out, exit_event());
  ExitEvent exited;
  exited.seq = Seq(0, 17);
  exited.pid = 4711;
  exited.exit_code = 3;
  append_exit_event(out, exited);
  append_level_event(out, level_event());
  append_activity(out, on, naive, scope.view());
  append_notice_event(out, notice());
  append_loss_event(out, loss());
  append_session_end(out, session_end());
  append_session_end(out, SessionEnd{});
  SessionEnd counted = session_end();
  counted.event_times = {2000, 50, 125'000};
  append_session_end(out, counted);
}

}  // namespace gpuflight::log_fixture
