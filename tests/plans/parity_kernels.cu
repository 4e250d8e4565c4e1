// Kernels of parity.json, for the simulated device (their figures) and a real one (their code). The player passes null
// pointers and zero counts, so each does nothing at run time, in a way the compiler cannot know.
#include <cooperative_groups.h>

namespace {

__device__ __forceinline__ bool nothing_to_do(const float* data, int n) { return n == 0 || data == nullptr; }

}  // namespace

// The seed's naive block reduction: 16 KB of static shared memory.
__global__ void parity_static_shared(float* data, int n) {
  __shared__ float tile[4096];
  if (nothing_to_do(data, n)) return;
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile[(threadIdx.x * 7) % n];
}

__global__ void parity_dynamic_shared(float* data, int n) {
  extern __shared__ float tile[];
  if (nothing_to_do(data, n)) return;
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile[(threadIdx.x * 7) % n];
}

// Many live values: registers, and with bounds too tight for them, spills.
template <int kLive>
__device__ __forceinline__ void many_values(float* data, int n) {
  float value[kLive];
#pragma unroll
  for (int i = 0; i < kLive; ++i) value[i] = data[i * n + threadIdx.x];
  for (int round = 0; round < n; ++round) {
#pragma unroll
    for (int i = 0; i < kLive; ++i) value[i] = value[i] * value[(i + 1) % kLive] + data[round];
  }
#pragma unroll
  for (int i = 0; i < kLive; ++i) data[i * n + threadIdx.x] = value[i];
}

__global__ void parity_registers_medium(float* data, int n) {
  if (nothing_to_do(data, n)) return;
  many_values<32>(data, n);
}

__global__ void __launch_bounds__(256) parity_registers_high(float* data, int n) {
  if (nothing_to_do(data, n)) return;
  many_values<150>(data, n);
}

__global__ void __launch_bounds__(1024) parity_spilling(float* data, int n) {
  if (nothing_to_do(data, n)) return;
  many_values<120>(data, n);
}

__global__ void __launch_bounds__(128) parity_bounded(float* data, int n) {
  if (nothing_to_do(data, n)) return;
  data[threadIdx.x] += static_cast<float>(n);
}

// Highest named barrier 8: nine of them.
__global__ void parity_barriers(float* data, int n) {
  if (nothing_to_do(data, n)) return;
  data[threadIdx.x] += 1.0f;
  asm volatile("bar.sync 8;" ::: "memory");
  data[threadIdx.x] += data[(threadIdx.x + 1) % n];
}

__global__ void parity_cluster(float* data, int n) {
  __shared__ float tile[256];
  if (nothing_to_do(data, n)) return;
  tile[threadIdx.x % 256] = data[threadIdx.x];
  auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  data[threadIdx.x] = *cluster.map_shared_rank(&tile[threadIdx.x % 256], (cluster.block_rank() + 1) % cluster.num_blocks());
}

__global__ void parity_grid_sync(float* data, int n) {
  if (nothing_to_do(data, n)) return;
  data[threadIdx.x] += 1.0f;
  cooperative_groups::this_grid().sync();
  data[threadIdx.x] += data[(threadIdx.x + 1) % n];
}

template <typename T, int kUnroll>
__global__ void parity_template(T* data, int n) {
  if (n == 0) return;
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) data[threadIdx.x + i * n] += static_cast<T>(i);
}
template __global__ void parity_template<float, 4>(float*, int);
template __global__ void parity_template<double, 16>(double*, int);
