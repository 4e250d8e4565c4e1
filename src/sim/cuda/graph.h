// Graph operations shared by the graph API's many forms. See graph.cpp.
// Threads: any; as in CUDA, one graph is not to be changed by two threads at once.
#pragma once

#include "sim/cuda/driver.h"

#include <optional>

namespace gpuflight::sim {

// CUDA_KERNEL_NODE_PARAMS of either version.
struct KernelNodeParams {
  CUfunction func = nullptr;
  CUkernel kern = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
};

// With copies of its child graphs. nullptr: no room, or a circle.
Graph* clone_graph(const Graph& graph);
CUresult instantiate_graph(const Graph& graph, unsigned long long flags, GraphExec** out);
void destroy_graph_exec(GraphExec* exec);
bool update_graph_exec(GraphExec& exec, const Graph& graph);
// The same for the nodes of one child graph.
bool update_child_graph(GraphExec& exec, const GraphNode& node, const Graph& child);
CUresult fill_kernel_node(GraphNode& node, const KernelNodeParams& params);

}  // namespace gpuflight::sim
