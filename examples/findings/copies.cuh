// Copies and fills.
#pragma once

#include "bench.cuh"

namespace findings {

inline void cuda_memcpy_async(const Bench& b) {
  const cudaStream_t s = new_stream();
  void *device = on_device(8 * kMb), *host = b.bad ? std::calloc(8, kMb) : pinned(8 * kMb);
  for (int i = 0; i < 40; ++i) {
    b.launch(3000, b.wave(), s);
    CUDA_CHECK(cudaMemcpyAsync(device, host, 8 * kMb, cudaMemcpyHostToDevice, s));
  }
}

inline void cuda_memcpy_sync(const Bench& b) {
  const cudaStream_t s = new_stream(), copies = new_stream();
  void *device = on_device(8 * kMb), *host = pinned(8 * kMb);
  for (int i = 0; i < 40; ++i) {
    b.launch(1000, b.wave(), b.bad ? nullptr : s);
    if (b.bad) {
      CUDA_CHECK(cudaMemcpy(host, device, 8 * kMb, cudaMemcpyDeviceToHost));
    } else {
      CUDA_CHECK(cudaMemcpyAsync(host, device, 8 * kMb, cudaMemcpyDeviceToHost, copies));
    }
  }
}

inline void cuda_memset_sync(const Bench& b) {
  const cudaStream_t s = new_stream();
  void* memory = nullptr;
  CUDA_CHECK(cudaMallocManaged(&memory, 64 * kMb));
  CUDA_CHECK(cudaMemsetAsync(memory, 0, 64 * kMb, s));
  for (int i = 0; i < 40; ++i) {
    b.launch(300, b.wave(), b.bad ? nullptr : s);
    if (b.bad) {
      CUDA_CHECK(cudaMemset(memory, 1, 64 * kMb));
    } else {
      CUDA_CHECK(cudaMemsetAsync(memory, 1, 64 * kMb, s));
    }
  }
}

inline void small_copies(const Bench& b) {
  constexpr std::size_t kPiece = 4096, kPieces = 2000;
  const cudaStream_t s = new_stream();
  char *device = static_cast<char*>(on_device(kPiece * kPieces)), *host = static_cast<char*>(pinned(kPiece * kPieces));
  const std::size_t step = b.bad ? kPiece : kPiece * kPieces;
  for (std::size_t at = 0; at < kPiece * kPieces; at += step) {
    CUDA_CHECK(cudaMemcpyAsync(device + at, host + at, step, cudaMemcpyHostToDevice, s));
  }
}

inline void missed_overlap(const Bench& b) {
  constexpr std::size_t kBytes = 16 * kMb;
  const int streams = b.bad ? 1 : 4;
  std::vector<cudaStream_t> s(streams);
  std::vector<void*> host(streams), device(streams);
  for (int i = 0; i < streams; ++i) s[i] = new_stream(), host[i] = pinned(kBytes), device[i] = on_device(kBytes);
  for (int i = 0; i < 40; ++i) {
    const int at = i % streams;
    CUDA_CHECK(cudaMemcpyAsync(device[at], host[at], kBytes, cudaMemcpyHostToDevice, s[at]));
    b.launch(300, b.wave(), s[at]);
    CUDA_CHECK(cudaMemcpyAsync(host[at], device[at], kBytes, cudaMemcpyDeviceToHost, s[at]));
  }
}

inline void copy_direction_wait(const Bench& b) {
  const cudaStream_t in = new_stream(), out = b.bad ? in : new_stream();
  void *device = on_device(8 * kMb), *host = pinned(8 * kMb), *device_out = on_device(8 * kMb),
       *host_out = pinned(8 * kMb);
  for (int i = 0; i < 60; ++i) {
    CUDA_CHECK(cudaMemcpyAsync(device, host, 8 * kMb, cudaMemcpyHostToDevice, in));
    CUDA_CHECK(cudaMemcpyAsync(host_out, device_out, 8 * kMb, cudaMemcpyDeviceToHost, out));
  }
}

}  // namespace findings
