// Makes executable graphs in all ways, changes them, launches them, and says in JSON what each launch ran:
//
//   graph_host SCENARIO...     prints [{"kernels":{"NAME grid GRID block BLOCK":COUNT}}, ...], in order of the
//                              launches; null in place of the object: it cannot be known
#include <unistd.h>

#include <csignal>
#include <map>
#include <thread>

#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

namespace {

#define CALL(name, ...) \
  Cuda::check(Cuda::symbol<decltype(::name)>(GRAPH_HOST_TEXT(name))(__VA_ARGS__), GRAPH_HOST_TEXT(name))
#define GRAPH_HOST_TEXT(name) GRAPH_HOST_TEXT_OF(name)
#define GRAPH_HOST_TEXT_OF(name) #name

using Ran = std::map<std::string, int>;

class Program {
 public:
  Program() : cuda_({kernel_named("a"), kernel_named("b", 40), kernel_named("c", 64)}), stream_(cuda_.stream()) {}

  CUDA_KERNEL_NODE_PARAMS params(int kernel, unsigned grid, unsigned block = 64) const {
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = cuda_.function(static_cast<std::size_t>(kernel));
    p.gridDimX = grid;
    p.blockDimX = block;
    p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    return p;
  }
  CUgraph graph() const {
    CUgraph made = nullptr;
    CALL(cuGraphCreate, &made, 0);
    return made;
  }
  CUgraphNode add(CUgraph graph, int kernel, unsigned grid, unsigned block = 64) const {
    const CUDA_KERNEL_NODE_PARAMS p = params(kernel, grid, block);
    CUgraphNode node = nullptr;
    CALL(cuGraphAddKernelNode, &node, graph, nullptr, 0, &p);
    return node;
  }
  CUgraphNode add_child(CUgraph graph, CUgraph child) const {
    CUgraphNode node = nullptr;
    CALL(cuGraphAddChildGraphNode, &node, graph, nullptr, 0, child);
    return node;
  }
  CUgraphExec instantiate(CUgraph graph) const {
    CUgraphExec exec = nullptr;
    CALL(cuGraphInstantiate, &exec, graph, 0);
    return exec;
  }
  void launch(CUgraphExec exec, const Ran& ran, int times = 1) {
    for (int i = 0; i < times; ++i) {
      CALL(cuGraphLaunch, exec, stream_);
      std::string text = "{\"kernels\":{";
      for (const auto& [kernel, count] : ran) {
        text += (text.back() == '{' ? "\"" : ",\"") + kernel + "\":" + std::to_string(count);
      }
      say(text + "}}");
    }
  }
  void launch_unknown(CUgraphExec exec) {
    CALL(cuGraphLaunch, exec, stream_);
    say("null");
  }
  void update(CUgraphExec exec, CUgraph graph, CUresult expected = CUDA_SUCCESS) const {
    CUgraphExecUpdateResultInfo info{};
    if (Cuda::symbol<decltype(::cuGraphExecUpdate)>("cuGraphExecUpdate_v2")(exec, graph, &info) != expected) {
      fail("cuGraphExecUpdate");
    }
  }
  void set(CUgraphExec exec, CUgraphNode node, int kernel, unsigned grid, unsigned block = 64) const {
    const CUDA_KERNEL_NODE_PARAMS p = params(kernel, grid, block);
    CALL(cuGraphExecKernelNodeSetParams, exec, node, &p);
  }
  void enable(CUgraphExec exec, CUgraphNode node, bool on) const { CALL(cuGraphNodeSetEnabled, exec, node, on); }

  static std::string kernel(const char* name, unsigned grid, unsigned block = 64) {
    return std::string(name) + " grid (" + std::to_string(grid) + ",1,1) block (" + std::to_string(block) + ",1,1)";
  }

  void captured() {
    CALL(cuStreamBeginCapture, stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < 3; ++i) Cuda::check(cuda_.launch(5, 0, 64, stream_), "launch");
    Cuda::check(cuda_.launch(7, 1, 128, stream_), "launch");
    CUgraph made = nullptr;
    CALL(cuStreamEndCapture, stream_, &made);
    launch(instantiate(made), {{kernel("a", 5), 3}, {kernel("b", 7, 128), 1}}, 4);
  }

