// The graph API in its many forms.
#include "sim/cuda/graph.h"
#include "sim/cuda/trace.h"

#include <algorithm>

using namespace gpuflight::sim;

namespace {

KernelNodeParams params_of(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func, nullptr, {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
          p.sharedMemBytes};
}

KernelNodeParams params_of(const CUDA_KERNEL_NODE_PARAMS_v3& p) {
  return {p.func, p.kern, {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
          p.sharedMemBytes};
}

KernelNodeParams params_of(const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  return {p.func, p.kern, {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
          p.sharedMemBytes};
}

template <class Params>
void write_params(const GraphNode& node, Params& p) {
  p = {};
  p.func = node.func;
  p.gridDimX = node.launch.grid[0];
  p.gridDimY = node.launch.grid[1];
  p.gridDimZ = node.launch.grid[2];
  p.blockDimX = node.launch.block[0];
  p.blockDimY = node.launch.block[1];
  p.blockDimZ = node.launch.block[2];
  p.sharedMemBytes = node.launch.dynamic_shared_bytes;
}

CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, std::size_t count,
                  GraphNode node) {
  Driver& d = driver();
  Graph* graph = d.graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* dependency = d.graph_nodes.find(dependencies[i]);
    if (dependency == nullptr || dependency->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    node.dependencies.push_back(dependency);
  }
  GraphNode* stored = add_graph_node(*graph, std::move(node));
  if (stored == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUgraphNode>(stored);
  return CUDA_SUCCESS;
}

template <class Params>
CUresult add_kernel_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                         const Params* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode node;
  if (const CUresult error = fill_kernel_node(node, params_of(*params))) return error;
  return add_node(out, graph, dependencies, count, std::move(node));
}

// The child is copied: what becomes of it later changes nothing here.
CUresult add_child_graph(CUgraphNode* out, CUgraph parent, const CUgraphNode* dependencies, std::size_t count,
                         CUgraph child) {
  const Graph* graph = driver().graphs.find(child);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GraphNode node;
  node.type = CU_GRAPH_NODE_TYPE_GRAPH;
  node.child = clone_graph(*graph);
  if (node.child == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Graph* const copy = node.child;
  const CUresult result = add_node(out, parent, dependencies, count, std::move(node));
  if (result != CUDA_SUCCESS) destroy_graph(copy);
  return result;
}

template <class Params>
CUresult get_kernel_params(CUgraphNode handle, Params* params) {
  const GraphNode* node = driver().graph_nodes.find(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (node->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  write_params(*node, *params);
  if constexpr (requires { params->kern; }) params->kern = node->kern;
  return CUDA_SUCCESS;
}

template <class Params>
CUresult set_kernel_params(CUgraphNode handle, const Params* params) {
  GraphNode* node = driver().graph_nodes.find(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (node->type != CU_GRAPH_NODE_TYPE_KERNEL || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return fill_kernel_node(*node, params_of(*params));
}

template <class Params>
CUresult set_exec_params(CUgraphExec exec_handle, CUgraphNode node_handle, const Params* params) {
  GraphExec* exec = driver().graph_execs.find(exec_handle);
  if (exec == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode filled;
  if (const CUresult error = fill_kernel_node(filled, params_of(*params))) return error;
  const std::lock_guard lock(exec->mutex);
  for (ExecNode& node : exec->nodes) {
    if (reinterpret_cast<CUgraphNode>(node.original) != node_handle) continue;
    // The attributes of the node stay as they are.
    std::copy(std::begin(node.launch.cluster), std::end(node.launch.cluster), std::begin(filled.launch.cluster));
    filled.launch.cooperative = node.launch.cooperative;
    filled.launch.carveout = node.launch.carveout;
    node.launch = filled.launch;
    node.keep_alive = filled.keep_alive;
    CUpti_GraphData data{};
    data.node = node_handle;
    data.graphExec = exec_handle;
    fire_graph(CUPTI_CBID_RESOURCE_GRAPH_NODE_SET_PARAMS, data);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_exec_child(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraph child_handle) {
  GraphExec* exec = driver().graph_execs.find(exec_handle);
  const GraphNode* node = driver().graph_nodes.find(node_handle);
  const Graph* child = driver().graphs.find(child_handle);
  if (exec == nullptr || node == nullptr || node->child == nullptr || child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return update_child_graph(*exec, *node, *child) ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult get_attribute(CUgraphNode handle, CUkernelNodeAttrID which, CUkernelNodeAttrValue* value) {
  const GraphNode* node = driver().graph_nodes.find(handle);
  if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = {};
  switch (which) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      value->cooperative = node->launch.cooperative;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      value->clusterDim.x = node->launch.cluster[0];
      value->clusterDim.y = node->launch.cluster[1];
      value->clusterDim.z = node->launch.cluster[2];
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value->sharedMemCarveout = static_cast<unsigned>(std::max(node->launch.carveout, 0));
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      value->deviceUpdatableKernelNode.deviceUpdatable = node->device_updatable;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_attribute(CUgraphNode handle, CUkernelNodeAttrID which, const CUkernelNodeAttrValue* value) {
  GraphNode* node = driver().graph_nodes.find(handle);
  if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      node->launch.cooperative = value->cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      node->launch.cluster[0] = value->clusterDim.x;
      node->launch.cluster[1] = value->clusterDim.y;
      node->launch.cluster[2] = value->clusterDim.z;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      node->device_updatable = value->deviceUpdatableKernelNode.deviceUpdatable != 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  const Graph* graph = driver().graphs.find(handle);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec = nullptr;
  if (const CUresult error = instantiate_graph(*graph, flags, &exec)) return error;
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult instantiate_with(CUgraphExec* out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = instantiate(out, handle, params->flags);
  params->hErrNode_out = nullptr;
  params->result_out = error == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return error;
}

CUresult update(CUgraphExec exec_handle, CUgraph graph_handle) {
  GraphExec* exec = driver().graph_execs.find(exec_handle);
  const Graph* graph = driver().graphs.find(graph_handle);
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return update_graph_exec(*exec, *graph) ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread, std::uint32_t correlation) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  GraphExec* exec = driver().graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, stream_handle, per_thread, &stream)) return error;
  if (stream->capturing.load(std::memory_order_acquire)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return run_graph(*stream->context, *stream, *exec, correlation);
}

CUresult list(const std::vector<GraphNode*>& from, CUgraphNode* nodes, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr) {
    const std::size_t n = std::min(*count, from.size());
    for (std::size_t i = 0; i < n; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(from[i]);
    for (std::size_t i = n; i < *count; ++i) nodes[i] = nullptr;
    *count = n;
  } else {
    *count = from.size();
  }
  return CUDA_SUCCESS;
}

}  // namespace

#define SIM_GRAPH_FORMS(SUFFIX, PER_THREAD)                                                                         \
  CUresult CUDAAPI cuGraphLaunch##SUFFIX(CUgraphExec hGraphExec, CUstream hStream) {                                \
    SIM_TRACED(cuGraphLaunch##SUFFIX, (hGraphExec, hStream),                                                        \
               { return launch(hGraphExec, hStream, PER_THREAD, call.correlation); });                              \
  }                                                                                                                 \
  CUresult CUDAAPI cuGraphUpload##SUFFIX(CUgraphExec hGraphExec, CUstream hStream) {                                \
    SIM_TRACED(cuGraphUpload##SUFFIX, (hGraphExec, hStream), {                                                      \
      return driver().graph_execs.find(hGraphExec) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;            \
    });                                                                                                             \
  }                                                                                                                 \
  CUresult CUDAAPI cuGraphInstantiateWithParams##SUFFIX(CUgraphExec* phGraphExec, CUgraph hGraph,                   \
                                                        CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {         \
    SIM_TRACED(cuGraphInstantiateWithParams##SUFFIX, (phGraphExec, hGraph, instantiateParams),                      \
               { return instantiate_with(phGraphExec, hGraph, instantiateParams); });                               \
  }

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  SIM_TRACED(cuGraphCreate, (phGraph, flags), {
    if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Graph* graph = create_graph();
    if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *phGraph = reinterpret_cast<CUgraph>(graph);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph) {
  SIM_TRACED(cuGraphDestroy, (hGraph), {
    Graph* graph = driver().graphs.find(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    destroy_graph(graph);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                     size_t numDependencies) {
  SIM_TRACED(cuGraphAddEmptyNode, (phGraphNode, hGraph, dependencies, numDependencies),
             { return add_node(phGraphNode, hGraph, dependencies, numDependencies, {}); });
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                      size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_TRACED(cuGraphAddKernelNode, (phGraphNode, hGraph, dependencies, numDependencies, nodeParams),
             { return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams); });
}

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                         size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_TRACED(cuGraphAddKernelNode_v2, (phGraphNode, hGraph, dependencies, numDependencies, nodeParams),
             { return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams); });
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                          size_t numDependencies, CUgraph childGraph) {
  SIM_TRACED(cuGraphAddChildGraphNode, (phGraphNode, hGraph, dependencies, numDependencies, childGraph),
             { return add_child_graph(phGraphNode, hGraph, dependencies, numDependencies, childGraph); });
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SIM_TRACED(cuGraphChildGraphNodeGetGraph, (hNode, phGraph), {
    const GraphNode* node = driver().graph_nodes.find(hNode);
    if (node == nullptr || node->child == nullptr || phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *phGraph = reinterpret_cast<CUgraph>(node->child);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_TRACED(cuGraphKernelNodeGetParams, (hNode, nodeParams), { return get_kernel_params(hNode, nodeParams); });
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_TRACED(cuGraphKernelNodeGetParams_v2, (hNode, nodeParams), { return get_kernel_params(hNode, nodeParams); });
}

CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_TRACED(cuGraphKernelNodeSetParams, (hNode, nodeParams), { return set_kernel_params(hNode, nodeParams); });
}

CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_TRACED(cuGraphKernelNodeSetParams_v2, (hNode, nodeParams), { return set_kernel_params(hNode, nodeParams); });
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_TRACED(cuGraphExecKernelNodeSetParams, (hGraphExec, hNode, nodeParams),
             { return set_exec_params(hGraphExec, hNode, nodeParams); });
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_TRACED(cuGraphExecKernelNodeSetParams_v2, (hGraphExec, hNode, nodeParams),
             { return set_exec_params(hGraphExec, hNode, nodeParams); });
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
  SIM_TRACED(cuGraphExecChildGraphNodeSetParams, (hGraphExec, hNode, childGraph),
             { return set_exec_child(hGraphExec, hNode, childGraph); });
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  SIM_TRACED(cuGraphExecNodeSetParams, (hGraphExec, hNode, nodeParams), {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) return set_exec_child(hGraphExec, hNode, nodeParams->graph.graph);
    if (nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_NOT_SUPPORTED;
    return set_exec_params(hGraphExec, hNode, &nodeParams->kernel);
  });
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               CUkernelNodeAttrValue* value_out) {
  SIM_TRACED(cuGraphKernelNodeGetAttribute, (hNode, attr, value_out),
             { return get_attribute(hNode, attr, value_out); });
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               const CUkernelNodeAttrValue* value) {
  SIM_TRACED(cuGraphKernelNodeSetAttribute, (hNode, attr, value), { return set_attribute(hNode, attr, value); });
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                    char* logBuffer, size_t bufferSize) {
  SIM_TRACED(cuGraphInstantiate, (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
             { return instantiate(phGraphExec, hGraph, 0); });
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                       char* logBuffer, size_t bufferSize) {
  SIM_TRACED(cuGraphInstantiate_v2, (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
             { return instantiate(phGraphExec, hGraph, 0); });
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  SIM_TRACED(cuGraphInstantiateWithFlags, (phGraphExec, hGraph, flags),
             { return instantiate(phGraphExec, hGraph, flags); });
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  SIM_TRACED(cuGraphExecGetFlags, (hGraphExec, flags), {
    const GraphExec* exec = driver().graph_execs.find(hGraphExec);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                                   CUgraphExecUpdateResult* updateResult_out) {
  SIM_TRACED(cuGraphExecUpdate, (hGraphExec, hGraph, hErrorNode_out, updateResult_out), {
    const CUresult error = update(hGraphExec, hGraph);
    if (hErrorNode_out != nullptr) *hErrorNode_out = nullptr;
    *updateResult_out = error == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                              : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return error;
  });
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  SIM_TRACED(cuGraphExecUpdate_v2, (hGraphExec, hGraph, resultInfo), {
    const CUresult error = update(hGraphExec, hGraph);
    *resultInfo = {};
    resultInfo->result = error == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                               : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return error;
  });
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec) {
  SIM_TRACED(cuGraphExecDestroy, (hGraphExec), {
    GraphExec* exec = driver().graph_execs.find(hGraphExec);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    destroy_graph_exec(exec);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  SIM_TRACED(cuGraphGetNodes, (hGraph, nodes, numNodes), {
    const Graph* graph = driver().graphs.find(hGraph);
    return graph != nullptr ? list(graph->nodes, nodes, numNodes) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  SIM_TRACED(cuGraphGetRootNodes, (hGraph, rootNodes, numRootNodes), {
    const Graph* graph = driver().graphs.find(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<GraphNode*> roots;
    std::copy_if(graph->nodes.begin(), graph->nodes.end(), std::back_inserter(roots),
                 [](const GraphNode* node) { return node->dependencies.empty(); });
    return list(roots, rootNodes, numRootNodes);
  });
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  SIM_TRACED(cuGraphNodeGetType, (hNode, type), {
    const GraphNode* node = driver().graph_nodes.find(hNode);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies, size_t* numDependencies) {
  SIM_TRACED(cuGraphNodeGetDependencies, (hNode, dependencies, numDependencies), {
    const GraphNode* node = driver().graph_nodes.find(hNode);
    return node != nullptr ? list(node->dependencies, dependencies, numDependencies) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  SIM_TRACED(cuGraphNodeSetEnabled, (hGraphExec, hNode, isEnabled), {
    GraphExec* exec = driver().graph_execs.find(hGraphExec);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(exec->mutex);
    for (ExecNode& node : exec->nodes) {
      if (reinterpret_cast<CUgraphNode>(node.original) != hNode) continue;
      node.enabled = isEnabled != 0;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_GRAPH_FORMS(, false)
SIM_GRAPH_FORMS(_ptsz, true)

}  // extern "C"
