// A launch plan: what a program does, as data. README.md in src/sim is its schema.
// Threads: parsed by one, read by all. Allocates: yes. Throws std::runtime_error with a place and a reason.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/module_image.h"

namespace gpuflight::sim {

using Dim = std::array<unsigned, 3>;

struct PlanKernel {
  std::string id;
  KernelImage image;
  unsigned param_bytes = 0;  // what the legacy launches must push
};

struct PlanModule {
  std::string id;
  std::string file;  // of --kernels; empty: ID.cubin
  bool lazy = false;  // loaded by a module_load only
  std::vector<PlanKernel> kernels;
};

enum class LaunchForm { kKernel, kEx, kCooperative, kCooperativeMulti, kLegacy, kLegacyGrid, kLegacyAsync, kLibrary,
                        kLibraryEx };
inline constexpr std::array<const char*, 9> kLaunchFormNames = {
    "kernel", "ex", "coop", "coop_multi", "legacy", "legacy_grid", "legacy_async", "library", "library_ex"};

struct PlanLaunch {
  std::string kernel;
  std::size_t kernel_index = 0;  // into Plan::kernel_ids
  LaunchForm form = LaunchForm::kKernel;
  bool per_thread = false;  // the _ptsz entry point
  Dim grid{1, 1, 1}, block{1, 1, 1}, cluster{0, 0, 0};
  unsigned dynamic_shared = 0;
  int carveout = -1;  // launch attribute
  bool cooperative = false;
  bool programmatic = false;
  std::string stream;  // empty: the default stream; "per_thread": CU_STREAM_PER_THREAD
};

enum class OpKind {
  kLaunch, kRepeat, kMix, kDelay, kSync, kStreamCreate, kStreamDestroy, kCaptureBegin, kCaptureEnd, kGraphBuild,
  kGraphInstantiate, kGraphLaunch, kGraphUpdate, kGraphDestroy, kModuleLoad, kModuleUnload, kSetAttribute, kAlloc,
  kFree, kCopy, kFill, kEventRecord, kEventWait, kEventSync, kBarrier, kEnd
};

struct PlanOp {
  OpKind kind = OpKind::kDelay;
  std::int64_t times = 1;
  int expect = 0;        // CUresult this op must return
  PlanLaunch launch;     // launch
  std::string stream;
  std::string name;      // of the stream, graph, module, event, allocation or kernel it works on
  std::string other;     // exec, mode, kind, attribute
  std::int64_t value = 0;
  std::uint64_t seed = 0;
  bool non_blocking = false;
  std::vector<PlanOp> ops;  // repeat, mix, graph_build (launches)
};

struct PlanThread {
  std::int64_t count = 1;
  double rate = 0;  // launches per second and thread; 0: as fast as it goes
  bool own_context = false;
  std::vector<PlanOp> ops;
};

struct Plan {
  std::vector<PlanModule> modules;
  std::vector<std::string> kernel_ids;  // every kernel of every module, in order
  std::vector<PlanThread> threads;

  std::size_t thread_count() const;
  const PlanModule* find_module(const std::string& id) const;
};

Plan read_plan(const std::string& path);

}  // namespace gpuflight::sim
