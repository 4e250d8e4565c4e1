// The driver functions that we call ourselves, by dlsym from the libcuda that is in the process. Each may be missing
// (an older driver); callers check. Calls from inside a callback need the thread's `inside` guard, or they come back.
#pragma once

#include <cuda.h>

#include "capture/shared_object.h"

#if CUDA_VERSION < 12030  // built with older headers, it still finds the function in a newer driver
extern "C" CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc);
#endif

// name in the struct, symbol in the library, prototype's name in cuda.h
#define GPUFLIGHT_DRIVER_FUNCTIONS(X)                                                             \
  X(driver_get_version, "cuDriverGetVersion", cuDriverGetVersion)                                 \
  X(device_get_count, "cuDeviceGetCount", cuDeviceGetCount)                                       \
  X(device_get, "cuDeviceGet", cuDeviceGet)                                                       \
  X(device_get_name, "cuDeviceGetName", cuDeviceGetName)                                          \
  X(device_get_uuid, "cuDeviceGetUuid_v2", cuDeviceGetUuid)                                       \
  X(device_get_attribute, "cuDeviceGetAttribute", cuDeviceGetAttribute)                           \
  X(device_total_mem, "cuDeviceTotalMem_v2", cuDeviceTotalMem)                                    \
  X(device_get_pci_bus_id, "cuDeviceGetPCIBusId", cuDeviceGetPCIBusId)                            \
  X(ctx_get_device, "cuCtxGetDevice", cuCtxGetDevice)                                             \
  X(ctx_get_current, "cuCtxGetCurrent", cuCtxGetCurrent)                                          \
  X(ctx_push_current, "cuCtxPushCurrent_v2", cuCtxPushCurrent)                                    \
  X(ctx_pop_current, "cuCtxPopCurrent_v2", cuCtxPopCurrent)                                       \
  X(primary_ctx_get_state, "cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState)              \
  X(func_get_attribute, "cuFuncGetAttribute", cuFuncGetAttribute)                                 \
  X(func_get_name, "cuFuncGetName", cuFuncGetName)                                                \
  X(kernel_get_function, "cuKernelGetFunction", cuKernelGetFunction)                              \
  X(occupancy_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                              \
    cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                  \
  X(occupancy_clusters, "cuOccupancyMaxActiveClusters", cuOccupancyMaxActiveClusters)             \
  X(stream_is_capturing, "cuStreamIsCapturing", cuStreamIsCapturing)                              \
  X(stream_is_capturing_ptsz, "cuStreamIsCapturing_ptsz", cuStreamIsCapturing)                    \
  X(stream_get_priority, "cuStreamGetPriority", cuStreamGetPriority)                              \
  X(stream_get_flags, "cuStreamGetFlags", cuStreamGetFlags)                                       \
  X(stream_get_ctx, "cuStreamGetCtx", cuStreamGetCtx)                                             \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode) \
  X(stream_write_value, "cuStreamWriteValue32_v2", cuStreamWriteValue32)                          \
  X(stream_write_value_ptsz, "cuStreamWriteValue32_v2_ptsz", cuStreamWriteValue32)                \
  X(mem_host_register, "cuMemHostRegister_v2", cuMemHostRegister)                                 \
  X(mem_host_unregister, "cuMemHostUnregister", cuMemHostUnregister)                              \
  X(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2", cuMemHostGetDevicePointer)       \
  X(event_create, "cuEventCreate", cuEventCreate)                                                 \
  X(event_record, "cuEventRecord", cuEventRecord)                                                 \
  X(event_record_ptsz, "cuEventRecord_ptsz", cuEventRecord)                                       \
  X(event_query, "cuEventQuery", cuEventQuery)                                                    \
  X(event_elapsed_time, "cuEventElapsedTime", cuEventElapsedTime)                                 \
  X(get_error_name, "cuGetErrorName", cuGetErrorName)                                             \
  X(graph_get_nodes, "cuGraphGetNodes", cuGraphGetNodes)                                          \
  X(graph_node_get_type, "cuGraphNodeGetType", cuGraphNodeGetType)                                \
  X(graph_child_get_graph, "cuGraphChildGraphNodeGetGraph", cuGraphChildGraphNodeGetGraph)        \
  X(graph_kernel_get_attribute, "cuGraphKernelNodeGetAttribute", cuGraphKernelNodeGetAttribute)   \
  X(graph_kernel_get_params_v2, "cuGraphKernelNodeGetParams_v2", cuGraphKernelNodeGetParams)

namespace gpuflight::capture {

struct DriverApi {
#define GPUFLIGHT_MEMBER(member, name, prototype) decltype(&::prototype) member = nullptr;
  GPUFLIGHT_DRIVER_FUNCTIONS(GPUFLIGHT_MEMBER)
#undef GPUFLIGHT_MEMBER
  // Has a macro for its newest version in cuda.h, so that its own name gives the younger prototype.
  CUresult(CUDAAPI* graph_kernel_get_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1*) = nullptr;

  void load(const SharedObject& libcuda) noexcept;
};

// While it lives, driver calls of ours cannot invalidate a graph capture of the host's on another thread.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& driver) noexcept : driver_(driver) {
    if (driver_.exchange_capture_mode != nullptr) exchanged_ = driver_.exchange_capture_mode(&mode_) == CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (exchanged_) driver_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_ = false;
};

}  // namespace gpuflight::capture
