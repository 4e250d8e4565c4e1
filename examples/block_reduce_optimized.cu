// The reduction of block_reduce_naive with what it needs: 1 KB of dynamic shared memory, neighbouring threads working
// on neighbouring values.
//
// Look at: dyn_shared_bytes 1024, static_shared_bytes 0, and limiting_resource, which is now warps: the SM is full.
#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kGrid = 16384;

__global__ void block_reduce_optimized(const float* in, float* out, int n) {
  extern __shared__ float partial[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (static_cast<int>(threadIdx.x) < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = kGrid * kBlock - 17;
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(kGrid);

  const float ms = example::mean_ms(options.quick ? 2 : 50, [&] {
    block_reduce_optimized<<<kGrid, kBlock, kBlock * sizeof(float)>>>(in.get(), out.get(), n);
    example::launched(block_reduce_optimized);
  });

  std::printf("block_reduce_optimized: 1 KB dynamic shared memory, %.3f ms, %.0f GB/s\n", ms,
              example::gb_per_s(4.0 * n, ms));
  std::printf("look at: limiting_resource of block_reduce_optimized is warps\n");
  return example::finish(example::check_sums("block_reduce_optimized", input, out.to_host(), kBlock));
}
