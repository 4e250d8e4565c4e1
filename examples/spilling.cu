// One computation with a hundred live values per thread, compiled twice: with launch bounds that demand a full SM, so
// that the compiler spills most of them to local memory, and with bounds that let it keep them in registers.
//
// Look at: num_regs, local_bytes_per_thread and limiting_resource. The kernel with the higher occupancy is the slower.
#include <cstdint>

#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kLive = 96;

// Blocks of 256 threads that fill an SM of the architecture being compiled for.
#if !defined(__CUDA_ARCH__)
constexpr int kFullSm = 1;
#elif __CUDA_ARCH__ == 750
constexpr int kFullSm = 4;
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
constexpr int kFullSm = 6;
#else
constexpr int kFullSm = 8;
#endif

__host__ __device__ inline std::uint32_t churn(std::uint32_t seed, int rounds) {
  std::uint32_t live[kLive];
#pragma unroll
  for (int i = 0; i < kLive; ++i) live[i] = seed * (2 * i + 1) + i;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kLive; ++i) live[i] = live[i] * 1664525u + live[(i + 37) % kLive];
  }
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kLive; ++i) sum ^= live[i];
  return sum;
}

__global__ void __launch_bounds__(kBlock, kFullSm) churn_spilling(std::uint32_t* out, int rounds) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = churn(i, rounds);
}

__global__ void __launch_bounds__(kBlock) churn_in_registers(std::uint32_t* out, int rounds) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = churn(i, rounds);
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = options.quick ? 1 << 16 : 1 << 20, rounds = 32;
  const int repeats = options.quick ? 2 : 20;
  example::DeviceArray<std::uint32_t> out(n);

  const struct {
    const char* name;
    void (*kernel)(std::uint32_t*, int);
    bool spills;
  } variants[] = {{"churn_spilling", churn_spilling, true}, {"churn_in_registers", churn_in_registers, false}};
  bool ok = true;
  for (const auto& variant : variants) {
    out.clear();
    const float ms = example::mean_ms(repeats, [&] {
      variant.kernel<<<n / kBlock, kBlock>>>(out.get(), rounds);
      example::launched(variant.kernel);
    });
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, variant.kernel));
    std::printf("%-19s %3d registers, %4zu local bytes per thread, %.3f ms\n", variant.name, attributes.numRegs,
                attributes.localSizeBytes, ms);
    if ((attributes.localSizeBytes > 0) != variant.spills) {
      std::printf("%s: expected %s\n", variant.name, variant.spills ? "spills" : "no spills");
      ok = false;
    }
    const std::vector<std::uint32_t> result = out.to_host();
    for (int i = 0; i < n; i += 997) {
      if (result[i] != churn(i, rounds)) {
        std::printf("%s: element %d is wrong\n", variant.name, i);
        ok = false;
        break;
      }
    }
  }
  std::printf("look at: num_regs, local_bytes_per_thread, occupancy and duration of the two kernels\n");
  return example::finish(ok);
}
