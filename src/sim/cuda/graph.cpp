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
  for (GraphNode* node : graph->nodes) {
    if (node->child != nullptr) destroy_graph(node->child);
    d.graph_nodes.destroy(node);
  }
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

Graph* clone_graph(const Graph& graph) {
  const auto sorted = sorted_nodes(graph);
  Graph* copy = sorted ? create_graph() : nullptr;
  if (copy == nullptr) return nullptr;
  std::map<const GraphNode*, GraphNode*> copies;
  for (const GraphNode* node : *sorted) {
    GraphNode fresh = *node;
    for (GraphNode*& dependency : fresh.dependencies) dependency = copies.at(dependency);
    if (node->child != nullptr) fresh.child = clone_graph(*node->child);
    copies[node] = add_graph_node(*copy, std::move(fresh));
  }
  return copy;
}

namespace {

struct FlatNode {
  GraphNode* node = nullptr;
  std::vector<std::size_t> dependencies;  // indices, all smaller than its own
};

// Adds the graph's nodes, those of child graphs in their place; none begins before those of `before` have ended.
// Returns what ends last; nullopt: there is a circle.
std::optional<std::vector<std::size_t>> flatten(const Graph& graph, const std::vector<std::size_t>& before,
                                                std::vector<FlatNode>& out) {
  const auto sorted = sorted_nodes(graph);
  if (!sorted) return std::nullopt;
  std::map<const GraphNode*, std::vector<std::size_t>> ends;  // of a child graph several
  std::set<const GraphNode*> waited_for;
  for (GraphNode* node : *sorted) {
    std::vector<std::size_t> dependencies = node->dependencies.empty() ? before : std::vector<std::size_t>{};
    for (const GraphNode* dependency : node->dependencies) {
      waited_for.insert(dependency);
      dependencies.insert(dependencies.end(), ends[dependency].begin(), ends[dependency].end());
    }
    if (node->child != nullptr) {
      const auto last = flatten(*node->child, dependencies, out);
      if (!last) return std::nullopt;
      ends[node] = last->empty() ? dependencies : *last;
    } else {
      ends[node] = {out.size()};
      out.push_back({node, std::move(dependencies)});
    }
  }
  std::vector<std::size_t> last;
  for (const GraphNode* node : *sorted) {
    if (!waited_for.contains(node)) last.insert(last.end(), ends[node].begin(), ends[node].end());
  }
  return last;
}

void take_parameters(ExecNode& to, const GraphNode& from) {
  to.launch = from.launch;
  to.keep_alive = from.keep_alive;
  to.transfer = from.transfer;
  to.duration_ns = from.duration_ns;
}

}  // namespace

CUresult instantiate_graph(const Graph& graph, unsigned long long flags, GraphExec** out) {
  Driver& d = driver();
  CUpti_GraphData data = about(&graph);
  fire_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, data);
  std::vector<FlatNode> nodes;
  if (!flatten(graph, {}, nodes)) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec = d.graph_execs.create();
  if (exec == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->id = d.next_graph.fetch_add(1, std::memory_order_relaxed);
  exec->flags = flags;
  for (FlatNode& node : nodes) {
    ExecNode copy;
    copy.id = d.next_node.fetch_add(1, std::memory_order_relaxed);
    copy.original = node.node;
    copy.type = node.node->type;
    take_parameters(copy, *node.node);
    copy.dependencies = std::move(node.dependencies);
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
  std::vector<FlatNode> nodes;
  if (!flatten(graph, {}, nodes) || nodes.size() != exec.nodes.size()) return false;
  const std::lock_guard lock(exec.mutex);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].node->type != exec.nodes[i].type) return false;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) take_parameters(exec.nodes[i], *nodes[i].node);
  return true;
}

bool update_child_graph(GraphExec& exec, const GraphNode& node, const Graph& child) {
  std::vector<FlatNode> old, fresh;
  if (!flatten(*node.child, {}, old) || !flatten(child, {}, fresh) || old.size() != fresh.size()) return false;
  const std::lock_guard lock(exec.mutex);
  std::vector<ExecNode*> targets;
  for (std::size_t i = 0; i < old.size(); ++i) {
    const auto target = std::find_if(exec.nodes.begin(), exec.nodes.end(),
                                     [&](const ExecNode& n) { return n.original == old[i].node; });
    if (target == exec.nodes.end() || target->type != fresh[i].node->type) return false;
    targets.push_back(&*target);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) take_parameters(*targets[i], *fresh[i].node);
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
