// A copy in which neighbouring threads touch neighbouring words, and one in which they are 33 words apart: the same
// bytes, many more memory transactions.
//
// Look at: equal occupancy, unequal duration. Occupancy is not the whole story.
#include "example.cuh"

__global__ void copy_coalesced(const float* in, float* out, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

// n is a power of two and the stride odd: every element is copied once.
__global__ void copy_strided(const float* in, float* out, unsigned n, unsigned stride) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned j = (i * stride) & (n - 1);
  out[j] = in[j];
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const unsigned n = options.quick ? 1u << 20 : 1u << 24;
  const int repeats = options.quick ? 2 : 50;
  constexpr unsigned kBlock = 256, kStride = 33;

  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(n);

  out.clear();
  const float coalesced_ms = example::mean_ms(repeats, [&] {
    copy_coalesced<<<n / kBlock, kBlock>>>(in.get(), out.get(), n);
    example::launched(copy_coalesced);
  });
  bool ok = example::check_equal("copy_coalesced", out.to_host(), input);

  out.clear();
  const float strided_ms = example::mean_ms(repeats, [&] {
    copy_strided<<<n / kBlock, kBlock>>>(in.get(), out.get(), n, kStride);
    example::launched(copy_strided);
  });
  ok &= example::check_equal("copy_strided", out.to_host(), input);

  std::printf("copy_coalesced: %.3f ms, %.0f GB/s\n", coalesced_ms, example::gb_per_s(8.0 * n, coalesced_ms));
  std::printf("copy_strided:   %.3f ms, %.0f GB/s (stride %u)\n", strided_ms, example::gb_per_s(8.0 * n, strided_ms),
              kStride);
  std::printf("look at: same occupancy for both kernels, different duration\n");
  return example::finish(ok);
}