  void nodes() {
    CUgraph const made = graph();
    add(made, 0, 2);
    add(made, 0, 3);
    add(made, 2, 2);
    CUgraphNode empty = nullptr;
    CALL(cuGraphAddEmptyNode, &empty, made, nullptr, 0);
    launch(instantiate(made), {{kernel("a", 2), 1}, {kernel("a", 3), 1}, {kernel("c", 2), 1}}, 3);
    // Equal contents, another graph.
    launch(instantiate(made), {{kernel("a", 2), 1}, {kernel("a", 3), 1}, {kernel("c", 2), 1}});
  }

  void ways() {
    CUgraph const made = graph();
    add(made, 0, 2);
    const Ran ran{{kernel("a", 2), 1}};
    CUgraphExec exec = nullptr;
    using Old = CUresult(CUgraphExec*, CUgraph, CUgraphNode*, char*, std::size_t);
    Cuda::check(Cuda::symbol<Old>("cuGraphInstantiate")(&exec, made, nullptr, nullptr, 0), "cuGraphInstantiate");
    launch(exec, ran);
    Cuda::check(Cuda::symbol<Old>("cuGraphInstantiate_v2")(&exec, made, nullptr, nullptr, 0), "cuGraphInstantiate_v2");
    launch(exec, ran);
    for (const char* name : {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"}) {
      CUDA_GRAPH_INSTANTIATE_PARAMS p{};
      Cuda::check(Cuda::symbol<CUresult(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*)>(name)(&exec, made, &p),
                  name);
      launch(exec, ran);
    }
    // The name that means different functions in different versions.
    using ByVersion = CUresult(const char*, void**, int, cuuint64_t);
    for (const int version : {11000, 12000}) {
      void* found = nullptr;
      Cuda::check(Cuda::symbol<ByVersion>("cuGetProcAddress")("cuGraphInstantiate", &found, version, 0), "look-up");
      if (version < 12000) {
        Cuda::check(reinterpret_cast<Old*>(found)(&exec, made, nullptr, nullptr, 0), "cuGraphInstantiate 11.0");
      } else {
        Cuda::check(reinterpret_cast<CUresult (*)(CUgraphExec*, CUgraph, unsigned long long)>(found)(&exec, made, 0),
                    "cuGraphInstantiate 12.0");
      }
      launch(exec, ran);
    }
  }

  void children() {
    CUgraph const inner = graph();
    add(inner, 1, 4);
    add(inner, 1, 4);
    CUgraph const middle = graph();
    add(middle, 2, 1);
    add_child(middle, inner);
    CUgraph const outer = graph();
    CUgraphNode const node = add_child(outer, middle);
    add_child(outer, inner);
    add(outer, 0, 9);
    CUgraphExec const exec = instantiate(outer);
    launch(exec, {{kernel("a", 9), 1}, {kernel("b", 4), 4}, {kernel("c", 1), 1}}, 2);
    CUgraph const other_inner = graph();
    add(other_inner, 0, 6);
    add(other_inner, 1, 4);
    CUgraph const other = graph();
    add(other, 2, 2);
    add_child(other, other_inner);
    CALL(cuGraphExecChildGraphNodeSetParams, exec, node, other);
    launch(exec, {{kernel("a", 6), 1}, {kernel("a", 9), 1}, {kernel("b", 4), 3}, {kernel("c", 2), 1}}, 2);
  }

  void updated() {
    CUgraph const made = graph();
    CUgraphNode const first = add(made, 0, 2);
    add(made, 1, 3);
    CUgraphExec const exec = instantiate(made);
    launch(exec, {{kernel("a", 2), 1}, {kernel("b", 3), 1}});
    // The same graph with other parameters: nodes keep their handles.
    const CUDA_KERNEL_NODE_PARAMS p = params(2, 8);
    CALL(cuGraphKernelNodeSetParams, first, &p);
    launch(exec, {{kernel("a", 2), 1}, {kernel("b", 3), 1}});
    update(exec, made);
    launch(exec, {{kernel("b", 3), 1}, {kernel("c", 8), 1}}, 2);
    set(exec, first, 0, 1);
    launch(exec, {{kernel("a", 1), 1}, {kernel("b", 3), 1}});
    // Another graph of the same shape; which node has become which is not certain then.
    CUgraph const other = graph();
    add(other, 2, 5);
    add(other, 2, 5);
    update(exec, other);
    launch(exec, {{kernel("c", 5), 2}}, 2);
    set(exec, first, 0, 1);
    launch_unknown(exec);
    update(exec, made);
    launch(exec, {{kernel("b", 3), 1}, {kernel("c", 8), 1}});
    CUgraph const larger = graph();
    for (int i = 0; i < 3; ++i) add(larger, 0, 1);
    update(exec, larger, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    launch(exec, {{kernel("b", 3), 1}, {kernel("c", 8), 1}});
  }

  void set_params() {
    CUgraph const made = graph();
    CUgraphNode const first = add(made, 0, 2);
    CUgraphNode const second = add(made, 0, 2);
    CUlaunchAttributeValue cluster{};
    cluster.clusterDim = {2, 1, 1};
    CALL(cuGraphKernelNodeSetAttribute, second, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
    CUgraphExec const exec = instantiate(made);
    launch(exec, {{kernel("a", 2), 1}, {kernel("a", 2) + " cluster (2,1,1)", 1}});
    set(exec, first, 1, 3, 96);
    launch(exec, {{kernel("b", 3, 96), 1}, {kernel("a", 2) + " cluster (2,1,1)", 1}}, 2);
    set(exec, second, 0, 4);
    launch(exec, {{kernel("b", 3, 96), 1}, {kernel("a", 4) + " cluster (2,1,1)", 1}});
    const CUDA_KERNEL_NODE_PARAMS old = params(2, 6);
    const CUDA_KERNEL_NODE_PARAMS_v1 v1{old.func, 6, 1, 1, 64, 1, 1, 0, nullptr, nullptr};
    using Set = CUresult(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
    Cuda::check(Cuda::symbol<Set>("cuGraphExecKernelNodeSetParams")(exec, first, &v1), "the first form");
    launch(exec, {{kernel("c", 6), 1}, {kernel("a", 4) + " cluster (2,1,1)", 1}});
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_KERNEL;
    any.kernel.func = cuda_.function(1);
    any.kernel.gridDimX = 11;
    any.kernel.blockDimX = 32;
    any.kernel.gridDimY = any.kernel.gridDimZ = any.kernel.blockDimY = any.kernel.blockDimZ = 1;
    CALL(cuGraphExecNodeSetParams, exec, first, &any);
    launch(exec, {{kernel("b", 11, 32), 1}, {kernel("a", 4) + " cluster (2,1,1)", 1}});
    // To and fro: what it was before is the same contents again.
    for (int i = 0; i < 500; ++i) {
      set(exec, first, 1, 11, 32);
      set(exec, first, 1, static_cast<unsigned>(12 + i % 2), 32);
      launch(exec, {{kernel("b", static_cast<unsigned>(12 + i % 2), 32), 1}, {kernel("a", 4) + " cluster (2,1,1)", 1}});
    }
  }

  void disabled() {
    CUgraph const made = graph();
    CUgraphNode const first = add(made, 0, 2);
    CUgraphNode const second = add(made, 1, 2);
    CUgraphExec const exec = instantiate(made);
    enable(exec, first, false);
    launch(exec, {{kernel("b", 2), 1}}, 2);
    update(exec, made);  // it stays disabled
    launch(exec, {{kernel("b", 2), 1}});
    set(exec, first, 2, 3);
    launch(exec, {{kernel("b", 2), 1}});
    enable(exec, first, true);
    enable(exec, second, false);
    launch(exec, {{kernel("c", 3), 1}});
    // With a node disabled another graph leaves open which one that is.
    CUgraph const other = graph();
    add(other, 0, 7);
    add(other, 0, 8);
    update(exec, other);
    launch_unknown(exec);
  }

  void again() {
    for (int i = 0; i < 300; ++i) {
      CUgraph const made = graph();
      const auto grid = static_cast<unsigned>(1 + i % 3);
      add(made, i % 2, grid);
      CUgraphExec const exec = instantiate(made);
      launch(exec, {{kernel(i % 2 == 0 ? "a" : "b", grid), 1}});
      CALL(cuGraphExecDestroy, exec);
      CALL(cuGraphDestroy, made);
    }
  }

  void large() {
    CUgraph const made = graph();
    Ran ran;
    for (unsigned i = 0; i < 1000; ++i) {
      add(made, static_cast<int>(i % 3), 1 + i % 250);
      ++ran[kernel(i % 3 == 0 ? "a" : i % 3 == 1 ? "b" : "c", 1 + i % 250)];
    }
    launch(instantiate(made), ran, 5);
  }

  void refused() {
    CUgraph const made = graph();
    add(made, 0, 2);
    CUgraphExec exec = instantiate(made);
    auto* const again = Cuda::symbol<decltype(::cuGraphInstantiate)>("cuGraphInstantiateWithFlags");
    CUgraphExec untouched = exec;
    if (again(&untouched, nullptr, 0) == CUDA_SUCCESS) fail("a null graph was instantiated");
    launch(untouched, {{kernel("a", 2), 1}});
    CUgraphNode const absent = add(graph(), 0, 1);
    const CUDA_KERNEL_NODE_PARAMS p = params(1, 3);
    if (Cuda::symbol<decltype(::cuGraphExecKernelNodeSetParams)>("cuGraphExecKernelNodeSetParams_v2")(
            exec, absent, &p) == CUDA_SUCCESS) {
      fail("a node of another graph was set");
    }
    launch(exec, {{kernel("a", 2), 1}});
  }

  // Our own calls must not end the capture of another thread, whatever its mode.
  void during_capture() {
    CUstream const other = cuda_.stream();
    CALL(cuStreamBeginCapture, other, CU_STREAM_CAPTURE_MODE_GLOBAL);
    Cuda::check(cuda_.launch(3, 2, 64, other), "launch");
    std::thread([&] {
      cuda_.use();
      CUgraph const made = graph();
      add(made, 1, 17);
      CUgraphExec const exec = instantiate(made);
      launch(exec, {{kernel("b", 17), 1}});
    }).join();
    CUgraph made = nullptr;
    CALL(cuStreamEndCapture, other, &made);
    launch(instantiate(made), {{kernel("c", 3), 1}});
  }

  // The last ones are in the flight file only.
  void killed() {
    CUgraph const made = graph();
    add(made, 0, 2);
    add(made, 1, 3);
    CUgraphExec const exec = instantiate(made);
    launch(exec, {{kernel("a", 2), 1}, {kernel("b", 3), 1}}, 3);
    usleep(1'500'000);
    launch(exec, {{kernel("a", 2), 1}, {kernel("b", 3), 1}}, 4);
    print();
    std::fflush(stdout);
    raise(SIGKILL);
  }

  void device_updatable() {
    CUgraph const made = graph();
    CUgraphNode const node = add(made, 0, 2);
    CUlaunchAttributeValue value{};
    value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    CALL(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value);
    launch_unknown(instantiate(made));
  }

  void run(const std::string& name) {
    static const std::map<std::string, void (Program::*)()> kScenarios = {
        {"captured", &Program::captured},     {"nodes", &Program::nodes},
        {"ways", &Program::ways},             {"children", &Program::children},
        {"updated", &Program::updated},       {"set_params", &Program::set_params},
        {"disabled", &Program::disabled},     {"again", &Program::again},
        {"large", &Program::large},           {"refused", &Program::refused},
        {"during_capture", &Program::during_capture}, {"killed", &Program::killed},
        {"device_updatable", &Program::device_updatable}};
    const auto found = kScenarios.find(name);
    if (found == kScenarios.end()) fail("no scenario " + name);
    (this->*found->second)();
    CALL(cuStreamSynchronize, stream_);
  }
  void print() const { std::printf("[%s]\n", said_.c_str()); }

 private:
  void say(const std::string& text) { said_ += (said_.empty() ? "" : ",") + text; }

  Cuda cuda_;
  CUstream stream_;
  std::string said_;
};

}  // namespace

int main(int argc, char** argv) {
  Program program;
  for (int i = 1; i < argc; ++i) program.run(argv[i]);
  program.print();
  return 0;
}
