#include "capture/kernel_resolver.h"

#include <algorithm>
#include <string>

#include "occupancy/occupancy_model.h"

namespace gpuflight::capture {
namespace {

// The smallest launch there is: what limits it beyond registers and shared memory are named barriers, and nothing else
// that differs between kernels of equal facts.
constexpr int kProbeThreads = 32;

// Shared memory that every function may use without being set to.
constexpr std::uint32_t kDefaultShared = 48 * 1024;

}  // namespace

KernelResolver::Result KernelResolver::resolve(const LaunchCall& call, std::int32_t device) noexcept {
  try {
    RelaxedCapture relaxed(driver_);
    const Function function = look_up(call, device);
    const event::KernelInfo* const kernel = table_.kernel(function.kernel);
    if (kernel == nullptr) return {};
    event::LaunchShape shape = call.shape;
    if (shape.cluster == event::Dim3{0, 0, 0}) shape.cluster = function.required_cluster;
    if (!shape.carveout_from_launch) shape.carveout = function.carveout;
    // The limit is set per function at any time, by some libraries before every launch, so it is asked for and not kept.
    // It matters to launches that exceed it only: the driver refuses them, and may not once it has been raised.
    const std::uint64_t shared = std::uint64_t{shape.dyn_shared_bytes} +
                                 static_cast<std::uint64_t>(std::max(kernel->static_shared_bytes, 0));
    if (details_ && driver_.func_get_attribute != nullptr && shared > kDefaultShared) {
      const int limit = attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function.handle, INT32_MAX);
      shape.over_dynamic_limit = shape.dyn_shared_bytes > static_cast<std::uint32_t>(limit);
    }
    if (const auto known = table_.find_config(function.kernel, shape)) return {*known, !shape.over_dynamic_limit};
    event::KernelConfig config{function.kernel, shape, {}};
    if (details_) config.occupancy = occupancy(function, *kernel, shape);
    return {table_.intern_config(config), !shape.over_dynamic_limit};
  } catch (...) {
    return {};
  }
}

KernelResolver::Function KernelResolver::look_up(const LaunchCall& call, std::int32_t device) {
  const FunctionKey key{call.function, call.context_uid};
  const std::uint64_t generation = this->generation();
  {
    std::lock_guard lock(mutex_);
    const auto it = functions_.find(key);
    if (it != functions_.end() && it->second.generation == generation) return it->second;
  }
  Function function = ask(call, device);
  function.generation = generation;
  std::lock_guard lock(mutex_);
  functions_[key] = function;
  return function;
}

KernelResolver::Function KernelResolver::ask(const LaunchCall& call, std::int32_t device) {
  Function function;
  // Static cudart passes a CUkernel where a CUfunction is declared; cuFunc* calls refuse it. The driver knows which.
  function.handle = static_cast<CUfunction>(const_cast<void*>(call.function));
  CUfunction of_kernel = nullptr;
  if (details_ || call.symbol == nullptr) {
    if (driver_.kernel_get_function != nullptr &&
        driver_.kernel_get_function(&of_kernel, reinterpret_cast<CUkernel>(function.handle)) == CUDA_SUCCESS) {
      function.handle = of_kernel;
    }
  }
  event::KernelInfo info;
  info.device = device;
  const char* name = call.symbol;
  if (name == nullptr && driver_.func_get_name != nullptr &&
      driver_.func_get_name(&name, function.handle) != CUDA_SUCCESS) {
    name = nullptr;
  }
  info.name = name != nullptr ? name : "";
  int probe = -1;
  if (details_ && driver_.func_get_attribute != nullptr) {
    info.num_regs = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, function.handle, -1);
    info.static_shared_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.handle, -1);
    info.local_bytes_per_thread = attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function.handle, -1);
    info.const_bytes = attribute(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, function.handle, -1);
    info.max_threads_per_block = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function.handle, -1);
    info.binary_version = attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION, function.handle, -1);
    info.ptx_version = attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION, function.handle, -1);
    // The function's dynamic maximum is left out: it is set per handle, and would split equal kernels into many rows.
    function.carveout = attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function.handle, -1);
    function.required_cluster.x = attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, function.handle, 0);
    function.required_cluster.y = attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, function.handle, 0);
    function.required_cluster.z = attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, function.handle, 0);
    probe = ask_probe(function, info);
  }
  function.kernel = table_.intern_kernel(info, probe);
  if (!function.kernel) {
    notices_.post(event::Severity::kWarning, "kernel_table_full",
                  "the kernel table is full: launches of further kernels are logged without their facts; raise kernels_max");
  }
  return function;
}

