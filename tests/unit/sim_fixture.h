// The simulated device reads its configuration once per process: each test that needs one of its own runs in a child.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "sim/module_image.h"

namespace gpuflight::sim::test {

using Environment = std::map<std::string, std::string>;

// Runs `body` in a forked child with these variables. Its failed expectations are printed, and fail the test here.
template <class Body>
void in_child(const Environment& environment, Body&& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    body();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << "the child ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the child's failures above";
}

inline KernelImage kernel(const std::string& name, int registers = 16, int static_shared = 0) {
  KernelImage k;
  k.name = name;
  k.registers = registers;
  k.static_shared_bytes = static_shared;
  return k;
}

// A primary context, current on this thread.
inline CUcontext start() {
  CUcontext context = nullptr;
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  return context;
}

inline CUmodule load(const ModuleImage& image) {
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, write_image(image).data()), CUDA_SUCCESS);
  return module;
}

inline CUfunction function(CUmodule module, const std::string& name) {
  CUfunction f = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&f, module, name.c_str()), CUDA_SUCCESS);
  return f;
}

inline CUresult launch(CUfunction f, unsigned grid, unsigned block, unsigned shared = 0, CUstream stream = nullptr) {
  return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, stream, nullptr, nullptr);
}

}  // namespace gpuflight::sim::test
