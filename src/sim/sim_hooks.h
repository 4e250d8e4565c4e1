// The border between the simulated libcuda and the simulated libcupti: what CUPTI switches on in the driver, and what
// the driver tells CUPTI. Lives in libcuda; libcupti reaches it through gpuflight_sim_hooks().
// Threads: any. Everything an app thread reads on its way is a relaxed atomic load.
#pragma once

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace gpuflight::sim {

// A piece of work on the virtual timeline. Times are CLOCK_MONOTONIC ns and may lie in the future.
struct Execution {
  std::uint32_t device = 0;
  std::uint32_t context_uid = 0;
  std::uint32_t stream_id = 0;
  std::uint32_t correlation = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t graph_node_id = 0;
  std::uint32_t graph_id = 0;
  const std::atomic<int>* context_error = nullptr;  // sticky error of its context; outlives the context
};

struct KernelExecution : Execution {
  const char* name = nullptr;  // interned, never freed
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t cluster[3] = {0, 0, 0};
  std::int32_t registers = 0;
  std::int32_t static_shared_bytes = 0;
  std::int32_t dynamic_shared_bytes = 0;
  std::int32_t local_bytes = 0;
  std::int32_t carveout = -1;  // asked for by this launch or its function; -1: nobody asked
  bool cooperative = false;
};

struct CopyExecution : Execution {
  CUpti_ActivityMemcpyKind kind = CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN;
  CUpti_ActivityMemoryKind source = CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
  CUpti_ActivityMemoryKind destination = CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
  std::uint64_t bytes = 0;
  bool async = false;
  std::uint32_t source_device = 0, destination_device = 0;  // of copies between devices
};

struct FillExecution : Execution {
  CUpti_ActivityMemoryKind memory = CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
  std::uint64_t bytes = 0;
  std::uint32_t value = 0;
  bool async = false;
};

struct GraphExecution : Execution {};

struct SimHooks {
  std::atomic<CUpti_CallbackFunc> callback{nullptr};
  std::atomic<void*> userdata{nullptr};
  std::array<std::atomic<std::uint8_t>, CUPTI_DRIVER_TRACE_CBID_SIZE> driver_enabled{};
  std::array<std::atomic<std::uint8_t>, CUPTI_CBID_RESOURCE_SIZE> resource_enabled{};
  std::array<std::atomic<std::uint8_t>, CUPTI_CBID_SYNCHRONIZE_SIZE> synchronize_enabled{};
  // Set while CUPTI wants to hear of such work. `on_graph`: of graphs as a whole, and not of what is in them.
  std::atomic<void (*)(const KernelExecution&)> on_kernel{nullptr};
  std::atomic<void (*)(const CopyExecution&)> on_copy{nullptr};
  std::atomic<void (*)(const FillExecution&)> on_fill{nullptr};
  std::atomic<void (*)(const GraphExecution&)> on_graph{nullptr};
  std::atomic<bool> activity{false};  // any of them
  std::atomic<bool> graph_instantiated{false};
  std::atomic<std::uint32_t> next_correlation{1};
};

}  // namespace gpuflight::sim

extern "C" {
gpuflight::sim::SimHooks* gpuflight_sim_hooks();
// 0, or a CUresult. They answer what cuptiGetContextId and friends need without firing callbacks.
CUresult gpuflight_sim_context_ids(CUcontext context, std::uint32_t* uid, std::uint32_t* device);
CUresult gpuflight_sim_stream_id(CUcontext context, CUstream stream, bool per_thread, std::uint32_t* id);
CUresult gpuflight_sim_graph_id(CUgraph graph, std::uint32_t* id);
CUresult gpuflight_sim_graph_exec_id(CUgraphExec exec, std::uint32_t* id);
CUresult gpuflight_sim_graph_node_id(CUgraphNode node, std::uint64_t* id);
}
