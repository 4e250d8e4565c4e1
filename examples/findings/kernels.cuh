// Kernels: occupancy, spills, partial waves, a burst of slow ones.
#pragma once

#include "bench.cuh"

namespace findings {

__global__ void with_shared_memory(long long cycles, float* out) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  if (out != nullptr) out[threadIdx.x] = shared[255 - threadIdx.x];
}

// Bad: each block takes most of an SM's shared memory, so that an SM holds one.
inline void low_occupancy(const Bench& b) {
  int most = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  CUDA_CHECK(cudaFuncSetAttribute(with_shared_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 50; ++i) {
    with_shared_memory<<<b.bad ? 8 * b.sms : b.wave(), 256, b.bad ? most : 1024, s>>>(b.cycles(b.bad ? 50 : 400),
                                                                                      nullptr);
    CUDA_CHECK(cudaGetLastError());
  }
}

// An array that is indexed by what is only known at run time cannot live in registers.
template <bool kLocal>
__global__ void with_array(long long cycles, int rounds, int* out) {
  int values[kLocal ? 128 : 1];
  for (int i = 0; i < (kLocal ? 128 : 1); ++i) values[i] = i;
  int at = static_cast<int>(threadIdx.x) & (kLocal ? 127 : 0);
  for (int i = 0; i < rounds; ++i) at = (values[at] += rounds) & (kLocal ? 127 : 0);
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  if (out != nullptr) *out = at;
}

inline void spills(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 50; ++i) {
    if (b.bad) {
      with_array<true><<<b.wave(), 256, 0, s>>>(b.cycles(300), 16, nullptr);
    } else {
      with_array<false><<<b.wave(), 256, 0, s>>>(b.cycles(300), 16, nullptr);
    }
    CUDA_CHECK(cudaGetLastError());
  }
}

inline void partial_wave(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 100; ++i) b.launch(200, b.bad ? b.wave() + 8 : b.wave(), s);
}

inline void slow_burst(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 500; ++i) b.launch(b.bad && i >= 300 && i < 320 ? 400 : 80, b.wave(), s);
}

}  // namespace findings
