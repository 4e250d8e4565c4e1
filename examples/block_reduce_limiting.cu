// 16 KB of shared memory limit an RTX 3090 and leave an H200 alone. This one picks, among kernels with growing static
// arrays, the first that limits the device at hand.
//
// Look at: limiting_resource is shared_mem on every board, with max_active_blocks as printed here.
#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kGrid = 16384;

template <int kSharedBytes>
__global__ void block_reduce_limiting(const float* in, float* out, int n) {
  __shared__ float partial[kSharedBytes / sizeof(float)];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (static_cast<int>(threadIdx.x) < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

using Kernel = void (*)(const float*, float*, int);
struct Candidate {
  int shared_kib;
  Kernel kernel;
};
const Candidate kCandidates[] = {
    {16, block_reduce_limiting<16 * 1024>}, {24, block_reduce_limiting<24 * 1024>},
    {32, block_reduce_limiting<32 * 1024>}, {40, block_reduce_limiting<40 * 1024>},
    {48, block_reduce_limiting<48 * 1024>},
};

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const cudaDeviceProp device = example::device_properties();
  const int blocks_by_warps = device.maxThreadsPerMultiProcessor / kBlock;

  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : kCandidates) {
    const std::size_t per_block = candidate.shared_kib * 1024 + device.reservedSharedMemPerBlock;
    if (static_cast<int>(device.sharedMemPerMultiprocessor / per_block) < blocks_by_warps) {
      chosen = &candidate;
      break;
    }
  }
  if (!chosen) {
    std::printf("%s: 48 KB of static shared memory do not limit it\n", device.name);
    return example::finish(false);
  }

  const int n = kGrid * kBlock - 17;
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(kGrid);
  const float ms = example::mean_ms(options.quick ? 2 : 50, [&] {
    chosen->kernel<<<kGrid, kBlock>>>(in.get(), out.get(), n);
    example::launched(chosen->kernel);
  });

  int blocks = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, chosen->kernel, kBlock, 0));
  std::printf("%s: %d KB of static shared memory, %d of %d blocks per SM, %.3f ms\n", device.name, chosen->shared_kib,
              blocks, blocks_by_warps, ms);
  std::printf("look at: limiting_resource shared_mem, max_active_blocks %d\n", blocks);
  bool ok = example::check_sums("block_reduce_limiting", input, out.to_host(), kBlock);
  if (blocks >= blocks_by_warps) {
    std::printf("shared memory does not limit this kernel here\n");
    ok = false;
  }
  return example::finish(ok);
}
