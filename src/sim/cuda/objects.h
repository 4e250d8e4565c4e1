// What stands behind each driver handle. Ownership follows CUDA's: a context owns modules, streams and events, a module
// its functions, a library its kernels. Handles outlive nothing: their slots are reused at once.
// Threads: any, unless said otherwise; what a launch reads is immutable or atomic.
#pragma once

#include "sim/cuda/driver_headers.h"

#include <cupti_activity.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sim/handle_pool.h"
#include "sim/module_image.h"

namespace gpuflight::sim {

struct Context;
struct Module;
struct Library;
struct Graph;

// A kernel's facts and its settable attributes. Shared by a CUkernel and the CUfunction made of it.
struct KernelState {
  KernelImage image;
  const char* name = nullptr;  // interned: activity records point to it after the module is gone
  std::atomic<int> max_dynamic_shared_bytes{48 * 1024};
  std::atomic<int> carveout{-1};
  std::atomic<int> non_portable_cluster{0};
};

struct Function {
  std::shared_ptr<KernelState> state;
  Module* module = nullptr;
  // cuFuncSetBlockShape and cuFuncSetSharedSize: what the legacy launches use.
  std::array<int, 3> block_shape{0, 0, 0};
  unsigned shared_size = 0;
};

struct Kernel {
  std::shared_ptr<KernelState> state;
  Library* library = nullptr;
};

struct Module {
  Context* context = nullptr;
  std::uint32_t id = 0;
  std::string image;
  std::vector<Function*> functions;
};

struct Library {
  std::string image;
  std::vector<Kernel*> kernels;
  std::mutex mutex;
  std::map<std::uint32_t, Module*> modules;  // by context uid, made on demand
};

struct KernelLaunch {
  const KernelState* state = nullptr;
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t cluster[3] = {0, 0, 0};
  std::uint32_t dynamic_shared_bytes = 0;
  std::int32_t carveout = -1;  // launch attribute; -1: not given
  bool cooperative = false;
};

// A copy or a fill, and what CUPTI tells of it.
struct Transfer {
  CUpti_ActivityMemcpyKind kind = CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN;
  CUpti_ActivityMemoryKind source = CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
  CUpti_ActivityMemoryKind destination = CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
  std::uint64_t bytes = 0;
  std::uint32_t value = 0;  // of fills
  bool async = false;       // as called
  std::uint32_t source_device = 0, destination_device = 0;
};

struct GraphNode {
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  KernelLaunch launch;                     // kernel nodes
  std::shared_ptr<KernelState> keep_alive;  // a node may outlive its module
  CUfunction func = nullptr;
  CUkernel kern = nullptr;
  Transfer transfer;                       // copies and fills
  std::int64_t duration_ns = 0;
  Graph* child = nullptr;                  // child graphs: a copy of its own
  bool device_updatable = false;           // kernels may change it while it runs; here none does
  std::vector<GraphNode*> dependencies;
};

struct Graph {
  std::uint32_t id = 0;
  std::vector<GraphNode*> nodes;
};

struct ExecNode {
  std::uint64_t id = 0;
  GraphNode* original = nullptr;  // only compared, never followed
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  KernelLaunch launch;
  std::shared_ptr<KernelState> keep_alive;
  Transfer transfer;
  std::int64_t duration_ns = 0;
  std::vector<std::size_t> dependencies;  // indices, all smaller than its own
  bool enabled = true;
};

struct GraphExec {
  std::uint32_t id = 0;
  unsigned long long flags = 0;
  std::mutex mutex;  // updates against launches
  std::vector<ExecNode> nodes;
};

// One stream capture in progress: all streams that have joined it, and what the next node of each depends on.
struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  // who began it
  std::atomic<bool> invalidated{false};
  std::mutex mutex;
  Graph* graph = nullptr;
  bool owns_graph = true;
  struct Stream* origin = nullptr;
  std::map<struct Stream*, std::vector<GraphNode*>> tails;
};

struct Stream {
  Context* context = nullptr;
  std::uint32_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool per_thread = false;
  std::atomic<std::int64_t> end_ns{0};  // when its last work ends
  std::atomic<bool> capturing{false};
  std::shared_ptr<Capture> capture;  // read only where `capturing` was seen

  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  std::mutex mutex;
  bool recorded = false;
  std::int64_t time_ns = 0;
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_tail;
};

// Of a context, sticky. Never freed: activity records and writes of streams that are still to come refer to it.
struct ContextError {
  std::atomic<int> shown{0};
  std::atomic<int> pending{0};         // shows once at_ns has passed
  std::atomic<std::int64_t> at_ns{0};

  bool dead_by(std::int64_t ns) const {
    return pending.load(std::memory_order_acquire) != 0 && at_ns.load(std::memory_order_relaxed) <= ns;
  }
};

struct Context {
  std::uint32_t uid = 0;
  int device = 0;
  unsigned flags = 0;
  bool primary = false;
  ContextError* error = nullptr;
  Stream* legacy_stream = nullptr;
  std::atomic<std::int64_t> legacy_end_ns{0};    // default-stream work: blocking streams wait for it
  std::atomic<std::int64_t> blocking_end_ns{0};  // latest end on any blocking stream: the default stream waits for it
  std::atomic<std::int64_t> orphaned_end_ns{0};  // of work on streams that were destroyed before it ended
  std::mutex mutex;
  std::set<Module*> modules;
  std::set<Stream*> streams;
  std::set<Event*> events;
};

using ContextPool = HandlePool<Context, 1 << 10>;
using ModulePool = HandlePool<Module, 1 << 16>;
using LibraryPool = HandlePool<Library, 1 << 16>;
using FunctionPool = HandlePool<Function, 1 << 18>;
using KernelPool = HandlePool<Kernel, 1 << 18>;
using StreamPool = HandlePool<Stream, 1 << 18>;
using EventPool = HandlePool<Event, 1 << 20>;
using GraphPool = HandlePool<Graph, 1 << 16>;
using GraphNodePool = HandlePool<GraphNode, 1 << 22>;
using GraphExecPool = HandlePool<GraphExec, 1 << 16>;

}  // namespace gpuflight::sim
