// Small matrix products in a loop that allocates, copies, multiplies, waits and frees each time; improved: memory and
// stream kept, one wait at the end.
//
//   cublas_loop [improved] [LOOPS]      prints us per loop
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                  \
  do {                                                                               \
    if (const int code = static_cast<int>(call); code != 0) {                        \
      std::fprintf(stderr, "cublas_loop: %s gave %d\n", #call, code);                \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

int main(int argc, char** argv) {
  const bool improved = argc > 1 && std::strcmp(argv[1], "improved") == 0;
  const int loops = argc > 2 ? std::atoi(argv[2]) : 500;
  constexpr int kSize = 256;
  constexpr std::size_t kBytes = kSize * kSize * sizeof(float);
  std::vector<float> host(kSize * kSize, 1.0f);
  cublasHandle_t handle;
  CHECK(cublasCreate(&handle));
  float *a, *b, *c;
  CHECK(cudaMalloc(&a, kBytes));
  CHECK(cudaMalloc(&b, kBytes));
  CHECK(cudaMalloc(&c, kBytes));
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a, kSize, b, kSize, &zero, c, kSize));
  };
  float* pinned;
  CHECK(cudaMallocHost(&pinned, kBytes));
  std::memcpy(pinned, host.data(), kBytes);
  for (int i = 0; i < 5; ++i) multiply();
  CHECK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < loops; ++i) {
    if (improved) {
      CHECK(cudaMemcpyAsync(a, pinned, kBytes, cudaMemcpyHostToDevice, nullptr));
      multiply();
      continue;
    }
    float* mine;
    CHECK(cudaMalloc(&mine, kBytes));
    CHECK(cudaMemcpy(mine, host.data(), kBytes, cudaMemcpyHostToDevice));
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, mine, kSize, b, kSize, &zero, c, kSize));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(mine));
  }
  CHECK(cudaDeviceSynchronize());
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%.1f us per loop\n", us / loops);
  return 0;
}
