// Launches thousands of configurations and prints, for each, what the driver itself says of it: one JSON line a launch.
// A check joins these lines with the recorder's log by order and compares them.
//
//   occupancy_sweep [--count N] [--seed S] [--families] [--family NAME] [--launch-carveout N] [--no-clusters]
//
// Kernels differ in registers (a number of values that must live at once, some squeezed by launch bounds or a register
// cap), static shared memory and named barriers. Bodies sit behind a test that is never true: a launch costs nothing.
#include <cuda_occupancy.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

void die(const char* what, cudaError_t error) {
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) die(what, error);
}

// Volatile loads may not pass volatile stores: all `Live` values are in registers in between.
template <int Live, int Static>
__device__ __forceinline__ void body(volatile float* data, int n) {
  if (n == 0) return;
  if constexpr (Static > 0) {
    __shared__ char buffer[Static];
    static_cast<volatile char*>(buffer)[(threadIdx.x * 4) % Static] = static_cast<char>(n);
  }
  if constexpr (Live > 0) {
    float values[Live];
#pragma unroll
    for (int i = 0; i < Live; ++i) values[i] = data[i];
#pragma unroll
    for (int i = 0; i < Live; ++i) data[i + 1] = values[i];
  }
}

template <int Live, int Static>
__global__ void live_kernel(float* data, int n) {
  body<Live, Static>(data, n);
}
template <int Live, int Static, int MaxThreads, int MinBlocks>
__global__ void __launch_bounds__(MaxThreads, MinBlocks) bounded_kernel(float* data, int n) {
  body<Live, Static>(data, n);
}
template <int Live, int Cap>
__global__ void __maxnreg__(Cap) capped_kernel(float* data, int n) {
  body<Live, 0>(data, n);
}

template <int Id>
__device__ __forceinline__ void barriers_up_to() {
  if constexpr (Id > 0) barriers_up_to<Id - 1>();
  asm volatile("bar.sync %0, 64;" ::"n"(Id) : "memory");
}
template <int Barriers>
__global__ void barrier_kernel(int n) {
  if (n != 0) barriers_up_to<Barriers - 1>();
}

struct Kernel {
  const void* function;
  std::string name;
  cudaFuncAttributes attributes;
  int barriers;  // named ones, 0: none
};

template <int... Live, int... Static>
void add_grid(std::vector<const void*>& out, std::integer_sequence<int, Live...>,
              std::integer_sequence<int, Static...>) {
  const auto add_row = [&out]<int L>(std::integral_constant<int, L>) {
    (out.push_back(reinterpret_cast<const void*>(&live_kernel<L, Static>)), ...);
  };
  (add_row(std::integral_constant<int, Live>{}), ...);
}

using LiveCounts = std::integer_sequence<int, 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128,
                                         136, 144, 160, 176, 192, 208, 224>;
using StaticSizes = std::integer_sequence<int, 0, 264, 4096, 16384, 49152>;

// Left to itself the compiler hands out registers in eights; a cap reaches the numbers between.
using Caps = std::integer_sequence<int, 26, 30, 33, 35, 38, 42, 45, 50, 54, 59, 62, 67, 73, 77, 82, 91, 99, 107, 115,
                                       123, 131, 139, 150, 163, 171, 185, 199, 211, 230, 245>;
template <int... Cap>
void add_capped(std::vector<const void*>& out, std::integer_sequence<int, Cap...>) {
  (out.push_back(reinterpret_cast<const void*>(&capped_kernel<Cap + 8, Cap>)), ...);
}

std::vector<const void*> register_kernels() {
  std::vector<const void*> out;
  add_grid(out, LiveCounts{}, StaticSizes{});
  const void* more[] = {
      reinterpret_cast<const void*>(&bounded_kernel<120, 0, 1024, 1>),
      reinterpret_cast<const void*>(&bounded_kernel<120, 0, 1024, 2>),
      reinterpret_cast<const void*>(&bounded_kernel<120, 8192, 512, 2>),
      reinterpret_cast<const void*>(&bounded_kernel<120, 0, 256, 4>),
      reinterpret_cast<const void*>(&bounded_kernel<120, 2048, 128, 8>),
      reinterpret_cast<const void*>(&bounded_kernel<120, 0, 64, 16>),
      reinterpret_cast<const void*>(&bounded_kernel<60, 0, 96, 12>),
      reinterpret_cast<const void*>(&bounded_kernel<60, 1024, 384, 3>),
  };
  out.insert(out.end(), std::begin(more), std::end(more));
  add_capped(out, Caps{});
  return out;
}

