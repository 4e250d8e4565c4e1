// Contexts: the primary ones of runtime programs, and those a driver-API program makes itself.
#include "sim/cuda/trace.h"

using namespace gpuflight::sim;

namespace {

CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

CUresult check_device(CUdevice device) {
  if (!driver().initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < std::min(sim_config().device_count, kMaxDevices) ? CUDA_SUCCESS
                                                                                  : CUDA_ERROR_INVALID_DEVICE;
}

CUresult push(Context* context) {
  ThreadState& thread = thread_state();
  if (thread.depth == ThreadState::kMaxDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  thread.stack[thread.depth++] = thread.current;
  thread.current = context;
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* out) {
  ThreadState& thread = thread_state();
  if (thread.current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = handle_of(thread.current);
  thread.current = thread.depth > 0 ? thread.stack[--thread.depth] : nullptr;
  return CUDA_SUCCESS;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = create_context(device, flags, false);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = handle_of(context);
  return push(context);
}

CUresult destroy(CUcontext handle) {
  Context* context = driver().contexts.find(handle);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (thread_state().current == context) pop(nullptr);
  destroy_context(context);
  return CUDA_SUCCESS;
}

CUresult retain_primary(CUcontext* out, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  Driver& d = driver();
  const std::lock_guard lock(d.primary_mutex);
  if (d.primary[device] == nullptr) d.primary[device] = create_context(device, d.primary_flags[device], true);
  if (d.primary[device] == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ++d.primary_references[device];
  *out = handle_of(d.primary[device]);
  return CUDA_SUCCESS;
}

CUresult drop_primary(CUdevice device, bool reset) {
  if (const CUresult error = check_device(device)) return error;
  Driver& d = driver();
  const std::lock_guard lock(d.primary_mutex);
  Context* context = d.primary[device];
  if (context == nullptr) return reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (!reset && --d.primary_references[device] > 0) return CUDA_SUCCESS;
  d.primary[device] = nullptr;
  d.primary_references[device] = 0;
  destroy_context(context);
  return CUDA_SUCCESS;
}

CUresult synchronize(Context& context) {
  if (const CUresult error = check_unsafe_call()) return error;
  std::int64_t end = context.orphaned_end_ns.load(std::memory_order_relaxed);
  {
    const std::lock_guard lock(context.mutex);
    for (const Stream* stream : context.streams) end = std::max(end, stream->end_ns.load(std::memory_order_relaxed));
  }
  wait_until(context, end);
  fire_synchronize(CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED, &context, nullptr);
  return sticky_error(context);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  SIM_TRACED(cuCtxCreate_v2, (pctx, flags, dev), { return create(pctx, flags, dev); });
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams, unsigned int flags,
                                CUdevice dev) {
  SIM_TRACED(cuCtxCreate_v3, (pctx, paramsArray, numParams, flags, dev), { return create(pctx, flags, dev); });
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                                CUdevice dev) {
  SIM_TRACED(cuCtxCreate_v4, (pctx, ctxCreateParams, flags, dev), { return create(pctx, flags, dev); });
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx) {
  SIM_TRACED(cuCtxDestroy_v2, (ctx), { return destroy(ctx); });
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx) {
  SIM_TRACED(cuCtxPushCurrent_v2, (ctx), {
    Context* context = driver().contexts.find(ctx);
    return context != nullptr ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
  });
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* pctx) {
  SIM_TRACED(cuCtxPopCurrent_v2, (pctx), { return pop(pctx); });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx) {
  SIM_TRACED(cuCtxSetCurrent, (ctx), {
    Context* context = driver().contexts.find(ctx);
    if (ctx != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    thread_state().current = context;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* pctx) {
  SIM_TRACED(cuCtxGetCurrent, (pctx), {
    if (!driver().initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
    *pctx = handle_of(driver().contexts.find(thread_state().current));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  SIM_TRACED(cuCtxGetDevice, (device), {
    const Context* context = driver().contexts.find(thread_state().current);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  SIM_TRACED(cuCtxGetFlags, (flags), {
    const Context* context = driver().contexts.find(thread_state().current);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *flags = context->flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  SIM_TRACED(cuCtxGetId, (ctx, ctxId), {
    const void* handle = ctx != nullptr ? static_cast<const void*>(ctx) : thread_state().current;
    const Context* context = driver().contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *ctxId = context->uid;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  SIM_TRACED(cuCtxGetApiVersion, (ctx, version), {
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize() {
  SIM_TRACED(cuCtxSynchronize, (), {
    Context* context = nullptr;
    if (const CUresult error = current_context(&context)) return error;
    return synchronize(*context);
  });
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) {
  SIM_TRACED(cuCtxSynchronize_v2, (ctx), {
    Context* context = driver().contexts.find(ctx);
    if (ctx != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context == nullptr) {
      if (const CUresult error = current_context(&context)) return error;
    }
    return synchronize(*context);
  });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  SIM_TRACED(cuCtxGetStreamPriorityRange, (leastPriority, greatestPriority), {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  SIM_TRACED(cuCtxGetLimit, (pvalue, limit), {
    *pvalue = limit == CU_LIMIT_STACK_SIZE ? 1024 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
  SIM_TRACED(cuCtxSetCacheConfig, (config), { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  SIM_TRACED(cuDevicePrimaryCtxRetain, (pctx, dev), { return retain_primary(pctx, dev); });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  SIM_TRACED(cuDevicePrimaryCtxRelease_v2, (dev), { return drop_primary(dev, false); });
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  SIM_TRACED(cuDevicePrimaryCtxReset_v2, (dev), { return drop_primary(dev, true); });
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  SIM_TRACED(cuDevicePrimaryCtxSetFlags_v2, (dev, flags), {
    if (const CUresult error = check_device(dev)) return error;
    const std::lock_guard lock(driver().primary_mutex);
    driver().primary_flags[dev] = flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  SIM_TRACED(cuDevicePrimaryCtxGetState, (dev, flags, active), {
    if (const CUresult error = check_device(dev)) return error;
    const std::lock_guard lock(driver().primary_mutex);
    *flags = driver().primary_flags[dev];
    *active = driver().primary[dev] != nullptr;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
