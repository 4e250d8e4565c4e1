// What happens to work that is handed to a stream: checks, faults on demand, capture into a graph, or a place on the
// virtual timeline. On the way of a plain launch stand atomics only.
#include "sim/cuda/trace.h"

namespace gpuflight::sim {
namespace {

std::uint64_t volume(const std::uint32_t (&dim)[3]) { return std::uint64_t{dim[0]} * dim[1] * dim[2]; }

CUresult check_cluster(const KernelLaunch& launch) {
  const std::uint64_t size = volume(launch.cluster);
  if (size == 0) return CUDA_SUCCESS;
  if (!sim_config().board.cluster_launch) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const std::uint64_t largest = launch.state->non_portable_cluster.load(std::memory_order_relaxed) != 0 ? 16 : 8;
  if (size > largest) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] % launch.cluster[i] != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult check_launch(const KernelLaunch& launch) {
  const event::DeviceInfo& board = sim_config().board;
  const KernelImage& image = launch.state->image;
  if (volume(launch.grid) == 0 || launch.grid[1] > 65535 || launch.grid[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t threads = volume(launch.block);
  if (threads == 0 || threads > static_cast<std::uint64_t>(board.max_threads_per_block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > static_cast<std::uint64_t>(image.max_threads)) return CUDA_ERROR_INVALID_VALUE;
  if (threads * static_cast<std::uint64_t>(image.registers) > static_cast<std::uint64_t>(board.regs_per_block)) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  const int max_dynamic = launch.state->max_dynamic_shared_bytes.load(std::memory_order_relaxed);
  if (launch.dynamic_shared_bytes > static_cast<std::uint32_t>(max_dynamic)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_cluster(launch)) return error;
  if (launch.cooperative) {
    const int blocks = occupancy_blocks(*launch.state, static_cast<int>(threads), launch.dynamic_shared_bytes,
                                        launch.state->carveout.load(std::memory_order_relaxed));
    const std::int64_t room = std::int64_t{std::max(blocks, 0)} * board.sm_count;
    if (static_cast<std::int64_t>(volume(launch.grid)) > room) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

// The N-th launch fails or kills its context, where somebody asked for it.
CUresult faults_of_launch(int* sticky) {
  const SimConfig& config = sim_config();
  if (config.launch_errors.empty() && config.sticky.nth == 0) return CUDA_SUCCESS;
  const std::uint64_t number = driver().launches.fetch_add(1, std::memory_order_relaxed) + 1;
  for (const NthFault& fault : config.launch_errors) {
    if (fault.nth == number) return static_cast<CUresult>(fault.code);
  }
  if (config.sticky.nth == number) *sticky = config.sticky.code;
  return CUDA_SUCCESS;
}

void kill_context(Context& context, int error, std::int64_t at_ns) {
  int none = 0;
  if (context.error->pending.load(std::memory_order_acquire) != 0) return;  // the first one counts
  context.error->at_ns.store(at_ns, std::memory_order_relaxed);
  context.error->pending.compare_exchange_strong(none, error, std::memory_order_release);
}

CUresult capture_node(Stream& stream, GraphNode node) {
  // The stream keeps the capture alive until EndCapture; ending a capture while launching into it is the host's race.
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (capture->invalidated.load(std::memory_order_relaxed)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode* stored = nullptr;
  {
    const std::lock_guard lock(capture->mutex);
    node.dependencies = capture->tails[&stream];
    stored = add_graph_node(*capture->graph, std::move(node));
    if (stored == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    capture->tails[&stream] = {stored};
  }
  return CUDA_SUCCESS;
}

std::int64_t duration_of(const KernelLaunch& launch) {
  const KernelImage& image = launch.state->image;
  if (image.duration_ns >= kForeverNs) return kForeverNs;
  return image.duration_ns + image.block_ns * static_cast<std::int64_t>(volume(launch.grid));
}

}  // namespace

std::int64_t occupy_timeline(Stream& stream, std::int64_t duration_ns, std::int64_t not_before_ns) {
  Context& context = *stream.context;
  std::int64_t earliest = std::max(now_ns(), not_before_ns);
  // The legacy default stream and all blocking streams wait for each other.
  if (stream.legacy) {
    earliest = std::max(earliest, context.blocking_end_ns.load(std::memory_order_relaxed));
  } else if (stream.blocking()) {
    earliest = std::max(earliest, context.legacy_end_ns.load(std::memory_order_relaxed));
  }
  std::int64_t end = stream.end_ns.load(std::memory_order_relaxed);
  std::int64_t start = 0, next = 0;
  do {
    start = std::max(earliest, end);
    next = std::min(start, kForeverNs) + duration_ns;
  } while (!stream.end_ns.compare_exchange_weak(end, next, std::memory_order_relaxed));
  if (stream.legacy) {
    raise_to(context.legacy_end_ns, next);
  } else if (stream.blocking()) {
    raise_to(context.blocking_end_ns, next);
  }
  return start;
}

namespace {

struct Placement {
  const Stream& stream;
  std::uint32_t correlation = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint64_t node_id = 0;
  std::uint32_t graph_id = 0;
};

template <class Work>
Work execution_at(const Placement& place) {
  const Context& context = *place.stream.context;
  Work e;
  e.device = static_cast<std::uint32_t>(context.device);
  e.context_uid = context.uid;
  e.stream_id = place.stream.id;
  e.correlation = place.correlation;
  e.start_ns = place.start_ns;
  e.end_ns = place.end_ns;
  e.graph_node_id = place.node_id;
  e.graph_id = place.graph_id;
  e.context_error = &context.error->shown;
  return e;
}

void report_kernel(const Placement& place, const KernelLaunch& launch) {
  const auto on_kernel = hooks().on_kernel.load(std::memory_order_acquire);
  if (on_kernel == nullptr) return;
  auto e = execution_at<KernelExecution>(place);
  e.name = launch.state->name;
  for (int i = 0; i < 3; ++i) {
    e.grid[i] = launch.grid[i];
    e.block[i] = launch.block[i];
    e.cluster[i] = launch.cluster[i];
  }
  e.registers = launch.state->image.registers;
  e.static_shared_bytes = launch.state->image.static_shared_bytes;
  e.dynamic_shared_bytes = static_cast<std::int32_t>(launch.dynamic_shared_bytes);
  e.local_bytes = launch.state->image.local_bytes;
  e.carveout = launch.carveout >= 0 ? launch.carveout : launch.state->carveout.load(std::memory_order_relaxed);
  e.cooperative = launch.cooperative;
  on_kernel(e);
}

void report_copy(const Placement& place, const Transfer& transfer) {
  const auto on_copy = hooks().on_copy.load(std::memory_order_acquire);
  if (on_copy == nullptr) return;
  auto e = execution_at<CopyExecution>(place);
  e.kind = transfer.kind;
  e.source = transfer.source;
  e.destination = transfer.destination;
  e.bytes = transfer.bytes;
  e.async = transfer.async;
  e.source_device = transfer.source_device;
  e.destination_device = transfer.destination_device;
  on_copy(e);
}

void report_fill(const Placement& place, const Transfer& transfer) {
  const auto on_fill = hooks().on_fill.load(std::memory_order_acquire);
  if (on_fill == nullptr) return;
  auto e = execution_at<FillExecution>(place);
  e.memory = transfer.destination;
  e.bytes = transfer.bytes;
  e.value = transfer.value;
  e.async = transfer.async;
  on_fill(e);
}

void report_work(const Placement& place, CUgraphNodeType type, const KernelLaunch& launch, const Transfer& transfer) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: report_kernel(place, launch); return;
    case CU_GRAPH_NODE_TYPE_MEMCPY: report_copy(place, transfer); return;
    case CU_GRAPH_NODE_TYPE_MEMSET: report_fill(place, transfer); return;
    default: return;
  }
}

}  // namespace

CUresult run_launch(Context& context, Stream& stream, const KernelLaunch& launch, std::uint32_t correlation,
                    CUfunction func) {
  int sticky = launch.state->image.fault;
  if (const CUresult error = faults_of_launch(&sticky)) return error;
  if (const CUresult error = check_launch(launch)) return error;
  if (stream.capturing.load(std::memory_order_acquire)) [[unlikely]] {
    GraphNode node;
    node.type = CU_GRAPH_NODE_TYPE_KERNEL;
    node.launch = launch;
    node.keep_alive = share_kernel_state(func);
    if (driver().kernels.find(func) != nullptr) {
      node.kern = reinterpret_cast<CUkernel>(func);
    } else {
      node.func = func;
    }
    return capture_node(stream, std::move(node));
  }
  if (const CUresult error = check_implicit_dependency(stream, true)) return error;
  const std::int64_t duration = duration_of(launch);
  const std::int64_t start = occupy_timeline(stream, duration, 0);
  const std::int64_t end = std::min(start, kForeverNs) + duration;
  report_kernel({stream, correlation, start, end}, launch);
  if (sticky != 0) kill_context(context, sticky, end);
  return CUDA_SUCCESS;
}

CUresult run_work(Stream& stream, CUgraphNodeType type, std::int64_t duration_ns, const Transfer& transfer,
                  std::uint32_t correlation) {
  if (stream.capturing.load(std::memory_order_acquire)) {
    GraphNode node;
    node.type = type;
    node.transfer = transfer;
    node.duration_ns = duration_ns;
    return capture_node(stream, std::move(node));
  }
  if (const CUresult error = check_implicit_dependency(stream, true)) return error;
  const std::int64_t start = occupy_timeline(stream, duration_ns, 0);
  report_work({stream, correlation, start, start + duration_ns}, type, {}, transfer);
  return CUDA_SUCCESS;
}

CUresult run_graph(Context& context, Stream& stream, GraphExec& exec, std::uint32_t correlation) {
  int sticky = 0;
  if (const CUresult error = faults_of_launch(&sticky)) return error;
  const std::lock_guard lock(exec.mutex);
  const auto duration = [](const ExecNode& node) {
    if (!node.enabled) return std::int64_t{0};
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL ? duration_of(node.launch) : node.duration_ns;
  };
  // Nodes without a path between them overlap; the whole graph is one piece of the stream's work.
  std::vector<std::int64_t> end(exec.nodes.size(), 0);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < exec.nodes.size(); ++i) {
    const ExecNode& node = exec.nodes[i];
    for (const std::size_t d : node.dependencies) end[i] = std::max(end[i], end[d]);
    end[i] = std::min(end[i] + duration(node), kForeverNs);
    total = std::max(total, end[i]);
  }
  const std::int64_t start = occupy_timeline(stream, total, 0);
  const auto on_graph = hooks().on_graph.load(std::memory_order_acquire);
  if (on_graph != nullptr) {
    on_graph(execution_at<GraphExecution>({stream, correlation, start, start + total, 0, exec.id}));
  }
  for (std::size_t i = 0; i < exec.nodes.size(); ++i) {
    const ExecNode& node = exec.nodes[i];
    if (!node.enabled) continue;
    const std::int64_t until = start + end[i];
    if (on_graph == nullptr) {
      report_work({stream, correlation, until - duration(node), until, node.id, exec.id}, node.type, node.launch,
                  node.transfer);
    }
    const bool faulty = node.type == CU_GRAPH_NODE_TYPE_KERNEL && node.launch.state->image.fault != 0;
    if (faulty) kill_context(context, node.launch.state->image.fault, until);
  }
  if (sticky != 0) kill_context(context, sticky, start + total);
  return CUDA_SUCCESS;
}

}  // namespace gpuflight::sim