template <int... K>
std::vector<const void*> barrier_kernels(std::integer_sequence<int, K...>) {
  return {reinterpret_cast<const void*>(&barrier_kernel<K + 1>)...};
}

struct Device {
  cudaDeviceProp properties;
  int max_dynamic_optin = 0;
  int reserved_shared = 0;
};

Kernel describe(const void* function, const Device& device, int barriers) {
  Kernel kernel{function, "", {}, barriers};
  must(cudaFuncGetAttributes(&kernel.attributes, function), "cudaFuncGetAttributes");
  const char* name = nullptr;
  must(cudaFuncGetName(&name, function), "cudaFuncGetName");
  kernel.name = name;
  const int most = device.max_dynamic_optin - static_cast<int>(kernel.attributes.sharedSizeBytes);
  must(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, most), "opt in to shared memory");
  if (device.properties.major >= 9) {
    must(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "allow large clusters");
  }
  must(cudaFuncGetAttributes(&kernel.attributes, function), "cudaFuncGetAttributes");
  return kernel;
}

struct Config {
  const Kernel* kernel;
  dim3 block{1, 1, 1};
  int dynamic = 0;
  int cluster = 0;   // blocks in x; 0: no cluster
  int carveout = -1;
  bool carveout_at_launch = false;
  const char* family = "";  // the one limit that should bind, "" in the random part
};

// What cuda_occupancy.h says, for the count of disagreements with the driver and for the expected limits.
void header_limits(const Device& device, const Config& config, cudaOccResult& result) {
  cudaOccDeviceProp properties(device.properties);
  properties.sharedMemPerBlockOptin = device.properties.sharedMemPerBlockOptin;
  properties.reservedSharedMemPerBlock = static_cast<std::size_t>(device.reserved_shared);
  cudaOccFuncAttributes attributes(config.kernel->attributes);
  attributes.maxThreadsPerBlock = device.properties.maxThreadsPerBlock;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = static_cast<std::size_t>(config.kernel->attributes.maxDynamicSharedSizeBytes);
  attributes.numBlockBarriers = 0;
  cudaOccDeviceState state;
  state.carveoutConfig = config.carveout;
  const int threads = static_cast<int>(config.block.x * config.block.y * config.block.z);
  std::memset(&result, 0, sizeof(result));
  cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state, threads,
                                          static_cast<std::size_t>(config.dynamic));
}

void set_carveout(const Config& config, int value) {
  must(cudaFuncSetAttribute(config.kernel->function, cudaFuncAttributePreferredSharedMemoryCarveout, value),
       "carve-out");
}

