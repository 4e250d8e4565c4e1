// Vector addition, one float per thread and four. Both are bound by memory; the second needs a quarter of the threads
// and of the load instructions.
//
// Look at: grid and waves of the two kernels at the same occupancy, and how little the times differ on a big vector.
#include "example.cuh"

__global__ void vector_add(const float* a, const float* b, float* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

__global__ void vector_add_float4(const float4* a, const float4* b, float4* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float4 x = a[i], y = b[i];
  sum[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = options.quick ? 1 << 20 : 1 << 24;
  const int repeats = options.quick ? 2 : 50;
  constexpr int kBlock = 256;

  const std::vector<float> left = example::random_floats(n, 1), right = example::random_floats(n, 2);
  std::vector<float> expected(n);
  for (int i = 0; i < n; ++i) expected[i] = left[i] + right[i];
  example::DeviceArray<float> a(left), b(right), sum(n);

  const float scalar_ms = example::mean_ms(repeats, [&] {
    vector_add<<<n / kBlock, kBlock>>>(a.get(), b.get(), sum.get(), n);
    example::launched(vector_add);
  });
  bool ok = example::check_equal("vector_add", sum.to_host(), expected);

  sum.clear();
  const float vector_ms = example::mean_ms(repeats, [&] {
    vector_add_float4<<<n / 4 / kBlock, kBlock>>>(reinterpret_cast<const float4*>(a.get()),
                                                  reinterpret_cast<const float4*>(b.get()),
                                                  reinterpret_cast<float4*>(sum.get()), n / 4);
    example::launched(vector_add_float4);
  });
  ok &= example::check_equal("vector_add_float4", sum.to_host(), expected);

  const double bytes = 12.0 * n;
  std::printf("vector_add:        %.3f ms, %.0f GB/s\n", scalar_ms, example::gb_per_s(bytes, scalar_ms));
  std::printf("vector_add_float4: %.3f ms, %.0f GB/s\n", vector_ms, example::gb_per_s(bytes, vector_ms));
  std::printf("look at: grid and waves of vector_add and vector_add_float4 at the same occupancy\n");
  return example::finish(ok);
}
