#include "capture/graph_call_reader.h"

#include <algorithm>

#include "capture/driver_call_reader.h"
#include "capture/miss_guard.h"
#include "capture/young_callbacks.h"

namespace gpuflight::capture {
namespace {

constexpr CUpti_CallbackId kIds[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate_v2,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecChildGraphNodeSetParams,
    CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled,
    kGraphExecNodeSetParams,
};

// What the arguments of all forms begin with.
struct InstantiateParams {
  CUgraphExec* exec;
  CUgraph graph;
};
struct UpdateParams {
  CUgraphExec exec;
  CUgraph graph;
};
template <class NodeParams>
struct SetParams {
  CUgraphExec exec;
  CUgraphNode node;
  const NodeParams* params;
};
// CUgraphNodeParams as far as it is read.
struct AnyNodeParams {
  int type;
  int reserved[3];
  union {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUgraph graph;
  };
};

template <class Params>
const Params& arguments(const CUpti_CallbackData& data) noexcept {
  return *static_cast<const Params*>(data.functionParams);
}

}  // namespace

std::span<const CUpti_CallbackId> GraphCallReader::ids() noexcept { return kIds; }

bool GraphCallReader::is_graph_call(CUpti_CallbackId id) noexcept {
  return std::find(std::begin(kIds), std::end(kIds), id) != std::end(kIds);
}

void GraphCallReader::on_return(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
  MissGuard guard(thread);
  RelaxedCapture relaxed(parts_.driver);
  try {
    look_at(id, data);
  } catch (...) {
  }
  thread.missed = false;
}

void GraphCallReader::look_at(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate_v2:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams_ptsz: {
      const auto& p = arguments<InstantiateParams>(data);
      if (p.exec != nullptr) parts_.graphs.on_instantiated(*p.exec, nodes_of(p.graph, data));
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2: {
      const auto& p = arguments<UpdateParams>(data);
      if (parts_.graphs.follows(p.exec)) parts_.graphs.on_updated(p.exec, nodes_of(p.graph, data));
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams: {
      const auto& p = arguments<SetParams<CUDA_KERNEL_NODE_PARAMS_v1>>(data);
      if (p.params != nullptr) on_kernel_set(p.exec, p.node, *p.params, data);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2: {
      const auto& p = arguments<SetParams<CUDA_KERNEL_NODE_PARAMS_v2>>(data);
      if (p.params != nullptr) on_kernel_set(p.exec, p.node, *p.params, data);
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecChildGraphNodeSetParams: {
      const auto& p = arguments<cuGraphExecChildGraphNodeSetParams_params>(data);
      if (parts_.graphs.follows(p.hGraphExec)) {
        parts_.graphs.on_child_updated(p.hGraphExec, p.hNode, nodes_of(p.childGraph, data));
      }
      break;
    }
    case kGraphExecNodeSetParams: {
      const auto& p = arguments<SetParams<AnyNodeParams>>(data);
      if (p.params == nullptr || !parts_.graphs.follows(p.exec)) break;
      if (p.params->type == CU_GRAPH_NODE_TYPE_KERNEL) on_kernel_set(p.exec, p.node, p.params->kernel, data);
      if (p.params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        parts_.graphs.on_child_updated(p.exec, p.node, nodes_of(p.params->graph, data));
      }
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled: {
      const auto& p = arguments<cuGraphNodeSetEnabled_params>(data);
      parts_.graphs.on_enabled(p.hGraphExec, p.hNode, p.isEnabled != 0);
      break;
    }
    default:
      break;
  }
}

GraphWalk GraphCallReader::walk_in(const CUpti_CallbackData& data) const {
  return GraphWalk(parts_.driver, parts_.resolver, parts_.contexts, data.context, data.contextUid, parts_.source,
                   parts_.device_of, refused_);
}

std::optional<GraphNodes> GraphCallReader::nodes_of(CUgraph graph, const CUpti_CallbackData& data) {
  GraphWalk walk = walk_in(data);
  std::optional<GraphNodes> nodes(std::in_place);
  switch (walk.walk(graph, *nodes)) {
    case GraphWalk::Status::kOk:
      return nodes;
    case GraphWalk::Status::kTooLarge:
      parts_.notices.post(event::Severity::kInfo, "graph_too_large",
                          "a graph has more nodes than are read: what it runs is not known");
      break;
    case GraphWalk::Status::kDeviceUpdated:
      parts_.notices.post(event::Severity::kInfo, "graph_device_updated",
                          "a graph has kernels that kernels on the GPU may change: what it runs is not known");
      break;
    case GraphWalk::Status::kUnknown:
      break;
  }
  return std::nullopt;
}

template <class Params>
void GraphCallReader::on_kernel_set(CUgraphExec exec, CUgraphNode node, const Params& p,
                                    const CUpti_CallbackData& data) {
  if (!parts_.graphs.follows(exec)) return;
  GraphWalk::KernelParams params;
  params.function = p.func;
  params.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
  params.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
  params.shared_bytes = p.sharedMemBytes;
  if constexpr (requires { p.kern; }) {
    params.kernel = p.kern;
    params.context = p.ctx;
  }
  GraphWalk walk = walk_in(data);
  GraphKernelShape kernel;
  std::optional<GraphKernelShape> known;
  if (walk.resolve(node, params, kernel)) known = kernel;
  parts_.graphs.on_kernel_set(exec, node, known);
}

}  // namespace gpuflight::capture