// The driver's answer for the smallest launch where it is below the model's, else 0: the model takes the carve-out of
// the function into account, so that setting it does not make another kernel of it.
int KernelResolver::ask_probe(const Function& function, const event::KernelInfo& kernel) const {
  int blocks = -1;
  if (driver_.occupancy_blocks == nullptr ||
      driver_.occupancy_blocks(&blocks, function.handle, kProbeThreads, 0) != CUDA_SUCCESS) {
    return -1;
  }
  const event::DeviceInfo* const device = devices_.describe(kernel.device);
  if (device == nullptr) return blocks;
  event::LaunchShape shape;
  shape.block = {kProbeThreads, 1, 1};
  shape.carveout = function.carveout;
  return blocks == occupancy::compute_occupancy(*device, kernel, shape).max_active_blocks ? 0 : blocks;
}

int KernelResolver::attribute(CUfunction_attribute which, CUfunction function, int unknown) const {
  int value = unknown;
  return driver_.func_get_attribute(&value, which, function) == CUDA_SUCCESS ? value : unknown;
}

event::Occupancy KernelResolver::occupancy(const Function& function, const event::KernelInfo& kernel,
                                           const event::LaunchShape& shape) {
  const event::DeviceInfo* const device = devices_.describe(kernel.device);
  if (device == nullptr) return {};
  occupancy::DriverAnswer answer;
  int blocks = -1;
  const std::uint64_t threads = shape.block.count();
  if (!shape.carveout_from_launch && driver_.occupancy_blocks != nullptr && threads > 0 && threads <= INT32_MAX &&
      driver_.occupancy_blocks(&blocks, function.handle, static_cast<int>(threads), shape.dyn_shared_bytes) ==
          CUDA_SUCCESS) {
    answer.max_active_blocks = blocks;
  }
  if (shape.cluster != event::Dim3{0, 0, 0}) answer.max_active_clusters = ask_clusters(function.handle, shape);
  const event::Occupancy result = occupancy::compute_occupancy(*device, kernel, shape, answer);
  // A launch beyond its function's limit is refused, and says so in its status; the model does not know that limit.
  if (result.model_disagrees && !shape.over_dynamic_limit) {
    mismatches_.fetch_add(1, std::memory_order_relaxed);
    try {
      notices_.post(event::Severity::kWarning, "occupancy_mismatch",
                    "driver and occupancy model disagree for " + kernel.name.substr(0, 200) + ": driver " +
                        std::to_string(result.max_active_blocks) + " blocks, model " +
                        std::to_string(result.model_blocks) + "; the driver's is logged; further cases are counted");
    } catch (...) {
    }
  }
  return result;
}

int KernelResolver::ask_clusters(CUfunction function, const event::LaunchShape& shape) const {
  if (driver_.occupancy_clusters == nullptr) return -1;
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim.x = shape.cluster.x;
  cluster.value.clusterDim.y = shape.cluster.y;
  cluster.value.clusterDim.z = shape.cluster.z;
  CUlaunchConfig config{};
  // The grid does not matter to the answer, but must be a multiple of the cluster.
  config.gridDimX = shape.cluster.x;
  config.gridDimY = shape.cluster.y;
  config.gridDimZ = shape.cluster.z;
  config.blockDimX = shape.block.x;
  config.blockDimY = shape.block.y;
  config.blockDimZ = shape.block.z;
  config.sharedMemBytes = shape.dyn_shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = -1;
  return driver_.occupancy_clusters(&clusters, function, &config) == CUDA_SUCCESS ? clusters : -1;
}

void KernelResolver::on_handles_released() noexcept {
  std::lock_guard lock(mutex_);
  functions_.clear();
  carveouts_set_.clear();
  legacy_.clear();
  new_generation();
}

void KernelResolver::on_attribute_set(const void* function, int which, int value) noexcept {
  if (!details_ || which != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return;
  try {
    std::lock_guard lock(mutex_);
    const auto [it, fresh] = carveouts_set_.try_emplace(function, value);
    if (!fresh && it->second == value) return;
    it->second = value;
    // A CUkernel and its CUfunction are two handles of one thing, so all are asked again; the kernel's row is found by
    // its contents and the configuration by its key: no occupancy is computed twice.
    functions_.clear();
    new_generation();
  } catch (...) {
    on_handles_released();
  }
}

void KernelResolver::on_block_shape_set(const void* function, event::Dim3 block) noexcept {
  try {
    std::lock_guard lock(mutex_);
    legacy_[function].block = block;
  } catch (...) {
  }
}

void KernelResolver::on_shared_size_set(const void* function, std::uint32_t bytes) noexcept {
  try {
    std::lock_guard lock(mutex_);
    legacy_[function].shared_bytes = bytes;
  } catch (...) {
  }
}

void KernelResolver::legacy_shape(const void* function, event::LaunchShape& shape) noexcept {
  std::lock_guard lock(mutex_);
  if (const auto it = legacy_.find(function); it != legacy_.end()) {
    shape.block = it->second.block;
    shape.dyn_shared_bytes = it->second.shared_bytes;
  }
}

}  // namespace gpuflight::capture
