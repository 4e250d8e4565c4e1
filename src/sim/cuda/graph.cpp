// Graphs: building, instantiating, updating. Launching one is in timeline.cpp.
#include "sim/cuda/graph.h"
#include "sim/cuda/trace.h"

#include <algorithm>
#include <optional>

namespace gpuflight::sim {
namespace {

CUpti_GraphData about(const Graph* graph) {
  CUpti_GraphData data{};
  data.graph = reinterpret_cast<CUgraph>(const_cast<Graph*>(graph));
  return data;
}

}  // namespace

Graph* create_graph() {
  Driver& d = driver();
  Graph* graph = d.graphs.create();
  if (graph == nullptr) return nullptr;
  graph->id = d.next_graph.fetch_add(1, std::memory_order_relaxed);
  fire_graph(CUPTI_CBID_RESOURCE_GRAPH_CREATED, about(graph));
  return graph;
}

void destroy_graph(Graph* graph) {
  fire_graph(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, about(graph));
  Driver& d = driver();
  for (GraphNode* node : graph->nodes) d.graph_nodes.destroy(node);
  d.graphs.destroy(graph);
}

GraphNode* add_graph_node(Graph& graph, GraphNode node) {
  Driver& d = driver();
  GraphNode* stored = d.graph_nodes.create(std::move(node));
  if (stored == nullptr) return nullptr;
  stored->id = d.next_node.fetch_add(1, std::memory_order_relaxed);
  stored->graph = &graph;
  graph.nodes.push_back(stored);
  CUpti_GraphData data = about(&graph);
  data.node = reinterpret_cast<CUgraphNode>(stored);
  data.nodeType = stored->type;
  fire_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, data);
  return stored;
}

// Nodes in an order in which each follows what it depends on; nullopt: there is a circle.
std::optional<std::vector<GraphNode*>> sorted_nodes(const Graph& graph) {
  std::vector<GraphNode*> sorted;
  std::set<const GraphNode*> done;
  while (sorted.size() < graph.nodes.size()) {
    const std::size_t before = sorted.size();
    for (GraphNode* node : graph.nodes) {
      if (done.contains(node)) continue;
      const bool ready = std::all_of(node->dependencies.begin(), node->dependencies.end(),
                                     [&](const GraphNode* d) { return done.contains(d); });
      if (!ready) continue;
      done.insert(node);
      sorted.push_back(node);
    }
    if (sorted.size() == before) return std::nullopt;
  }
  return sorted;
}

CUresult instantiate_graph(const Graph& graph, unsigned long long flags, GraphExec** out) {
  Driver& d = driver();
  CUpti_GraphData data = about(&graph);
  fire_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, data);
  const auto sorted = sorted_nodes(graph);
  if (!sorted) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec = d.graph_execs.create();
  if (exec == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->id = d.next_graph.fetch_add(1, std::memory_order_relaxed);
  exec->flags = flags;
  std::map<const GraphNode*, std::size_t> index;
  for (GraphNode* node : *sorted) {
    ExecNode copy;
    copy.id = d.next_node.fetch_add(1, std::memory_order_relaxed);
    copy.original = node;
    copy.type = node->type;
    copy.launch = node->launch;
    copy.keep_alive = node->keep_alive;
    copy.transfer = node->transfer;
    copy.duration_ns = node->duration_ns;
    for (const GraphNode* dependency : node->dependencies) copy.dependencies.push_back(index.at(dependency));
    index[node] = exec->nodes.size();
    exec->nodes.push_back(std::move(copy));
  }
  data.graphExec = reinterpret_cast<CUgraphExec>(exec);
  hooks().graph_instantiated.store(true, std::memory_order_relaxed);
  fire_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, data);
  *out = exec;
  return CUDA_SUCCESS;
}

void destroy_graph_exec(GraphExec* exec) {
  CUpti_GraphData data{};
  data.graphExec = reinterpret_cast<CUgraphExec>(exec);
  fire_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, data);
  driver().graph_execs.destroy(exec);
}

// Takes over the parameters of a graph of the same shape.
bool update_graph_exec(GraphExec& exec, const Graph& graph) {
  const auto sorted = sorted_nodes(graph);
  if (!sorted || sorted->size() != exec.nodes.size()) return false;
  const std::lock_guard lock(exec.mutex);
  for (std::size_t i = 0; i < sorted->size(); ++i) {
    if ((*sorted)[i]->type != exec.nodes[i].type) return false;
  }
  for (std::size_t i = 0; i < sorted->size(); ++i) {
    const GraphNode& from = *(*sorted)[i];
    ExecNode& to = exec.nodes[i];
    to.launch = from.launch;
    to.keep_alive = from.keep_alive;
    to.transfer = from.transfer;
    to.duration_ns = from.duration_ns;
  }
  return true;
}

CUresult fill_kernel_node(GraphNode& node, const KernelNodeParams& params) {
  node.type = CU_GRAPH_NODE_TYPE_KERNEL;
  node.func = params.func;
  node.kern = params.kern;
  const CUfunction handle = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  node.keep_alive = share_kernel_state(handle);
  if (node.keep_alive == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  node.launch = {};
  node.launch.state = node.keep_alive.get();
  for (int i = 0; i < 3; ++i) {
    node.launch.grid[i] = params.grid[i];
    node.launch.block[i] = params.block[i];
    node.launch.cluster[i] = static_cast<unsigned>(node.keep_alive->image.required_cluster[i]);
    if (params.grid[i] == 0 || params.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  node.launch.dynamic_shared_bytes = params.shared;
  return CUDA_SUCCESS;
}

}  // namespace gpuflight::sim
