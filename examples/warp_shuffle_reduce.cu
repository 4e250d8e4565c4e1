// The same sums with warp shuffles: values pass from register to register, shared memory only holds one per warp.
//
// Look at: static_shared_bytes 128 and one barrier instead of eight; compare its time with block_reduce_optimized.
#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kGrid = 16384;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(kAllLanes, value, offset);
  return value;
}

__global__ void warp_shuffle_reduce(const float* in, float* out, int n) {
  __shared__ float warp_sums[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const float sum = warp_sum(i < n ? in[i] : 0.0f);
  if (lane == 0) warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const float total = warp_sum(lane < warps ? warp_sums[lane] : 0.0f);
    if (lane == 0) out[blockIdx.x] = total;
  }
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = kGrid * kBlock - 17;
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(kGrid);

  const float ms = example::mean_ms(options.quick ? 2 : 50, [&] {
    warp_shuffle_reduce<<<kGrid, kBlock>>>(in.get(), out.get(), n);
    example::launched(warp_shuffle_reduce);
  });

  std::printf("warp_shuffle_reduce: 128 B static shared memory, %.3f ms, %.0f GB/s\n", ms,
              example::gb_per_s(4.0 * n, ms));
  std::printf("look at: static_shared_bytes 128; limiting_resource of warp_shuffle_reduce is warps\n");
  return example::finish(example::check_sums("warp_shuffle_reduce", input, out.to_host(), kBlock));
}
