#include "capture/graph_walk.h"

#include "capture/driver_call_reader.h"

namespace gpuflight::capture {
namespace {

constexpr int kDeepest = 32;

// Younger than the oldest headers that this is built with.
constexpr unsigned kDeviceUpdatableAttribute = 13, kCarveoutAttribute = 14;
constexpr int kConditionalNode = 13;

event::NodeKind kind_of(CUgraphNodeType type) {
  using event::NodeKind;
  switch (static_cast<int>(type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return NodeKind::kKernel;
    case CU_GRAPH_NODE_TYPE_MEMCPY: return NodeKind::kMemcpy;
    case CU_GRAPH_NODE_TYPE_MEMSET: return NodeKind::kMemset;
    case CU_GRAPH_NODE_TYPE_HOST: return NodeKind::kHost;
    case CU_GRAPH_NODE_TYPE_GRAPH: return NodeKind::kGraph;
    case CU_GRAPH_NODE_TYPE_EMPTY: return NodeKind::kEmpty;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return NodeKind::kEvent;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return NodeKind::kSemaphore;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return NodeKind::kAlloc;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return NodeKind::kFree;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return NodeKind::kMemOp;
    case kConditionalNode: return NodeKind::kConditional;
    default: return NodeKind::kOther;
  }
}

}  // namespace

std::size_t GraphWalk::Hash::operator()(const Key& key) const noexcept {
  std::size_t h = reinterpret_cast<std::size_t>(key.function) >> 4;
  for (const std::uint32_t part : {key.shape.block.x, key.shape.block.y, key.shape.block.z, key.shape.dyn_shared_bytes,
                                   key.shape.cluster.x}) {
    h = (h ^ part) * 0x9E3779B97F4A7C15ull;
  }
  return h;
}

GraphWalk::Status GraphWalk::walk(CUgraph graph, GraphNodes& out) {
  if (driver_.graph_get_nodes == nullptr || driver_.graph_node_get_type == nullptr) return Status::kUnknown;
  const Status status = add_graph(graph, GraphNodes::kNone, 0, out);
  return status == Status::kOk && device_updated_ ? Status::kDeviceUpdated : status;
}

GraphWalk::Status GraphWalk::add_graph(CUgraph graph, std::uint32_t parent, int depth, GraphNodes& out) {
  if (depth > kDeepest) return Status::kTooLarge;
  std::size_t count = 0;
  if (driver_.graph_get_nodes(graph, nullptr, &count) != CUDA_SUCCESS) return Status::kUnknown;
  if (count > kMostNodes || out.size() + count > kMostNodes) return Status::kTooLarge;
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && driver_.graph_get_nodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return Status::kUnknown;
  if (count < nodes.size()) nodes.resize(count);
  for (const CUgraphNode node : nodes) {
    const Status status = add_node(node, parent, depth, out);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

GraphWalk::Status GraphWalk::add_node(CUgraphNode node, std::uint32_t parent, int depth, GraphNodes& out) {
  CUgraphNodeType type{};
  if (driver_.graph_node_get_type(node, &type) != CUDA_SUCCESS) return Status::kUnknown;
  const event::NodeKind kind = kind_of(type);
  if (kind == event::NodeKind::kKernel) {
    KernelParams params;
    GraphKernelShape kernel;
    if (!params_of(node, params) || !resolve(node, params, kernel)) return Status::kUnknown;
    out.add_kernel(node, parent, kernel);
    return Status::kOk;
  }
  const std::uint32_t place = out.add(node, parent, kind);
  if (kind != event::NodeKind::kGraph) return Status::kOk;
  CUgraph child = nullptr;
  if (driver_.graph_child_get_graph == nullptr || driver_.graph_child_get_graph(node, &child) != CUDA_SUCCESS) {
    return Status::kUnknown;
  }
  return add_graph(child, place, depth + 1, out);
}

bool GraphWalk::params_of(CUgraphNode node, KernelParams& params) const {
  const auto take = [&params](const auto& p) {
    params.function = p.func;
    params.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
    params.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
    params.shared_bytes = p.sharedMemBytes;
  };
  if (driver_.graph_kernel_get_params_v2 != nullptr) {
    CUDA_KERNEL_NODE_PARAMS_v2 p{};
    if (driver_.graph_kernel_get_params_v2(node, &p) != CUDA_SUCCESS) return false;
    take(p);
    params.kernel = p.kern;
    params.context = p.ctx;
    return true;
  }
  CUDA_KERNEL_NODE_PARAMS_v1 p{};
  if (driver_.graph_kernel_get_params == nullptr || driver_.graph_kernel_get_params(node, &p) != CUDA_SUCCESS) {
    return false;
  }
  take(p);
  return true;
}

bool GraphWalk::attribute(CUgraphNode node, unsigned which, CUlaunchAttributeValue& value) const {
  value = {};
  const std::uint32_t bit = 1u << which;
  const bool refused = (refused_.load(std::memory_order_relaxed) & bit) != 0;
  if (refused || driver_.graph_kernel_get_attribute == nullptr) return false;
  const CUresult result = driver_.graph_kernel_get_attribute(node, static_cast<CUlaunchAttributeID>(which), &value);
  if (result == CUDA_SUCCESS) return true;
  // That the driver does not know it will not change; another error may be of the moment.
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) {
    refused_.fetch_or(bit, std::memory_order_relaxed);
  }
  return false;
}

bool GraphWalk::resolve(CUgraphNode node, const KernelParams& params, GraphKernelShape& out) {
  LaunchCall call;
  call.function = params.function != nullptr ? static_cast<const void*>(params.function) : params.kernel;
  if (call.function == nullptr) return false;
  call.shape.block = params.block;
  call.shape.dyn_shared_bytes = params.shared_bytes;
  CUlaunchAttributeValue value;
  if (attribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value)) {
    // A cluster of one block is none.
    const event::Dim3 cluster{value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
    if (cluster.count() > 1) call.shape.cluster = cluster;
  }
  if (attribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)) call.shape.cooperative = value.cooperative != 0;
  if (attribute(node, kCarveoutAttribute, value)) {
    // 0 is also what a node answers that was given none.
    unsigned carveout = 0;
    static_assert(sizeof carveout <= sizeof value);
    __builtin_memcpy(&carveout, &value, sizeof carveout);
    if (carveout > 0 && carveout <= 100) {
      call.shape.carveout = static_cast<std::int32_t>(carveout);
      call.shape.carveout_from_launch = true;
    }
  }
  if (attribute(node, kDeviceUpdatableAttribute, value)) {
    int updatable = 0;
    __builtin_memcpy(&updatable, &value, sizeof updatable);
    device_updated_ = device_updated_ || updatable != 0;
  }
  const bool other = params.context != nullptr && params.context != current_;
  const CUcontext context = other ? params.context : current_;
  out.grid = params.grid;
  const auto [known, fresh] = configs_.try_emplace(Key{call.function, context, call.shape});
  if (fresh) {
    call.context = context;
    call.context_uid = other ? contexts_.uid_of(context) : current_uid_;
    known->second = resolver_.resolve(call, device_of_(source_, context)).config;
  }
  out.config = known->second;
  return true;
}

}  // namespace gpuflight::capture
