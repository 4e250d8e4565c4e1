// Graphs made, changed and launched in all ways, for the check `graph_contents`: says what each launch ran, and what it
// cost to instantiate and to update a graph of many nodes.
//
//   graph_contents [--launches N] [--nodes N] [--rounds N] [--simulated]
//
// Result: one JSON line.
#include <algorithm>
#include <map>

#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;

using Ran = std::map<std::string, int>;  // "NAME GRID BLOCK"

class Graphs {
 public:
  Graphs(const Module& module, long launches, long nodes) : launches_(launches), nodes_(nodes), stream_(new_stream()) {
    for (const char* name : kNames) functions_.push_back(module.function(name));
  }

  void run() {
    captured();
    explicit_nodes();
    children();
    updated();
    parameters();
    disabled();
    again();
    many();
    must(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  // Median of ns, for a graph of many nodes.
  std::pair<double, double> cost(long rounds) const {
    CUgraph const graph = many_nodes();
    std::vector<std::int64_t> instantiate, update;
    for (long i = 0; i < rounds; ++i) {
      std::int64_t begin = monotonic_ns();
      CUgraphExec const exec = instantiated(graph);
      instantiate.push_back(monotonic_ns() - begin);
      begin = monotonic_ns();
      CUgraphExecUpdateResultInfo info{};
      must(cuGraphExecUpdate(exec, graph, &info), "cuGraphExecUpdate");
      update.push_back(monotonic_ns() - begin);
      must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    }
    std::sort(instantiate.begin(), instantiate.end());
    std::sort(update.begin(), update.end());
    const auto at = static_cast<std::size_t>(rounds / 2);
    return {static_cast<double>(instantiate[at]), static_cast<double>(update[at])};
  }

  std::string said() const {
    std::string text;
    for (const auto& [ran, times] : runs_) {
      text += std::string(text.empty() ? "" : ",") + "{\"times\":" + std::to_string(times) + ",\"kernels\":{";
      for (const auto& [kernel, count] : ran) {
        text += (text.back() == '{' ? "\"" : ",\"") + kernel + "\":" + std::to_string(count);
      }
      text += "}}";
    }
    return text;
  }
  static std::vector<KernelSpec> kernels() { return {{kNames[0]}, {kNames[1], 1024}, {kNames[2], 16384}}; }

 private:
  static constexpr const char* kNames[] = {"gc_plain", "gc_small", "gc_large"};

  CUDA_KERNEL_NODE_PARAMS params(int kernel, unsigned grid, unsigned block = 64) const {
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = functions_[static_cast<std::size_t>(kernel)];
    p.gridDimX = grid;
    p.blockDimX = block;
    p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    return p;
  }
  static std::string of(int kernel, unsigned grid, unsigned block = 64) {
    return std::string(kNames[kernel]) + " (" + std::to_string(grid) + ",1,1) (" + std::to_string(block) + ",1,1)";
  }
  static CUgraph made() {
    CUgraph graph = nullptr;
    must(cuGraphCreate(&graph, 0), "cuGraphCreate");
    return graph;
  }
  CUgraphNode add(CUgraph graph, int kernel, unsigned grid, unsigned block = 64) const {
    const CUDA_KERNEL_NODE_PARAMS p = params(kernel, grid, block);
    CUgraphNode node = nullptr;
    must(cuGraphAddKernelNode(&node, graph, nullptr, 0, &p), "cuGraphAddKernelNode");
    return node;
  }
  static CUgraphExec instantiated(CUgraph graph) {
    CUgraphExec exec = nullptr;
    must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    return exec;
  }
  void launch(CUgraphExec exec, const Ran& ran) {
    for (long i = 0; i < launches_; ++i) must(cuGraphLaunch(exec, stream_), "cuGraphLaunch");
    runs_.emplace_back(ran, launches_);
  }

  void captured() {
    must(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    for (int i = 0; i < 3; ++i) {
      must(cuLaunchKernel(functions_[2], 5, 1, 1, 128, 1, 1, 0, stream_, nullptr, nullptr), "cuLaunchKernel");
    }
    CUgraph graph = nullptr;
    must(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    launch(instantiated(graph), {{of(2, 5, 128), 3}});
  }
  void explicit_nodes() {
    CUgraph const graph = made();
    add(graph, 0, 2);
    add(graph, 0, 2);
    add(graph, 1, 3, 256);
    launch(instantiated(graph), {{of(0, 2), 2}, {of(1, 3, 256), 1}});
  }
  void children() {
    CUgraph const inner = made();
    add(inner, 1, 4);
    CUgraph const outer = made();
    CUgraphNode node = nullptr;
    must(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner), "cuGraphAddChildGraphNode");
    add(outer, 0, 9);
    CUgraphExec const exec = instantiated(outer);
    launch(exec, {{of(0, 9), 1}, {of(1, 4), 1}});
    CUgraph const other = made();
    add(other, 1, 6);
    must(cuGraphExecChildGraphNodeSetParams(exec, node, other), "cuGraphExecChildGraphNodeSetParams");
    launch(exec, {{of(0, 9), 1}, {of(1, 6), 1}});
  }
  void updated() {
    CUgraph const graph = made();
    add(graph, 0, 11);
    add(graph, 1, 11);
    CUgraphExec const exec = instantiated(graph);
    launch(exec, {{of(0, 11), 1}, {of(1, 11), 1}});
    CUgraph const other = made();
    add(other, 0, 12);
    add(other, 1, 13);
    CUgraphExecUpdateResultInfo info{};
    must(cuGraphExecUpdate(exec, other, &info), "cuGraphExecUpdate");
    launch(exec, {{of(0, 12), 1}, {of(1, 13), 1}});
  }
  void parameters() {
    CUgraph const graph = made();
    CUgraphNode const node = add(graph, 0, 14);
    CUgraphExec const exec = instantiated(graph);
    const CUDA_KERNEL_NODE_PARAMS p = params(0, 15, 96);
    must(cuGraphExecKernelNodeSetParams(exec, node, &p), "cuGraphExecKernelNodeSetParams");
    launch(exec, {{of(0, 15, 96), 1}});
  }
  void disabled() {
    CUgraph const graph = made();
    CUgraphNode const node = add(graph, 0, 16);
    add(graph, 1, 17);
    CUgraphExec const exec = instantiated(graph);
    must(cuGraphNodeSetEnabled(exec, node, 0), "cuGraphNodeSetEnabled");
    launch(exec, {{of(1, 17), 1}});
    must(cuGraphNodeSetEnabled(exec, node, 1), "cuGraphNodeSetEnabled");
    launch(exec, {{of(0, 16), 1}, {of(1, 17), 1}});
  }
  // Handles come back, and name other graphs.
  void again() {
    for (unsigned i = 0; i < 20; ++i) {
      CUgraph const graph = made();
      add(graph, static_cast<int>(i % 2), 20 + i);
      CUgraphExec const exec = instantiated(graph);
      launch(exec, {{of(static_cast<int>(i % 2), 20 + i), 1}});
      must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
      must(cuGraphDestroy(graph), "cuGraphDestroy");
    }
  }
  CUgraph many_nodes() const {
    CUgraph const graph = made();
    for (long i = 0; i < nodes_; ++i) add(graph, static_cast<int>(i % 3), static_cast<unsigned>(100 + i % 7));
    return graph;
  }
  void many() {
    Ran ran;
    for (long i = 0; i < nodes_; ++i) ++ran[of(static_cast<int>(i % 3), static_cast<unsigned>(100 + i % 7))];
    launch(instantiated(many_nodes()), ran);
  }

  const long launches_, nodes_;
  CUstream const stream_;
  std::vector<CUfunction> functions_;
  std::vector<std::pair<Ran, long>> runs_;
};

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"launches", 5}, {"nodes", 1000}, {"rounds", 21}});
  const Device device;
  const Module module(Graphs::kernels(), arguments.simulated);
  Graphs graphs(module, arguments["launches"], arguments["nodes"]);
  graphs.run();
  const auto [instantiate, update] = graphs.cost(std::max(1L, arguments["rounds"]));
  std::printf("{\"instantiate_ns\":%.0f,\"update_ns\":%.0f,\"nodes\":%ld,\"runs\":[%s]}\n", instantiate, update,
              arguments["nodes"], graphs.said().c_str());
  return 0;
}
