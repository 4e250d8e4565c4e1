// One step of 100 us (times in us since its start; stream 1 computes, stream 2 copies and computes):
//
//   stream 2   0..30  htod pinned > device, async, 1 MiB          (correlation 1)
//   stream 1  20..60  reduce_0                                    (2)
//   stream 2  50..70  reduce_1                                    (3)
//   stream 1  60..62  fill of 4 KiB of device memory              (4)
//   stream 2  80..90  dtoh device > pageable, 512 KiB             (5)
//   host      72..78  cuCtxSynchronize; allocations, edges and scopes around
//   stream 1  92..94, 94..96  two nodes of graph 5, launched by (6): in each tenth step only
//
// So of each step 80 us are busy, kernels 50, copies and fills 42, a kernel and a copy
// at once 12 (20..30, 60..62), two kernels at once 10 (50..60); the tenth has 4 more of kernels.
#include "cli_timeline.h"

#include "event/activity.h"
#include "log/encoder.h"

namespace gpuflight::cli_test {
namespace {

constexpr std::uint32_t kThread = 99;
constexpr std::int64_t kUs = 1000;

event::KernelInfo kernel_of(int index) {
  event::KernelInfo kernel;
  kernel.name = index == 0 ? "_Z8reduce_0PKfPfi" : index == 1 ? "_Z8reduce_1PKfPfi" : "_Z4nodePf";
  kernel.num_regs = 16;
  kernel.static_shared_bytes = 0;
  kernel.local_bytes_per_thread = 0;
  return kernel;
}

event::KernelConfig config_of(int index) {
  event::KernelConfig config;
  config.kernel = event::KernelId(static_cast<std::uint32_t>(index) + 1);
  config.shape.block = {256, 1, 1};
  event::Occupancy& o = config.occupancy;
  o.source = event::OccupancySource::kDriver;
  o.max_active_blocks = index == 0 ? 3 : 6;
  o.warps_per_block = 8;
  o.max_warps_per_sm = 48;
  o.limit_blocks = {6, 16, index == 0 ? 3 : 16, 50, -1, -1};
  o.limiter = index == 0 ? event::Limiter::kRegisters : event::Limiter::kWarps;
  o.limiters = event::limiter_bit(o.limiter);
  return config;
}

class Step {
 public:
  Step(log::Buffer& out, std::uint64_t step) : out_(out), base_(static_cast<std::int64_t>(step) * kStepNs), step_(step) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      event::StreamInfo info;
      info.stream = event::StreamId(i + 1);
      info.context = event::ContextId(1);
      info.device = 0;
      streams_[i] = log::render_stream(info);
    }
    for (int i = 0; i < 3; ++i) {
      configs_[i] = log::render_config(kernel_of(i), config_of(i), config_id(i), true, 84);
    }
  }

  void write() {
    scope(event::ScopeEvent::Phase::kBegin, "step", 0);
    memory(event::MemoryEvent::Operation::kAlloc, 0);
    copy(event::CopyKind::kHtoD, event::MemoryKind::kPinned, event::MemoryKind::kDevice, 1 << 20, true, 1, 0, 30);
    edge(event::StreamEdge::Operation::kRecord, 2, 1);
    edge(event::StreamEdge::Operation::kWait, 1, 2);
    scope(event::ScopeEvent::Phase::kBegin, "step/forward", 3);
    kernel(0, 1, 2, 4, 20, 60);
    kernel(1, 2, 3, 6, 50, 70);
    fill(4, 8, 60, 62);
    scope(event::ScopeEvent::Phase::kEnd, "step/forward", 10);
    if (step_ % 10 == 9) graph();
    sync(72, 6);
    copy(event::CopyKind::kDtoH, event::MemoryKind::kDevice, event::MemoryKind::kPageable, 512 << 10, false, 5, 80, 90);
    memory(event::MemoryEvent::Operation::kFree, 97);
    scope(event::ScopeEvent::Phase::kEnd, "step", 98);
  }
  std::uint64_t lines() const { return counter_; }

 private:
  static event::ConfigId config_id(int index) { return event::ConfigId(static_cast<std::uint32_t>(index) + 1); }
  std::int64_t at(std::int64_t us) const { return base_ + us * kUs; }
  event::Seq next_seq() { return event::Seq(1, step_ * 64 + counter_++); }
  event::CorrelationId correlation(std::uint32_t call) const {
    return event::CorrelationId(static_cast<std::uint32_t>(step_) * 8 + call);
  }
  event::WorkOrigin origin(std::int64_t us) const {
    event::WorkOrigin o;
    o.thread = kThread;
    o.launch_ns = at(us);
    o.call_ns = kUs;
    o.status = 0;
    return o;
  }

