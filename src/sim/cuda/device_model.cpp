// What a board answers when asked: device attributes, and occupancy by NVIDIA's own header.
#include "sim/cuda/driver.h"

#include <cuda_occupancy.h>

#include <climits>

namespace gpuflight::sim {

int device_attribute(const event::DeviceInfo& board, int ordinal, CUdevice_attribute attribute, bool* known) {
  *known = true;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return board.max_threads_per_block;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return INT_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return board.shared_bytes_per_block;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return board.warp_size;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return INT_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return board.regs_per_block;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return board.sm_clock_khz;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: return board.copy_engines > 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return board.sm_count;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: return 0;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: return board.integrated;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: return 1;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: return board.ecc;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return 0x0b + ordinal;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return 0;
    case CU_DEVICE_ATTRIBUTE_TCC_DRIVER: return 0;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return board.memory_clock_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return board.memory_bus_bits;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return board.l2_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return board.max_threads_per_sm;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return board.copy_engines;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return board.compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return board.compute_minor;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return board.shared_bytes_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return board.regs_per_sm;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: return board.managed_memory;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD: return 0;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: return board.managed_memory;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: return board.cooperative_launch;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH: return board.cooperative_launch;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return board.shared_bytes_per_block_optin;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return 0;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return board.max_blocks_per_sm;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return board.reserved_shared_bytes_per_block;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return board.memory_pools;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return board.cluster_launch;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED: return 0;
    default: *known = false; return 0;
  }
}

int occupancy_blocks(const KernelState& kernel, int block_threads, std::size_t dynamic_shared_bytes, int carveout) {
  const event::DeviceInfo& board = sim_config().board;
  if (block_threads <= 0) return -CUDA_ERROR_INVALID_VALUE;
  if (block_threads > kernel.image.max_threads) return 0;
  cudaOccDeviceProp properties;
  properties.computeMajor = board.compute_major;
  properties.computeMinor = board.compute_minor;
  properties.maxThreadsPerBlock = board.max_threads_per_block;
  properties.maxThreadsPerMultiprocessor = board.max_threads_per_sm;
  properties.regsPerBlock = board.regs_per_block;
  properties.regsPerMultiprocessor = board.regs_per_sm;
  properties.warpSize = board.warp_size;
  properties.sharedMemPerBlock = static_cast<std::size_t>(board.shared_bytes_per_block);
  properties.sharedMemPerMultiprocessor = static_cast<std::size_t>(board.shared_bytes_per_sm);
  properties.numSms = board.sm_count;
  properties.sharedMemPerBlockOptin = static_cast<std::size_t>(board.shared_bytes_per_block_optin);
  properties.reservedSharedMemPerBlock = static_cast<std::size_t>(board.reserved_shared_bytes_per_block);

  cudaOccFuncAttributes attributes;
  attributes.maxThreadsPerBlock = kernel.image.max_threads;
  attributes.numRegs = kernel.image.registers;
  attributes.sharedSizeBytes = static_cast<std::size_t>(kernel.image.static_shared_bytes);
  attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = static_cast<std::size_t>(kernel.max_dynamic_shared_bytes.load());
  // The header knows the barrier rule of Hopper and later (64 / n, as measured); before that every block slot has its
  // own sixteen.
  attributes.numBlockBarriers = kernel.image.barriers;

  cudaOccDeviceState state;
  state.carveoutConfig = carveout;
  cudaOccResult result;
  const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state,
                                                                     block_threads, dynamic_shared_bytes);
  return error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuflight::sim
