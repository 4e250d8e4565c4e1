// Transposing through shared memory: reading a 32-wide tile by columns sends all 32 lanes to one bank; one column of
// padding spreads them over all 32.
//
// Look at: the padded kernel needs 128 bytes more shared memory, has the same occupancy, and is faster.
#include "example.cuh"

constexpr int kTile = 32;
constexpr int kRows = 8;  // each thread moves kTile / kRows elements

template <int kPad>
__device__ void transpose_tile(const float* in, float* out, int n) {
  __shared__ float tile[kTile][kTile + kPad];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int row = 0; row < kTile; row += kRows) tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * n + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
  for (int row = 0; row < kTile; row += kRows) out[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}

__global__ void transpose_conflicts(const float* in, float* out, int n) { transpose_tile<0>(in, out, n); }
__global__ void transpose_padded(const float* in, float* out, int n) { transpose_tile<1>(in, out, n); }

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = options.quick ? 512 : 2048;
  const int repeats = options.quick ? 2 : 50;
  const std::vector<float> input = example::random_floats(n * n);
  std::vector<float> expected(input.size());
  for (int y = 0; y < n; ++y) {
    for (int x = 0; x < n; ++x) expected[x * n + y] = input[y * n + x];
  }
  example::DeviceArray<float> in(input), out(n * n);
  const dim3 block(kTile, kRows), grid(n / kTile, n / kTile);

  out.clear();
  const float conflicts_ms = example::mean_ms(repeats, [&] {
    transpose_conflicts<<<grid, block>>>(in.get(), out.get(), n);
    example::launched(transpose_conflicts);
  });
  bool ok = example::check_equal("transpose_conflicts", out.to_host(), expected);

  out.clear();
  const float padded_ms = example::mean_ms(repeats, [&] {
    transpose_padded<<<grid, block>>>(in.get(), out.get(), n);
    example::launched(transpose_padded);
  });
  ok &= example::check_equal("transpose_padded", out.to_host(), expected);

  std::printf("transpose_conflicts: %.3f ms, %.0f GB/s\n", conflicts_ms,
              example::gb_per_s(8.0 * n * n, conflicts_ms));
  std::printf("transpose_padded:    %.3f ms, %.0f GB/s\n", padded_ms, example::gb_per_s(8.0 * n * n, padded_ms));
  std::printf("look at: static_shared_bytes 4096 and 4224, equal occupancy, different duration\n");
  return example::finish(ok);
}
