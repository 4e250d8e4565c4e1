// cuInit with its injection door, versions, devices, error names.
#include "sim/cuda/trace.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace gpuflight::sim;

namespace {

// As the driver does it: once, inside the first cuInit, on the calling thread.
void call_injection() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return;
  const auto entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (entry != nullptr) entry();
}

CUresult initialize() {
  static std::once_flag once;
  static CUresult result = CUDA_SUCCESS;
  std::call_once(once, [] {
    const SimConfig& config = sim_config();
    if (!config.complaint.empty()) {
      std::fprintf(stderr, "simulated device: %s\n", config.complaint.c_str());
      result = CUDA_ERROR_SYSTEM_NOT_READY;
      return;
    }
    result = static_cast<CUresult>(config.init_error);
    if (result != CUDA_SUCCESS) return;
    driver().initialized.store(true, std::memory_order_release);
    call_injection();
    fire_resource(CUPTI_CBID_RESOURCE_CU_INIT_FINISHED, nullptr, nullptr, nullptr);
  });
  return result;
}

CUresult check_device(CUdevice device) {
  if (!driver().initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < sim_config().device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult copy_text(char* out, int size, const char* text) {
  if (out == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(out, static_cast<std::size_t>(size), "%s", text);
  return CUDA_SUCCESS;
}

// Stable across runs, different per ordinal.
void make_uuid(CUuuid* uuid, CUdevice device) {
  for (std::size_t i = 0; i < sizeof(uuid->bytes); ++i) {
    uuid->bytes[i] = static_cast<char>(0x51 + 7 * i);
  }
  uuid->bytes[15] = static_cast<char>(device);
}

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

#define SIM_ERROR(CODE, TEXT) {CODE, #CODE, TEXT}
constexpr ErrorText kErrors[] = {
    SIM_ERROR(CUDA_SUCCESS, "no error"),
    SIM_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SIM_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SIM_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SIM_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    SIM_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    SIM_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SIM_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SIM_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    SIM_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    SIM_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    SIM_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    SIM_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    SIM_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    SIM_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SIM_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    SIM_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    SIM_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    SIM_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    SIM_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    SIM_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SIM_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    SIM_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    SIM_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SIM_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              "operation failed due to a previous error during capture"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
              "dependency created on uncaptured work in another stream"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing "
                                                  "blocking stream"),
    SIM_ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
              "attempt to terminate a thread-local capture sequence from another thread"),
    SIM_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed"),
    SIM_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "cluster misconfiguration"),
    SIM_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef SIM_ERROR

const ErrorText* find_error(CUresult code) {
  const auto* found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorText& e) { return e.code == code; });
  return found != std::end(kErrors) ? found : nullptr;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned int Flags) {
  SIM_TRACED(cuInit, (Flags), { return Flags == 0 ? initialize() : CUDA_ERROR_INVALID_VALUE; });
}

CUresult CUDAAPI cuDriverGetVersion(int* driverVersion) {
  SIM_TRACED(cuDriverGetVersion, (driverVersion), {
    if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = sim_config().driver_version;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** pStr) {
  const ErrorText* found = find_error(error);
  *pStr = found != nullptr ? found->name : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** pStr) {
  const ErrorText* found = find_error(error);
  *pStr = found != nullptr ? found->text : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  SIM_TRACED(cuDeviceGetCount, (count), {
    if (!driver().initialized.load()) return CUDA_ERROR_NOT_INITIALIZED;
    *count = sim_config().device_count;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_TRACED(cuDeviceGet, (device, ordinal), {
    if (const CUresult error = check_device(ordinal)) return error;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int len, CUdevice dev) {
  SIM_TRACED(cuDeviceGetName, (name, len, dev), {
    if (const CUresult error = check_device(dev)) return error;
    return copy_text(name, len, sim_config().board.name.c_str());
  });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  SIM_TRACED(cuDeviceGetUuid, (uuid, dev), {
    if (const CUresult error = check_device(dev)) return error;
    make_uuid(uuid, dev);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SIM_TRACED(cuDeviceGetUuid_v2, (uuid, dev), {
    if (const CUresult error = check_device(dev)) return error;
    make_uuid(uuid, dev);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  SIM_TRACED(cuDeviceTotalMem_v2, (bytes, dev), {
    if (const CUresult error = check_device(dev)) return error;
    *bytes = static_cast<size_t>(sim_config().board.global_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  SIM_TRACED(cuDeviceGetAttribute, (pi, attrib, dev), {
    if (const CUresult error = check_device(dev)) return error;
    if (pi == nullptr || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    bool known = false;
    *pi = device_attribute(sim_config().board, dev, attrib, &known);
    return CUDA_SUCCESS;  // an attribute the model does not have reads as 0: the feature is not there
  });
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SIM_TRACED(cuDeviceComputeCapability, (major, minor, dev), {
    if (const CUresult error = check_device(dev)) return error;
    *major = sim_config().board.compute_major;
    *minor = sim_config().board.compute_minor;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  SIM_TRACED(cuDeviceGetPCIBusId, (pciBusId, len, dev), {
    if (const CUresult error = check_device(dev)) return error;
    char text[16];
    std::snprintf(text, sizeof text, "0000:%02X:00.0", static_cast<unsigned>(0x0b + dev));
    return copy_text(pciBusId, len, text);
  });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  SIM_TRACED(cuDeviceGetByPCIBusId, (dev, pciBusId), {
    if (const CUresult error = check_device(0)) return error;
    unsigned domain = 0, bus = 0, device = 0;
    if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &device) != 3) return CUDA_ERROR_INVALID_VALUE;
    *dev = static_cast<CUdevice>(bus) - 0x0b;
    return check_device(*dev);
  });
}

CUresult CUDAAPI cuProfilerStart() {
  SIM_TRACED(cuProfilerStart, (), { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuProfilerStop() {
  SIM_TRACED(cuProfilerStop, (), { return CUDA_SUCCESS; });
}

}  // extern "C"
