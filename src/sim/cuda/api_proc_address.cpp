// cuGetProcAddress: from a base name and the CUDA version a program was built for to one of the exported functions.
#include "sim/cuda/trace.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

using namespace gpuflight::sim;

namespace {

// Versioned entry points that came later than CUDA 3.2, and since when the base name means them.
struct Versioned {
  const char* base;
  int since;
  const char* name;
};
constexpr Versioned kVersioned[] = {
    {"cuCtxCreate", 13000, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuDevicePrimaryCtxSetFlags", 11000, "cuDevicePrimaryCtxSetFlags_v2"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
};
constexpr int kSecondVersions = 3020;  // the 64-bit forms: every other _v2

// This library, whatever else in the process exports the same names.
void* self() {
  static void* const handle = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&cuGetProcAddress_v2), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return handle;
}

void* exported(const std::string& name, bool per_thread) {
  if (per_thread) {
    for (const char* suffix : {"_ptsz", "_ptds"}) {
      if (void* found = dlsym(self(), (name + suffix).c_str())) return found;
    }
  }
  return dlsym(self(), name.c_str());
}

void* look_up(const char* symbol, int version, bool per_thread) {
  // Only what the driver documents; dlsym would also find libc's names in our dependencies.
  if (std::strncmp(symbol, "cu", 2) != 0) return nullptr;
  bool listed = false;
  for (const Versioned& v : kVersioned) {
    if (std::strcmp(v.base, symbol) != 0) continue;
    listed = true;
    if (version >= v.since) return exported(v.name, per_thread);
  }
  if (!listed || std::strcmp(symbol, "cuCtxCreate") == 0) {
    if (version >= kSecondVersions) {
      if (void* found = exported(std::string(symbol) + "_v2", per_thread)) return found;
    }
  }
  return exported(symbol, per_thread);
}

CUresult resolve(const char* symbol, void** out, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = look_up(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (status != nullptr) {
    *status = *out != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  SIM_TRACED(cuGetProcAddress, (symbol, pfn, cudaVersion, flags),
             { return resolve(symbol, pfn, cudaVersion, flags, nullptr); });
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  SIM_TRACED(cuGetProcAddress_v2, (symbol, pfn, cudaVersion, flags, symbolStatus),
             { return resolve(symbol, pfn, cudaVersion, flags, symbolStatus); });
}

}  // extern "C"
