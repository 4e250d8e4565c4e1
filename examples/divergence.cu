// Two kinds of work, dealt out thread by thread (every warp does both, one after the other) or warp by warp (each does
// one).
//
// Look at: the same grid, registers and occupancy; divergent_lanes takes about twice as long.
#include <cstdint>

#include "example.cuh"

__host__ __device__ inline std::uint32_t congruential(std::uint32_t x, int rounds) {
  for (int i = 0; i < rounds; ++i) x = x * 1664525u + 1013904223u;
  return x;
}
__host__ __device__ inline std::uint32_t xorshift(std::uint32_t x, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
  }
  return x;
}

__global__ void divergent_lanes(std::uint32_t* data, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = i % 2 ? congruential(data[i], rounds * 2) : xorshift(data[i], rounds);
}

__global__ void uniform_warps(std::uint32_t* data, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = i / 32 % 2 ? congruential(data[i], rounds * 2) : xorshift(data[i], rounds);
}

// Every 61st element: both kinds, all lanes.
static bool check_sample(const char* what, const std::vector<std::uint32_t>& in, const std::vector<std::uint32_t>& out,
                         int rounds, int lanes) {
  for (std::size_t i = 0; i < in.size(); i += 61) {
    const std::uint32_t expected = i / lanes % 2 ? congruential(in[i], rounds * 2) : xorshift(in[i], rounds);
    if (out[i] != expected) {
      std::printf("%s: element %zu is wrong\n", what, i);
      return false;
    }
  }
  return true;
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = options.quick ? 1 << 16 : 1 << 20, rounds = options.quick ? 64 : 512;
  const int repeats = options.quick ? 2 : 20;
  constexpr int kBlock = 256;
  std::mt19937 generator(5);
  std::vector<std::uint32_t> input(n);
  for (std::uint32_t& value : input) value = static_cast<std::uint32_t>(generator());
  example::DeviceArray<std::uint32_t> data(input);

  divergent_lanes<<<n / kBlock, kBlock>>>(data.get(), rounds);
  example::launched(divergent_lanes);
  bool ok = check_sample("divergent_lanes", input, data.to_host(), rounds, 1);
  data.set(input);
  uniform_warps<<<n / kBlock, kBlock>>>(data.get(), rounds);
  example::launched(uniform_warps);
  ok &= check_sample("uniform_warps", input, data.to_host(), rounds, 32);

  const float divergent_ms = example::mean_ms(repeats, [&] {
    divergent_lanes<<<n / kBlock, kBlock>>>(data.get(), rounds);
    example::launched(divergent_lanes);
  });
  const float uniform_ms = example::mean_ms(repeats, [&] {
    uniform_warps<<<n / kBlock, kBlock>>>(data.get(), rounds);
    example::launched(uniform_warps);
  });
  std::printf("divergent_lanes: %.3f ms\nuniform_warps:   %.3f ms\n", divergent_ms, uniform_ms);
  std::printf("look at: equal occupancy, divergent_lanes takes longer\n");
  return example::finish(ok);
}