  void scope(event::ScopeEvent::Phase phase, const char* path, std::int64_t us) {
    event::ScopeEvent event;
    event.seq = next_seq();
    event.phase = phase;
    event.thread = kThread;
    event.time_ns = at(us);
    log::append_scope_event(out_, std::string("\"") + path + "\"", event);
  }
  void kernel(int index, std::uint32_t stream, std::uint32_t call, std::int64_t us, std::int64_t start,
              std::int64_t end) {
    event::KernelLaunch launch;
    launch.seq = next_seq();
    launch.config = config_id(index);
    launch.grid = {16384, 1, 1};
    launch.stream = event::StreamId(stream);
    launch.correlation = correlation(call);
    launch.thread = kThread;
    launch.launch_ns = at(us);
    launch.call_ns = kUs;
    launch.status = 0;
    launch.start_ns = at(start);
    launch.end_ns = at(end);
    log::append_kernel_event(out_, configs_[index], streams_[stream - 1], "\"step/forward\"", launch);
  }
  void graph() {
    event::GraphLaunch launch;
    launch.seq = next_seq();
    launch.graph = event::GraphId(5);
    launch.stream = event::StreamId(1);
    launch.correlation = correlation(6);
    launch.thread = kThread;
    launch.launch_ns = at(11);
    launch.call_ns = 5 * kUs;
    launch.status = 0;
    log::append_graph_launch_event(out_, streams_[0], "\"step\"", launch);
    for (std::uint64_t node = 0; node < 2; ++node) {
      event::KernelLaunch kernel;
      kernel.seq = event::Seq(event::kGpuSlot, step_ * 2 + node);
      ++counter_;
      kernel.config = config_id(2);
      kernel.grid = {16, 1, 1};
      kernel.stream = event::StreamId(1);
      kernel.correlation = correlation(6);
      kernel.thread = kThread;
      kernel.launch_ns = at(11);
      kernel.status = 0;
      kernel.start_ns = at(92 + 2 * static_cast<std::int64_t>(node));
      kernel.end_ns = *kernel.start_ns + 2 * kUs;
      kernel.graph = event::GraphId(5);
      kernel.graph_node = 17 + node;
      log::append_kernel_event(out_, configs_[2], streams_[0], "\"step\"", kernel);
    }
  }
  void copy(event::CopyKind kind, event::MemoryKind from, event::MemoryKind to, std::uint64_t bytes, bool async,
            std::uint32_t call, std::int64_t start, std::int64_t end) {
    event::MemcpyEvent copy;
    copy.seq = next_seq();
    copy.kind = kind;
    copy.source = from;
    copy.destination = to;
    copy.bytes = bytes;
    copy.async = async;
    copy.stream = event::StreamId(2);
    copy.correlation = correlation(call);
    copy.origin = origin(async ? start : start - 1);
    if (!async) copy.origin.call_ns = (end - start + 2) * kUs;
    copy.start_ns = at(start);
    copy.end_ns = at(end);
    log::append_memcpy_event(out_, streams_[1], "\"step\"", copy);
  }
  void fill(std::uint32_t call, std::int64_t us, std::int64_t start, std::int64_t end) {
    event::MemsetEvent fill;
    fill.seq = next_seq();
    fill.memory = event::MemoryKind::kDevice;
    fill.bytes = 4096;
    fill.async = true;
    fill.stream = event::StreamId(1);
    fill.correlation = correlation(call);
    fill.origin = origin(us);
    fill.start_ns = at(start);
    fill.end_ns = at(end);
    log::append_memset_event(out_, streams_[0], "\"step/forward\"", fill);
  }
  void memory(event::MemoryEvent::Operation operation, std::int64_t us) {
    const bool alloc = operation == event::MemoryEvent::Operation::kAlloc;
    event::MemoryEvent memory;
    memory.seq = next_seq();
    memory.operation = operation;
    memory.kind = event::AllocationKind::kDevice;
    memory.call = static_cast<std::uint32_t>(alloc ? event::ApiCall::kMemAlloc : event::ApiCall::kMemFree);
    memory.address = 0x7f0000000000ull;
    memory.bytes = 1 << 20;
    memory.device = 0;
    memory.context = event::ContextId(1);
    memory.total_bytes = alloc ? 3 << 20 : 2 << 20;
    memory.peak_bytes = 3 << 20;
    memory.thread = kThread;
    memory.time_ns = at(us);
    memory.call_ns = alloc ? 500 : 900;
    memory.status = 0;
    log::append_memory_event(out_, "\"step\"", memory);
  }
  void edge(event::StreamEdge::Operation operation, std::uint32_t stream, std::int64_t us) {
    event::StreamEdge edge;
    edge.seq = next_seq();
    edge.operation = operation;
    edge.event = 0x5581bb10;
    edge.stream = event::StreamId(stream);
    edge.thread = kThread;
    edge.time_ns = at(us);
    edge.call_ns = 300;
    edge.status = 0;
    log::append_stream_edge(out_, "\"step\"", edge);
  }
  void sync(std::int64_t us, std::int64_t for_us) {
    event::ApiEvent call;
    call.seq = next_seq();
    call.call = static_cast<std::uint32_t>(event::ApiCall::kCtxSynchronize);
    call.thread = kThread;
    call.time_ns = at(us);
    call.call_ns = for_us * kUs;
    call.status = 0;
    log::append_api_event(out_, "\"step\"", call);
  }

  log::Buffer& out_;
  const std::int64_t base_;
  const std::uint64_t step_;
  std::uint64_t counter_ = 0;
  log::RenderedStream streams_[2];
  log::RenderedConfig configs_[3];
};

}  // namespace

std::uint64_t append_step(log::Buffer& out, std::uint64_t step) {
  Step one(out, step);
  one.write();
  return one.lines();
}

}  // namespace gpuflight::cli_test
