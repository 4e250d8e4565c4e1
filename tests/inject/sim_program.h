// What the test hosts need of CUDA: the driver loaded by name, as a program without cudart does, and one kernel.
// Threads: `Cuda` is made by one, its launches may come from any.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sim/module_image.h"

namespace gpuflight::test {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(99);
}

class Cuda {
 public:
  // Empty handle: there is no driver.
  static void* driver() {
    static void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
    return handle;
  }

  template <class Function>
  static Function* symbol(const char* name) {
    auto* const found = reinterpret_cast<Function*>(driver() != nullptr ? dlsym(driver(), name) : nullptr);
    if (found == nullptr) fail(std::string("the driver has no ") + name);
    return found;
  }

  static void check(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) fail(std::string(what) + ": " + std::to_string(result));
  }

  // cuInit, the primary context, and a module of `kernels`.
  explicit Cuda(const std::vector<sim::KernelImage>& kernels) {
    check(symbol<decltype(::cuInit)>("cuInit")(0), "cuInit");
    CUdevice device = 0;
    check(symbol<decltype(::cuDeviceGet)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
    check(symbol<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context_, device), "context");
    use();
    launch_ = symbol<decltype(::cuLaunchKernel)>("cuLaunchKernel");
    launch_per_thread_ = symbol<decltype(::cuLaunchKernel)>("cuLaunchKernel_ptsz");
    sim::ModuleImage image;
    image.kernels = kernels;
    const std::string text = sim::write_image(image);
    CUmodule module = nullptr;
    check(symbol<decltype(::cuModuleLoadData)>("cuModuleLoadData")(&module, text.data()), "cuModuleLoadData");
    for (const sim::KernelImage& kernel : kernels) {
      CUfunction function = nullptr;
      check(symbol<decltype(::cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, kernel.name.c_str()),
            "cuModuleGetFunction");
      functions_.push_back(function);
    }
  }

  // Makes the context current on the calling thread.
  void use() const { check(symbol<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context_), "cuCtxSetCurrent"); }

  CUresult launch(unsigned grid, std::size_t kernel = 0, unsigned block = 64, CUstream stream = nullptr) const {
    void* parameters[] = {nullptr};
    return launch_(functions_[kernel], grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
  }
  CUresult launch_per_thread(unsigned grid, std::size_t kernel = 0) const {
    void* parameters[] = {nullptr};
    return launch_per_thread_(functions_[kernel], grid, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr);
  }
  void launch_times(int times, unsigned grid) const {
    for (int i = 0; i < times; ++i) check(launch(grid), "launch");
  }

  CUstream stream() const {
    CUstream created = nullptr;
    check(symbol<decltype(::cuStreamCreate)>("cuStreamCreate")(&created, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return created;
  }
  CUfunction function(std::size_t kernel) const { return functions_[kernel]; }

 private:
  CUcontext context_ = nullptr;
  decltype(&::cuLaunchKernel) launch_ = nullptr;
  decltype(&::cuLaunchKernel) launch_per_thread_ = nullptr;
  std::vector<CUfunction> functions_;
};

// By the name in the library; the arguments must be of the very types that the driver declares.
template <class... Arguments>
CUresult call(const char* name, Arguments... arguments) {
  return Cuda::symbol<CUresult(Arguments...)>(name)(arguments...);
}

inline sim::KernelImage kernel_named(std::string name, int registers = 16, std::int64_t duration_ns = 500) {
  sim::KernelImage kernel;
  kernel.name = std::move(name);
  kernel.registers = registers;
  kernel.duration_ns = duration_ns;
  return kernel;
}

}  // namespace gpuflight::test
