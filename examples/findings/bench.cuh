// What the cases share: a kernel that runs for a given time, memory, streams.
#pragma once

#include <unistd.h>

#include "../example.cuh"

namespace findings {

// Every block runs for so many cycles; kTag makes kernels of different names.
template <int kTag>
__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

struct Bench {
  bool bad;
  int sms = 0, khz = 0;

  explicit Bench(bool is_bad) : bad(is_bad) {
    CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CUDA_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  }
  long long cycles(double us) const { return static_cast<long long>(us * khz / 1000); }
  int wave() const { return 8 * sms; }  // blocks of 256 threads that an SM of 2048 threads holds, times SMs

  template <int kTag = 0>
  void launch(double us, int blocks, cudaStream_t stream) const {
    spin<kTag><<<blocks, 256, 0, stream>>>(cycles(us));
    CUDA_CHECK(cudaGetLastError());
  }
};

// The first launch of a kernel loads it, which takes milliseconds: not to be part of what is shown.
template <class Kernel>
void load(Kernel kernel) {
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
}

inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking, int priority = 0) {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, flags, priority));
  return stream;
}

inline void* pinned(std::size_t bytes) {
  void* memory = nullptr;
  CUDA_CHECK(cudaMallocHost(&memory, bytes));
  std::memset(memory, 1, bytes);
  return memory;
}

inline void* on_device(std::size_t bytes) {
  void* memory = nullptr;
  CUDA_CHECK(cudaMalloc(&memory, bytes));
  return memory;
}

constexpr std::size_t kMb = 1 << 20;

}  // namespace findings