cudaError_t launch(const Config& config, cudaStream_t stream, int& clusters, cudaError_t& cluster_status) {
  cudaLaunchConfig_t launch_config{};
  launch_config.blockDim = config.block;
  launch_config.gridDim = dim3(static_cast<unsigned>(std::max(config.cluster, 1)) * 2u);
  launch_config.dynamicSmemBytes = static_cast<std::size_t>(config.dynamic);
  launch_config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  launch_config.attrs = attributes;
  if (config.cluster > 0) {
    auto& attribute = attributes[launch_config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(config.cluster);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cluster_status = cudaOccupancyMaxActiveClusters(&clusters, config.kernel->function, &launch_config);
    (void)cudaGetLastError();
  }
  if (config.carveout_at_launch) {
    auto& attribute = attributes[launch_config.numAttrs++];
    attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute.val.sharedMemCarveout = static_cast<unsigned>(config.carveout);
  }
  float* data = nullptr;
  int n = 0;
  void* live_arguments[] = {&data, &n};
  void* barrier_arguments[] = {&n};
  const cudaError_t status = cudaLaunchKernelExC(&launch_config, config.kernel->function,
                                                 config.kernel->barriers ? barrier_arguments : live_arguments);
  (void)cudaGetLastError();  // a refused launch is a result here, not a failure
  return status;
}

void run(const Device& device, const Config& config, int index, cudaStream_t stream) {
  const int threads = static_cast<int>(config.block.x * config.block.y * config.block.z);
  set_carveout(config, config.carveout);
  int blocks = -1;
  const cudaError_t asked = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, config.kernel->function, threads,
                                                                          static_cast<std::size_t>(config.dynamic));
  (void)cudaGetLastError();
  if (config.carveout_at_launch) set_carveout(config, -1);
  int clusters = -1;
  cudaError_t cluster_status = cudaSuccess;
  const cudaError_t status = launch(config, stream, clusters, cluster_status);
  cudaOccResult header;
  header_limits(device, config, header);
  const auto& a = config.kernel->attributes;
  std::printf("{\"launch\":%d,\"name\":\"%s\",\"status\":%d,\"regs\":%d,\"static\":%d,\"local\":%d,\"dynamic\":%d,"
              "\"block\":[%u,%u,%u],\"cluster\":%d,\"carveout\":%d,\"carveout_at_launch\":%s,\"barriers\":%d,"
              "\"driver_blocks\":%d,\"driver_status\":%d,\"driver_clusters\":%d,\"cluster_status\":%d,"
              "\"header_blocks\":%d,\"limits\":{\"warps\":%d,\"blocks\":%d,\"registers\":%d,\"shared_mem\":%d},"
              "\"family\":\"%s\"}\n",
              index, config.kernel->name.c_str(), static_cast<int>(status), a.numRegs,
              static_cast<int>(a.sharedSizeBytes), static_cast<int>(a.localSizeBytes), config.dynamic, config.block.x,
              config.block.y, config.block.z, config.cluster, config.carveout,
              config.carveout_at_launch ? "true" : "false", config.kernel->barriers, blocks, static_cast<int>(asked),
              clusters, static_cast<int>(cluster_status), header.activeBlocksPerMultiprocessor, header.blockLimitWarps,
              header.blockLimitBlocks, header.blockLimitRegs, header.blockLimitSharedMem, config.family);
}

class Generator {
 public:
  Generator(const std::vector<Kernel>& kernels, bool clusters, unsigned seed)
      : kernels_(kernels), clusters_(clusters), random_(seed) {}

  Config next() {
    Config config;
    config.kernel = &kernels_[pick(0, static_cast<int>(kernels_.size()) - 1)];
    config.block = block();
    config.dynamic = dynamic();
    if (chance(40)) config.carveout = kCarveouts[pick(0, std::size(kCarveouts) - 1)];
    if (clusters_ && chance(15)) config.cluster = 1 << pick(1, 4);
    return config;
  }

  Config next_with_launch_carveout() {
    Config config = next();
    config.cluster = 0;
    config.carveout = kCarveouts[pick(0, std::size(kCarveouts) - 1)];
    config.carveout_at_launch = true;
    return config;
  }

