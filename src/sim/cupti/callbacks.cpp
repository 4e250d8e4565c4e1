// Subscription, callback switches, ids. One subscriber at a time, as CUPTI 13.0 has it.
#include <cupti.h>

#include <cstring>
#include <mutex>
#include <string>

#include "sim/sim_config_access.h"
#include "sim/sim_hooks.h"

using namespace gpuflight::sim;

struct CUpti_Subscriber_st {
  std::string name;
};

namespace {

std::mutex mutex;
CUpti_SubscriberHandle holder = nullptr;  // under mutex

bool too_new() { return gpuflight_sim_config()->cupti_too_new; }

// Drops the old name where the caller asked for it.
void tell_holder(CUpti_SubscriberParams* params, const std::string& name) {
  if (params == nullptr || params->oldSubscriberName == nullptr || params->oldSubscriberSize == 0) return;
  const std::size_t n = std::min(name.size(), params->oldSubscriberSize - 1);
  std::memcpy(params->oldSubscriberName, name.data(), n);
  params->oldSubscriberName[n] = '\0';
}

CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* userdata,
                      CUpti_SubscriberParams* params) {
  if (too_new()) return CUPTI_ERROR_NOT_INITIALIZED;
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(mutex);
  if (gpuflight_sim_config()->subscriber_taken) {
    tell_holder(params, "Nsight Systems");
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  if (holder != nullptr) {
    tell_holder(params, holder->name);
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  holder = new CUpti_Subscriber_st;
  holder->name = "CUPTI";
  if (params != nullptr && params->subscriberName != nullptr) {
    holder->name = std::string("CUPTI for ") + params->subscriberName;
  }
  SimHooks& hooks = *gpuflight_sim_hooks();
  hooks.userdata.store(userdata);
  hooks.callback.store(callback);
  *subscriber = holder;
  return CUPTI_SUCCESS;
}

template <class Table>
void set_all(Table& table, bool on) {
  for (std::size_t i = 1; i < table.size(); ++i) table[i].store(on, std::memory_order_relaxed);
}

std::atomic<std::uint8_t>* find_switch(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  SimHooks& hooks = *gpuflight_sim_hooks();
  const auto in = [&](auto& table) { return cbid > 0 && cbid < table.size() ? &table[cbid] : nullptr; };
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API: return in(hooks.driver_enabled);
    case CUPTI_CB_DOMAIN_RESOURCE: return in(hooks.resource_enabled);
    case CUPTI_CB_DOMAIN_SYNCHRONIZE: return in(hooks.synchronize_enabled);
    default: return nullptr;
  }
}

CUptiResult enable_domain(bool on, CUpti_CallbackDomain domain) {
  SimHooks& hooks = *gpuflight_sim_hooks();
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API: set_all(hooks.driver_enabled, on); return CUPTI_SUCCESS;
    case CUPTI_CB_DOMAIN_RESOURCE: set_all(hooks.resource_enabled, on); return CUPTI_SUCCESS;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE: set_all(hooks.synchronize_enabled, on); return CUPTI_SUCCESS;
    case CUPTI_CB_DOMAIN_RUNTIME_API:  // there is no runtime, no NVTX and no state change here: accepted, never fires
    case CUPTI_CB_DOMAIN_NVTX:
    case CUPTI_CB_DOMAIN_STATE: return CUPTI_SUCCESS;
    default: return CUPTI_ERROR_INVALID_PARAMETER;
  }
}

bool is_holder(CUpti_SubscriberHandle subscriber) { return subscriber != nullptr && subscriber == holder; }

CUptiResult of_driver(CUresult result, CUptiResult otherwise) {
  return result == CUDA_SUCCESS ? CUPTI_SUCCESS : otherwise;
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* userdata) {
  return subscribe(subscriber, callback, userdata, nullptr);
}

CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* userdata,
                                       CUpti_SubscriberParams* pParams) {
  if (pParams != nullptr && pParams->structSize < CUpti_SubscriberParams_STRUCT_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return subscribe(subscriber, callback, userdata, pParams);
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock(mutex);
  if (!is_holder(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  for (int d = CUPTI_CB_DOMAIN_DRIVER_API; d < CUPTI_CB_DOMAIN_SIZE; ++d) {
    enable_domain(false, static_cast<CUpti_CallbackDomain>(d));
  }
  gpuflight_sim_hooks()->callback.store(nullptr);
  delete holder;
  holder = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  const std::lock_guard lock(mutex);
  if (!is_holder(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API || domain == CUPTI_CB_DOMAIN_NVTX || domain == CUPTI_CB_DOMAIN_STATE) {
    return CUPTI_SUCCESS;
  }
  std::atomic<std::uint8_t>* found = find_switch(domain, cbid);
  if (found == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  found->store(enable != 0);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle subscriber,
                                           CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  const std::lock_guard lock(mutex);
  const std::atomic<std::uint8_t>* found = find_switch(domain, cbid);
  if (!is_holder(subscriber) || enable == nullptr || found == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *enable = found->load();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                       CUpti_CallbackDomain domain) {
  const std::lock_guard lock(mutex);
  if (!is_holder(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  return enable_domain(enable != 0, domain);
}

CUptiResult CUPTIAPI cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock(mutex);
  if (!is_holder(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  for (int d = CUPTI_CB_DOMAIN_DRIVER_API; d < CUPTI_CB_DOMAIN_SIZE; ++d) {
    enable_domain(enable != 0, static_cast<CUpti_CallbackDomain>(d));
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSupportedDomains(size_t* domainCount, CUpti_DomainTable* domainTable) {
  static CUpti_CallbackDomain table[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RESOURCE,
                                         CUPTI_CB_DOMAIN_SYNCHRONIZE};
  if (domainCount == nullptr || domainTable == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *domainCount = std::size(table);
  *domainTable = table;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = gpuflight_sim_config()->cupti_version;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetContextId(CUcontext context, uint32_t* contextId) {
  if (too_new()) return CUPTI_ERROR_NOT_INITIALIZED;
  if (contextId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint32_t device = 0;
  return of_driver(gpuflight_sim_context_ids(context, contextId, &device), CUPTI_ERROR_INVALID_CONTEXT);
}

CUptiResult CUPTIAPI cuptiGetDeviceId(CUcontext context, uint32_t* deviceId) {
  if (too_new()) return CUPTI_ERROR_NOT_INITIALIZED;
  if (deviceId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint32_t uid = 0;
  return of_driver(gpuflight_sim_context_ids(context, &uid, deviceId), CUPTI_ERROR_INVALID_CONTEXT);
}

CUptiResult CUPTIAPI cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t* streamId) {
  return cuptiGetStreamIdEx(context, stream, 0, streamId);
}

CUptiResult CUPTIAPI cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                                        uint32_t* streamId) {
  if (too_new()) return CUPTI_ERROR_NOT_INITIALIZED;
  if (streamId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return of_driver(gpuflight_sim_stream_id(context, stream, perThreadStream != 0, streamId),
                   CUPTI_ERROR_INVALID_STREAM);
}

CUptiResult CUPTIAPI cuptiGetGraphId(CUgraph graph, uint32_t* pId) {
  if (pId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return of_driver(gpuflight_sim_graph_id(graph, pId), CUPTI_ERROR_INVALID_PARAMETER);
}

CUptiResult CUPTIAPI cuptiGetGraphExecId(CUgraphExec graphExec, uint32_t* pId) {
  if (pId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return of_driver(gpuflight_sim_graph_exec_id(graphExec, pId), CUPTI_ERROR_INVALID_PARAMETER);
}

CUptiResult CUPTIAPI cuptiGetGraphNodeId(CUgraphNode node, uint64_t* nodeId) {
  if (nodeId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return of_driver(gpuflight_sim_graph_node_id(node, nodeId), CUPTI_ERROR_INVALID_PARAMETER);
}

CUptiResult CUPTIAPI cuptiGetLastError(void) { return CUPTI_SUCCESS; }

CUptiResult CUPTIAPI cuptiFinalize(void) {
  CUpti_SubscriberHandle current = nullptr;
  {
    const std::lock_guard lock(mutex);
    current = holder;
  }
  for (int kind = CUPTI_ACTIVITY_KIND_INVALID; kind < CUPTI_ACTIVITY_KIND_COUNT; ++kind) {
    cuptiActivityDisable(static_cast<CUpti_ActivityKind>(kind));
  }
  return current != nullptr ? cuptiUnsubscribe(current) : CUPTI_SUCCESS;
}

}  // extern "C"
