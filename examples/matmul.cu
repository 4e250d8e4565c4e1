// Matrix product three ways: straight from global memory; through tiles in shared memory; through tiles padded by one
// column, so that a warp reading a column meets 32 banks and not two.
//
// Look at: shared memory and occupancy of the three, next to their times.
#include "example.cuh"

constexpr int kTile = 16;

__global__ void matmul_naive(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

// B's tile is kept by columns: the inner loop walks both tiles along k, each thread of a row in another column.
template <int kPad>
__device__ void multiply_tiles(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[kTile][kTile + kPad];
  __shared__ float b_columns[kTile][kTile + kPad];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < n; tile += kTile) {
    a_tile[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
    b_columns[threadIdx.x][threadIdx.y] = b[(tile + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += a_tile[threadIdx.y][k] * b_columns[threadIdx.x][k];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void matmul_tiled(const float* a, const float* b, float* c, int n) { multiply_tiles<0>(a, b, c, n); }
__global__ void matmul_tiled_padded(const float* a, const float* b, float* c, int n) {
  multiply_tiles<1>(a, b, c, n);
}

// Random elements against the CPU: the whole product would take longer than everything else here.
static bool check_product(const char* what, const std::vector<float>& a, const std::vector<float>& b,
                          const std::vector<float>& c, int n) {
  std::mt19937 generator(3);
  for (int sample = 0; sample < 4096; ++sample) {
    const int row = static_cast<int>(generator() % n), column = static_cast<int>(generator() % n);
    double expected = 0;
    for (int k = 0; k < n; ++k) expected += static_cast<double>(a[row * n + k]) * b[k * n + column];
    if (!example::close(c[row * n + column], expected)) {
      std::printf("%s: element (%d, %d) is wrong\n", what, row, column);
      return false;
    }
  }
  return true;
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = options.quick ? 256 : 1024;
  const int repeats = options.quick ? 2 : 10;
  const std::vector<float> left = example::random_floats(n * n, 1), right = example::random_floats(n * n, 2);
  example::DeviceArray<float> a(left), b(right), c(n * n);
  const dim3 block(kTile, kTile), grid(n / kTile, n / kTile);

  const struct {
    const char* name;
    void (*kernel)(const float*, const float*, float*, int);
  } variants[] = {
      {"matmul_naive", matmul_naive}, {"matmul_tiled", matmul_tiled}, {"matmul_tiled_padded", matmul_tiled_padded}};
  bool ok = true;
  for (const auto& variant : variants) {
    c.clear();
    const float ms = example::mean_ms(repeats, [&] {
      variant.kernel<<<grid, block>>>(a.get(), b.get(), c.get(), n);
      example::launched(variant.kernel);
    });
    std::printf("%-20s %.3f ms, %.0f GFLOP/s\n", variant.name, ms, 2.0 * n * n * n / (ms * 1e6));
    ok &= check_product(variant.name, left, right, c.to_host(), n);
  }
  std::printf("look at: static_shared_bytes 0, 2048, 2176 and the durations of the three kernels\n");
  return example::finish(ok);
}
