// The driver's own occupancy answers.
#include "sim/cuda/trace.h"

#include <algorithm>
#include <array>

using namespace gpuflight::sim;

namespace {

CUresult max_blocks(int* out, CUfunction func, int block_size, std::size_t dynamic_shared_bytes) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (const int error = sim_config().occupancy_error) return static_cast<CUresult>(error);
  const KernelState* state = kernel_state(func);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int blocks = occupancy_blocks(*state, block_size, dynamic_shared_bytes, state->carveout.load());
  if (blocks < 0) return static_cast<CUresult>(-blocks);
  *out = blocks;
  return CUDA_SUCCESS;
}

std::uint64_t cluster_size(const CUlaunchConfig& config, const KernelState& state) {
  std::uint64_t size = 1;
  for (const int n : state.image.required_cluster) size *= static_cast<std::uint64_t>(std::max(n, 1));
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& a = config.attrs[i];
    if (a.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    size = std::uint64_t{a.value.clusterDim.x} * a.value.clusterDim.y * a.value.clusterDim.z;
  }
  return size;
}

// A cluster lives in one GPC. The model: GPCs of 18 SMs and one with the rest; real chips are more uneven.
int max_clusters(const KernelState& state, const CUlaunchConfig& config, std::uint64_t size) {
  constexpr int kSmsPerGpc = 18;
  const unsigned threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  const int per_sm =
      std::max(0, occupancy_blocks(state, static_cast<int>(threads), config.sharedMemBytes, state.carveout.load()));
  // Of blocks in clusters an SM takes 8, however small they are (H200, driver 580.159: 528 clusters of 2 blocks of 64
  // or 128 threads, where 16 and 32 blocks fit without a cluster).
  constexpr int kClusterBlocksPerSm = 8;
  int clusters = 0;
  for (int left = sim_config().board.sm_count; left > 0; left -= kSmsPerGpc) {
    clusters += static_cast<int>(static_cast<std::uint64_t>(std::min(left, kSmsPerGpc) * std::min(per_sm, kClusterBlocksPerSm)) / size);
  }
  return clusters;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                             size_t dynamicSMemSize) {
  SIM_TRACED(cuOccupancyMaxActiveBlocksPerMultiprocessor, (numBlocks, func, blockSize, dynamicSMemSize),
             { return max_blocks(numBlocks, func, blockSize, dynamicSMemSize); });
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                                      size_t dynamicSMemSize, unsigned int flags) {
  SIM_TRACED(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (numBlocks, func, blockSize, dynamicSMemSize, flags),
             { return max_blocks(numBlocks, func, blockSize, dynamicSMemSize); });
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func, int numBlocks,
                                                         int blockSize) {
  SIM_TRACED(cuOccupancyAvailableDynamicSMemPerBlock, (dynamicSmemSize, func, numBlocks, blockSize), {
    const KernelState* state = kernel_state(func);
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    // The largest size that still gives that many blocks; monotone, so halving finds it.
    std::size_t low = 0, high = static_cast<std::size_t>(state->max_dynamic_shared_bytes.load());
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      if (occupancy_blocks(*state, blockSize, middle, state->carveout.load()) >= numBlocks) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    *dynamicSmemSize = low;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                                  CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                  size_t dynamicSMemSize, int blockSizeLimit) {
  SIM_TRACED(cuOccupancyMaxPotentialBlockSize,
             (minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit), {
               const KernelState* state = kernel_state(func);
               if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
               int limit = state->image.max_threads;
               if (blockSizeLimit > 0) limit = std::min(limit, blockSizeLimit);
               int best_threads = 0;
               for (int size = limit; size > 0; size -= size % 32 == 0 ? 32 : size % 32) {
                 const std::size_t shared =
                     blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
                 const int blocks = occupancy_blocks(*state, size, shared, state->carveout.load());
                 if (blocks * size <= best_threads) continue;
                 best_threads = blocks * size;
                 *blockSize = size;
                 *minGridSize = blocks * sim_config().board.sm_count;
               }
               return best_threads > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
             });
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func, const CUlaunchConfig* config) {
  SIM_TRACED(cuOccupancyMaxPotentialClusterSize, (clusterSize, func, config), {
    const KernelState* state = kernel_state(func);
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_config().board.cluster_launch) return CUDA_ERROR_NOT_SUPPORTED;
    for (int size = state->non_portable_cluster.load() != 0 ? 16 : 8; size > 0; size /= 2) {
      *clusterSize = size;
      if (max_clusters(*state, *config, static_cast<std::uint64_t>(size)) > 0) return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func, const CUlaunchConfig* config) {
  SIM_TRACED(cuOccupancyMaxActiveClusters, (numClusters, func, config), {
    const KernelState* state = kernel_state(func);
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_config().board.cluster_launch) return CUDA_ERROR_NOT_SUPPORTED;
    const std::uint64_t size = cluster_size(*config, *state);
    const unsigned largest = state->non_portable_cluster.load() != 0 ? 16 : 8;
    if (size == 0 || size > largest) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    *numClusters = max_clusters(*state, *config, size);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
