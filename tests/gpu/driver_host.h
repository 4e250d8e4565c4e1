// What the driver-API programs of the timeline checks begin with: a context on the first device, a module, clocks.
#pragma once

#include <cuda.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_image.h"

namespace gpuflight::gpu_tests {

inline void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s (%d)\n", what, name, static_cast<int>(result));
  std::_Exit(1);
}

// The clock by which a log's t0_monotonic_ns is told.
inline std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// "--name VALUE" pairs, each of them known; "--simulated" stands alone.
class Arguments {
 public:
  Arguments(int argc, char** argv, std::vector<std::pair<std::string, long>> known) : numbers_(std::move(known)) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view option = argv[i];
      if (option == "--simulated") {
        simulated = true;
        continue;
      }
      long* const number = find(option.starts_with("--") ? option.substr(2) : option);
      if (number == nullptr || i + 1 >= argc || (*number = std::atol(argv[++i])) < 0) {
        std::fprintf(stderr, "not understood: %s\n", argv[i]);
        std::exit(2);
      }
    }
  }
  long operator[](std::string_view name) const { return *const_cast<Arguments*>(this)->find(name); }

  bool simulated = false;

 private:
  long* find(std::string_view name) {
    for (auto& [known, number] : numbers_) {
      if (known == name) return &number;
    }
    return nullptr;
  }
  std::vector<std::pair<std::string, long>> numbers_;
};

class Device {
 public:
  Device() {
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device_, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
    make_current();
  }
  void make_current() const { must(cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

class Module {
 public:
  Module(const std::vector<KernelSpec>& kernels, bool simulated) {
    must(cuModuleLoadData(&module_, module_text(kernels, simulated).c_str()), "cuModuleLoadData");
  }
  CUfunction function(const std::string& name) const {
    CUfunction found = nullptr;
    must(cuModuleGetFunction(&found, module_, name.c_str()), "cuModuleGetFunction");
    return found;
  }

 private:
  CUmodule module_ = nullptr;
};

inline CUstream new_stream() {
  CUstream stream = nullptr;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

inline CUevent new_event(unsigned flags = CU_EVENT_DEFAULT) {
  CUevent made = nullptr;
  must(cuEventCreate(&made, flags), "cuEventCreate");
  return made;
}

inline void launch(CUfunction kernel, CUstream stream) {
  must(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
}

// A graph of `nodes` kernels, one after the other.
inline CUgraphExec chain_of(CUfunction kernel, long nodes) {
  CUgraph graph = nullptr;
  must(cuGraphCreate(&graph, 0), "cuGraphCreate");
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 32;
  CUgraphNode last = nullptr;
  for (long i = 0; i < nodes; ++i) {
    CUgraphNode node = nullptr;
    must(cuGraphAddKernelNode(&node, graph, i > 0 ? &last : nullptr, i > 0 ? 1 : 0, &params), "cuGraphAddKernelNode");
    last = node;
  }
  CUgraphExec exec = nullptr;
  must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  return exec;
}

}  // namespace gpuflight::gpu_tests
