// One thread of a plan: its streams, graphs, events and modules, and the loop that launches.
// Threads: owned and used by one.
#pragma once

#include <cuda.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "sim/play/player.h"

namespace gpuflight::sim {

void** null_arguments();

class ThreadPlayer {
 public:
  ThreadPlayer(Player& player, const PlanThread& plan, std::size_t index);
  void run();

 private:
  struct Allocation {
    CUdeviceptr device = 0;
    void* host = nullptr;
    std::size_t bytes = 0;
    std::string kind;
  };
  struct BuiltGraph {
    CUgraph graph = nullptr;
    std::map<std::size_t, std::uint64_t> kernels;  // nodes by kernel index
  };
  struct Exec {
    CUgraphExec exec = nullptr;
    std::map<std::size_t, std::uint64_t> kernels;
  };

  void run_ops(const std::vector<PlanOp>& ops);
  void run_op(const PlanOp& op);
  CUresult run_simple(const PlanOp& op);
  CUresult run_graph_op(const PlanOp& op);
  CUresult run_memory_op(const PlanOp& op);
  CUresult run_event_op(const PlanOp& op);

  void launch(const PlanOp& op);
  void mix(const PlanOp& op);
  CUresult launch_once(const PlanLaunch& launch, CUstream stream, const KernelHandles& handles);
  CUresult launch_ex(const PlanLaunch& launch, CUstream stream, CUfunction f);
  CUresult launch_legacy(const PlanLaunch& launch, CUstream stream, CUfunction f);
  CUresult load_module(const PlanOp& op);
  CUresult unload_module(const PlanOp& op);
  CUresult set_attribute(const PlanOp& op);
  CUresult build_graph(const PlanOp& op);
  CUresult launch_graph(const PlanOp& op);
  void drop_graph(const std::string& name);
  std::uint64_t capture_id(CUstream stream);
  [[noreturn]] void end_process(const std::string& how);

  KernelHandles handles_of(const PlanLaunch& launch);
  CUstream stream_of(const std::string& name) const;
  void expect(const PlanOp& op, CUresult result, const char* what);
  void pace(std::int64_t launches);

  Player& player_;
  const PlanThread& plan_;
  std::size_t index_;
  ThreadResult& result_;
  LiveCounters& live_;
  std::map<std::string, CUstream> streams_;
  int captures_ = 0;                                                        // begun by this thread and not ended
  std::map<std::uint64_t, std::map<std::size_t, std::uint64_t>> captured_;  // kernels of captures under way, by id
  std::map<std::string, BuiltGraph> graphs_;
  std::map<std::string, Exec> execs_;
  std::map<std::string, CUevent> events_;
  std::map<std::string, Allocation> allocations_;
  std::vector<unsigned char> host_;  // the pageable side of copies
  std::map<std::string, LoadedModule> modules_;
  std::map<std::size_t, KernelHandles> kernels_;  // of modules this thread has loaded itself
  std::chrono::steady_clock::time_point start_;
  std::int64_t paced_ = 0;
};

}  // namespace gpuflight::sim
