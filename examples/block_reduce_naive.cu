// A block reduction that asks for 16 KB of static shared memory where 1 KB would do, so that shared memory, not the
// work, decides how many blocks an SM holds.
//
// Look at: limiting_resource, smem_occupancy, max_active_blocks. On sm_86: 5 blocks, 0.833333, shared_mem.
// block_reduce_optimized is the same without the waste.
#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kGrid = 16384;

__global__ void block_reduce_naive(const float* in, float* out, int n) {
  __shared__ float partial[4096];  // one value per thread is all that is needed
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (int step = 1; step < static_cast<int>(blockDim.x); step *= 2) {
    if (threadIdx.x % (2 * step) == 0) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = kGrid * kBlock - 17;  // the last block is not full
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(kGrid);

  const float ms = example::mean_ms(options.quick ? 2 : 50, [&] {
    block_reduce_naive<<<kGrid, kBlock>>>(in.get(), out.get(), n);
    example::launched(block_reduce_naive);
  });

  std::printf("block_reduce_naive: 16 KB static shared memory, %.3f ms, %.0f GB/s\n", ms,
              example::gb_per_s(4.0 * n, ms));
  std::printf("look at: limiting_resource and smem_occupancy of block_reduce_naive\n");
  return example::finish(example::check_sums("block_reduce_naive", input, out.to_host(), kBlock));
}
