#include "sim/cuda/trace.h"

#include "sim/sim_config_access.h"

namespace gpuflight::sim {
namespace {

void fire(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
  SimHooks& h = hooks();
  const CUpti_CallbackFunc callback = h.callback.load(std::memory_order_acquire);
  if (callback != nullptr) callback(h.userdata.load(std::memory_order_relaxed), domain, cbid, data);
}

}  // namespace

const char* symbol_of(CUfunction f) {
  const KernelState* state = kernel_state(f);
  return state != nullptr ? state->name : nullptr;
}

void fill_context(CUpti_CallbackData& data) {
  const Context* context = driver().contexts.find(thread_state().current);
  data.context = reinterpret_cast<CUcontext>(const_cast<Context*>(context));
  data.contextUid = context != nullptr ? context->uid : 0;
}

void fire_api(CUpti_CallbackId cbid, const CUpti_CallbackData& data) {
  if (hooks().driver_enabled[cbid].load(std::memory_order_relaxed) == 0) return;
  fire(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
}

void fire_resource(CUpti_CallbackIdResource cbid, Context* context, CUstream stream, void* descriptor) {
  if (!resource_wanted(cbid)) return;
  CUpti_ResourceData data{};
  data.context = reinterpret_cast<CUcontext>(context);
  data.resourceHandle.stream = stream;
  data.resourceDescriptor = descriptor;
  fire(CUPTI_CB_DOMAIN_RESOURCE, cbid, &data);
}

void fire_graph(CUpti_CallbackIdResource cbid, const CUpti_GraphData& graph) {
  CUpti_GraphData copy = graph;
  fire_resource(cbid, driver().contexts.find(thread_state().current), nullptr, &copy);
}

void fire_synchronize(CUpti_CallbackIdSync cbid, Context* context, CUstream stream) {
  if (hooks().synchronize_enabled[cbid].load(std::memory_order_relaxed) == 0) return;
  CUpti_SynchronizeData data{reinterpret_cast<CUcontext>(context), stream};
  fire(CUPTI_CB_DOMAIN_SYNCHRONIZE, cbid, &data);
}

}  // namespace gpuflight::sim

using namespace gpuflight::sim;

extern "C" {

SimHooks* gpuflight_sim_hooks() { return &hooks(); }

const SimConfig* gpuflight_sim_config() { return &sim_config(); }

CUresult gpuflight_sim_context_ids(CUcontext handle, std::uint32_t* uid, std::uint32_t* device) {
  const Context* context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *uid = context->uid;
  *device = static_cast<std::uint32_t>(context->device);
  return CUDA_SUCCESS;
}

CUresult gpuflight_sim_stream_id(CUcontext handle, CUstream stream, bool per_thread, std::uint32_t* id) {
  Context* context = driver().contexts.find(handle != nullptr ? static_cast<void*>(handle) : thread_state().current);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* found = nullptr;
  if (const CUresult error = find_stream(*context, stream, per_thread, &found)) return error;
  if (handle != nullptr && found->context != context) return CUDA_ERROR_INVALID_HANDLE;
  *id = found->id;
  return CUDA_SUCCESS;
}

CUresult gpuflight_sim_graph_id(CUgraph handle, std::uint32_t* id) {
  const Graph* graph = driver().graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = graph->id;
  return CUDA_SUCCESS;
}

CUresult gpuflight_sim_graph_exec_id(CUgraphExec handle, std::uint32_t* id) {
  const GraphExec* exec = driver().graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = exec->id;
  return CUDA_SUCCESS;
}

CUresult gpuflight_sim_graph_node_id(CUgraphNode handle, std::uint64_t* id) {
  const GraphNode* node = driver().graph_nodes.find(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = node->id;
  return CUDA_SUCCESS;
}

}  // extern "C"
