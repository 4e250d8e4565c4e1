// The simulated driver's one state: pools of handles, contexts, memory, the virtual clock. The cu* functions in the
// other files of this folder are thin doors to what stands here.
// Threads: any. Never destroyed: host threads may call in while the process exits.
#pragma once

#include "sim/cuda/objects.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <map>
#include <string_view>

#include "sim/sim_config.h"

namespace gpuflight::sim {

inline constexpr int kMaxDevices = 16;

struct Allocation {
  std::size_t bytes = 0;
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  bool managed = false;
  Context* context = nullptr;
};

struct Driver {
  std::atomic<bool> initialized{false};
  ContextPool contexts;
  ModulePool modules;
  LibraryPool libraries;
  FunctionPool functions;
  KernelPool kernels;
  StreamPool streams;
  EventPool events;
  GraphPool graphs;
  GraphNodePool graph_nodes;
  GraphExecPool graph_execs;

  // Recursive: a primary context is made under it, and the callback that tells of it may ask for that context.
  std::recursive_mutex primary_mutex;
  std::array<Context*, kMaxDevices> primary{};
  std::array<int, kMaxDevices> primary_references{};
  std::array<unsigned, kMaxDevices> primary_flags{};

  std::mutex mutex;  // everything below
  std::map<std::uintptr_t, Allocation> allocations;
  std::array<std::int64_t, kMaxDevices> used_bytes{};
  std::set<std::shared_ptr<Capture>> captures;
  std::deque<ContextError> context_errors;

  std::atomic<std::uint32_t> next_context{1};
  std::atomic<std::uint32_t> next_module{1};
  std::atomic<std::uint32_t> next_stream{13};  // as CUPTI numbers them: 7 is the legacy default stream
  std::atomic<std::uint32_t> next_graph{1};
  std::atomic<std::uint64_t> next_node{1};
  std::atomic<std::uint64_t> next_capture{1};
  std::atomic<std::uint64_t> launches{0};  // counted only while a fault waits for the N-th
  std::atomic<int> global_captures{0};     // captures in global mode under way, all threads
  std::atomic<int> all_captures{0};        // in any mode
};

Driver& driver();

// Per host thread. Plain data, so that access is one offset from the thread pointer.
struct ThreadState {
  static constexpr int kMaxDepth = 32;
  Context* current = nullptr;
  Context* stack[kMaxDepth];
  int depth = 0;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  int local_captures = 0;  // captures in thread-local mode this thread has begun
  std::uint64_t id = 0;    // made on demand
};

ThreadState& thread_state();
std::uint64_t thread_number();

inline std::int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Writes of streams (cuStreamWriteValue32) that are due by now are done on return.
void settle_writes();

// Sleeps until the virtual time `end_ns` is past, or the context is dead.
void wait_until(const Context& context, std::int64_t end_ns);

// Interned for ever: activity records and callbacks hand such pointers out.
const char* intern(std::string_view name);

void raise_to(std::atomic<std::int64_t>& value, std::int64_t at_least);

// Context of the calling thread and its state: 0, 3 (no cuInit), 201 (no context), or the context's sticky error.
CUresult current_context(Context** context);
CUresult sticky_error(Context& context);

// The stream a handle means for this thread; `per_thread` is the default a null handle stands for.
CUresult find_stream(Context& context, CUstream handle, bool per_thread, Stream** stream);

// Either kind of handle a launch may get. nullptr: neither.
const KernelState* kernel_state(CUfunction handle);
std::shared_ptr<KernelState> share_kernel_state(CUfunction handle);

Context* create_context(int device, unsigned flags, bool primary);
void destroy_context(Context* context);
Stream* create_stream(Context& context, unsigned flags, int priority);
void destroy_stream(Stream* stream);
// What CUPTI calls the memory there, and whose it is; memory that nobody allocated here is pageable.
struct MemoryAt {
  CUpti_ActivityMemoryKind kind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  int device = -1;  // of device memory
};
MemoryAt memory_at(std::uintptr_t address);
// New memory in the current context.
enum class Place { kDevice, kHost, kManaged };
CUresult allocate(std::uintptr_t* out, std::size_t bytes, Place place);
// Caller holds d.mutex and takes it out of the table.
void free_allocation(Driver& d, std::uintptr_t address, const Allocation& a);
Module* load_module(Context& context, const ModuleImage& image, const void* text,
                    const std::vector<std::shared_ptr<KernelState>>& states);
std::vector<std::shared_ptr<KernelState>> make_kernel_states(const ModuleImage& image);
void unload_module(Module* module);

// Calls that CUDA forbids while a capture is under way elsewhere: 900, and that capture is lost.
CUresult check_unsafe_call();

int device_attribute(const event::DeviceInfo& board, int ordinal, CUdevice_attribute attribute, bool* known);

// Blocks one SM holds; negative: a CUresult, negated.
int occupancy_blocks(const KernelState& kernel, int block_threads, std::size_t dynamic_shared_bytes, int carveout);

// The heart: checks, faults, capture, timeline.
CUresult run_launch(Context& context, Stream& stream, const KernelLaunch& launch, std::uint32_t correlation,
                    CUfunction func);
// Work without a kernel on a stream (copies, fills, host functions).
CUresult run_work(Stream& stream, CUgraphNodeType type, std::int64_t duration_ns, const Transfer& transfer = {},
                  std::uint32_t correlation = 0);
CUresult run_graph(Context& context, Stream& stream, GraphExec& exec, std::uint32_t correlation);
// Reserves the next free [start, start + duration) of the stream's timeline.
std::int64_t occupy_timeline(Stream& stream, std::int64_t duration_ns, std::int64_t not_before_ns);

// Leaves the capture the stream takes part in, if any; that capture is lost.
void abandon_capture(Stream& stream);
// Work on the legacy default stream would depend on captured work of a blocking stream: 906, and that capture is lost.
// Only asking (`lose` false) is refused as well but does no harm.
CUresult check_implicit_dependency(const Stream& stream, bool lose);
CUresult join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<GraphNode*>& tail);

Graph* create_graph();
void destroy_graph(Graph* graph);
// Takes a node into a graph and tells CUPTI. nullptr: no room.
GraphNode* add_graph_node(Graph& graph, GraphNode node);

}  // namespace gpuflight::sim