 private:
  static constexpr int kCarveouts[] = {0, 5, 10, 20, 25, 33, 40, 50, 60, 66, 75, 80, 90, 100};

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int pick(int low, std::size_t high) { return pick(low, static_cast<int>(high)); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  dim3 block() {
    const int threads = chance(50) ? pick(1, 1024) : 32 * pick(1, 32);
    if (threads % 4 == 0 && chance(20)) return dim3(static_cast<unsigned>(threads / 4), 2, 2);
    if (threads % 2 == 0 && chance(20)) return dim3(2, static_cast<unsigned>(threads / 2), 1);
    return dim3(static_cast<unsigned>(threads));
  }

  int dynamic() {
    const int shape = pick(1, 100);
    if (shape <= 30) return 0;
    if (shape <= 60) return pick(1, 8192);
    if (shape <= 95) return pick(1, 232448);
    return 1 << 20;  // cut to the opt-in limit by fit()
  }

  const std::vector<Kernel>& kernels_;
  bool clusters_;
  std::mt19937 random_;
};

// A configuration that can be launched: block and dynamic shared memory within the kernel's own limits.
void fit(Config& config) {
  const auto& a = config.kernel->attributes;
  const unsigned threads = config.block.x * config.block.y * config.block.z;
  if (threads > static_cast<unsigned>(a.maxThreadsPerBlock)) {
    config.block = dim3(1 + threads % static_cast<unsigned>(a.maxThreadsPerBlock));
  }
  config.dynamic = std::min(config.dynamic, a.maxDynamicSharedSizeBytes);
}

// One limit alone binds: what it is stands in `family`.
std::vector<Config> families(const std::vector<Kernel>& kernels, const std::vector<Kernel>& barrier,
                             const Device& device) {
  std::vector<Config> out;
  const Kernel& smallest = kernels[0];
  const auto add = [&out](const Kernel& kernel, unsigned threads, int dynamic, int cluster, const char* family) {
    Config config{&kernel, dim3(threads), dynamic, cluster};
    config.family = family;
    out.push_back(config);
  };
  for (const Kernel& kernel : kernels) {
    if (kernel.attributes.numRegs <= 32 && kernel.attributes.sharedSizeBytes >= 16384) {
      add(kernel, 64, 0, 0, "shared_mem");
    }
    // Above 64 registers, blocks of 128 threads: fewer blocks by registers than by anything else.
    if (kernel.attributes.numRegs > 64 && kernel.attributes.sharedSizeBytes == 0 &&
        kernel.attributes.maxThreadsPerBlock >= 128) {
      add(kernel, 128, 0, 0, "registers");
    }
  }
  const int per_sm = static_cast<int>(device.properties.sharedMemPerMultiprocessor);
  for (int blocks = 2; blocks <= 12; ++blocks) {
    add(smallest, 64, per_sm / blocks - device.reserved_shared, 0, "shared_mem");
  }
  for (const unsigned threads : {1024u, 768u, 512u, 384u, 256u, 192u}) add(smallest, threads, 0, 0, "warps");
  for (const unsigned threads : {1u, 17u, 32u}) add(smallest, threads, 0, 0, "blocks");
  for (std::size_t i = 2; i < barrier.size(); ++i) add(barrier[i], 64, 0, 0, "barriers");
  if (device.properties.major >= 9) {
    for (const int cluster : {2, 4, 8, 16}) {
      for (const unsigned threads : {32u, 64u, 256u, 512u, 1024u}) {
        for (const int shared : {0, 50 * 1024, 100 * 1024, 200 * 1024}) {
          add(smallest, threads, shared, cluster, "cluster");
        }
      }
    }
  }
  return out;
}

const char* text_after(int argc, char** argv, const char* option) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], option) == 0) return argv[i + 1];
  }
  return nullptr;
}
int number_after(int argc, char** argv, const char* option, int otherwise) {
  const char* text = text_after(argc, argv, option);
  return text == nullptr ? otherwise : std::atoi(text);
}
bool has(int argc, char** argv, const char* option) {
  return std::any_of(argv + 1, argv + argc, [option](const char* a) { return std::strcmp(a, option) == 0; });
}

}  // namespace

int main(int argc, char** argv) {
  Device device;
  must(cudaGetDeviceProperties(&device.properties, 0), "cudaGetDeviceProperties");
  must(cudaDeviceGetAttribute(&device.max_dynamic_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "opt-in limit");
  must(cudaDeviceGetAttribute(&device.reserved_shared, cudaDevAttrReservedSharedMemoryPerBlock, 0), "reserved memory");
  std::vector<Kernel> kernels, barrier;
  for (const void* function : register_kernels()) kernels.push_back(describe(function, device, 0));
  int barriers = 1;
  for (const void* function : barrier_kernels(std::make_integer_sequence<int, 16>{})) {
    barrier.push_back(describe(function, device, barriers++));
  }
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");

  int index = 0;
  const char* only = text_after(argc, argv, "--family");
  if (only != nullptr || has(argc, argv, "--families")) {
    for (const Config& config : families(kernels, barrier, device)) {
      if (only == nullptr || std::strcmp(only, config.family) == 0) run(device, config, index++, stream);
    }
  }
  const bool clusters = device.properties.major >= 9 && !has(argc, argv, "--no-clusters");
  Generator generator(kernels, clusters, static_cast<unsigned>(number_after(argc, argv, "--seed", 20)));
  const int count = number_after(argc, argv, "--count", 0);
  for (int i = 0; i < count; ++i) {
    Config config = generator.next();
    fit(config);
    run(device, config, index++, stream);
    if (i % 256 == 255) must(cudaStreamSynchronize(stream), "synchronize");
  }
  const int launch_carveouts = number_after(argc, argv, "--launch-carveout", 0);
  for (int i = 0; i < launch_carveouts; ++i) {
    Config config = generator.next_with_launch_carveout();
    fit(config);
    run(device, config, index++, stream);
  }
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::printf("{\"sms\":%d,\"max_warps_per_sm\":%d,\"launches\":%d}\n", device.properties.multiProcessorCount,
              device.properties.maxThreadsPerMultiProcessor / 32, index);
  return 0;
}
