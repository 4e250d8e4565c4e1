// What the host does between launches: waiting, allocating, sleeping.
#pragma once

#include "bench.cuh"

namespace findings {

inline void cuda_api_sync(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k <= i * i % 5; ++k) b.launch(100, b.wave(), s);  // at no regular distance
    if (b.bad) CUDA_CHECK(cudaDeviceSynchronize());
  }
}

inline void sync_in_loop(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 300; ++i) {
    b.launch(50, b.wave(), s);
    b.launch(50, b.wave(), s);
    if (b.bad) CUDA_CHECK(cudaStreamSynchronize(s));
  }
}

inline void alloc_in_loop(const Bench& b) {
  const cudaStream_t s = new_stream();
  void* memory = b.bad ? nullptr : on_device(8 * kMb);
  for (int i = 0; i < 100; ++i) {
    if (b.bad) memory = on_device(8 * kMb);
    b.launch(200, b.wave(), s);
    if (b.bad) CUDA_CHECK(cudaFree(memory));
  }
}

inline void gpu_gaps(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 60; ++i) {
    b.launch(20'000, b.wave(), s);
    if (b.bad && i == 30) {
      CUDA_CHECK(cudaStreamSynchronize(s));
      usleep(700'000);
    }
  }
}

inline void gpu_time_util(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 100; ++i) b.launch(1000, b.wave(), s);
  if (b.bad) CUDA_CHECK(cudaStreamSynchronize(s));
  for (int i = 0; i < 60; ++i) {
    b.launch(100, b.wave(), s);
    if (b.bad) usleep(1000);
  }
  for (int i = 0; i < 100; ++i) b.launch(1000, b.wave(), s);
}

inline void idle_time(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 100; ++i) {
    b.launch(200, b.wave(), s);
    if (b.bad) usleep(600);
  }
}

inline void memory_growth(const Bench& b) {
  const cudaStream_t s = new_stream();
  unsigned dice = 7;
  for (int i = 0; i < 60; ++i) {
    void* memory = nullptr;
    CUDA_CHECK(cudaMallocAsync(&memory, 4 * kMb, s));
    b.launch(2000, b.wave(), s);
    if (!b.bad) CUDA_CHECK(cudaFreeAsync(memory, s));
    dice = dice * 1664525u + 1013904223u;
    if (dice >> 30 == 0) CUDA_CHECK(cudaStreamSynchronize(s));  // not at regular distance
  }
}

inline void memory_peak(const Bench& b) {
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const cudaStream_t s = new_stream();
  void* memory = on_device(b.bad ? static_cast<std::size_t>(static_cast<double>(total) * 0.93) : total / 10);
  for (int i = 0; i < 20; ++i) b.launch(1000, b.wave(), s);
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaFree(memory));
}

}  // namespace findings
