#include "capture/activity_configs.h"

#include <functional>
#include <string_view>

#include "occupancy/occupancy_model.h"

namespace gpuflight::capture {
namespace {

constexpr std::size_t kMostKnown = 65'536;  // beyond it kernels are looked up again and again

bool same_shape(const event::LaunchShape& a, const event::LaunchShape& b) {
  return a.block == b.block && a.dyn_shared_bytes == b.dyn_shared_bytes && a.cluster == b.cluster;
}

}  // namespace

std::size_t ActivityConfigs::Hash::operator()(const Key& key) const noexcept {
  std::size_t h = key.name_hash;
  for (const std::uint32_t part : {key.device, key.block.x, key.block.y, key.block.z, key.dyn_shared_bytes, key.cluster.x,
                                   static_cast<std::uint32_t>(key.num_regs)}) {
    h = (h ^ part) * 0x9E3779B97F4A7C15ull;
  }
  return h;
}

event::ConfigId ActivityConfigs::find(const ActivityRecord& record) noexcept {
  if (record.name == nullptr) return {};
  try {
    const std::string_view name = record.name;
    Key key;
    key.name_hash = std::hash<std::string_view>()(name);
    key.device = record.device;
    key.block = record.shape.block;
    key.cluster = record.shape.cluster;
    key.dyn_shared_bytes = record.shape.dyn_shared_bytes;
    key.num_regs = record.num_regs;
    key.static_shared_bytes = record.static_shared_bytes;
    const auto [first, last] = known_.equal_range(key);
    for (auto it = first; it != last; ++it) {
      if (it->second.name == name) return it->second.config;
    }
    const event::ConfigId config = look_up(record, name, key.name_hash);
    if (config && known_.size() < kMostKnown) known_.emplace(key, Known{std::string(name), config});
    return config;
  } catch (...) {
    return {};
  }
}

event::ConfigId ActivityConfigs::look_up(const ActivityRecord& record, std::string_view name,
                                         std::size_t name_hash) {
  index_new_configs();
  const auto [first, last] = by_name_.equal_range(name_hash);
  for (auto it = first; it != last; ++it) {
    const event::KernelConfig& config = *kernels_.config(it->second);
    const event::KernelInfo& kernel = *kernels_.kernel(config.kernel);
    const bool facts_agree = (record.num_regs < 0 || kernel.num_regs < 0 || record.num_regs == kernel.num_regs) &&
                             (record.static_shared_bytes < 0 || kernel.static_shared_bytes < 0 ||
                              record.static_shared_bytes == kernel.static_shared_bytes);
    if (kernel.name == name && kernel.device == static_cast<std::int32_t>(record.device) && facts_agree &&
        same_shape(config.shape, record.shape)) {
      return it->second;
    }
  }
  return make(record, name);
}

event::ConfigId ActivityConfigs::make(const ActivityRecord& record, std::string_view name) {
  event::KernelInfo kernel;
  kernel.name = name;
  kernel.device = static_cast<std::int32_t>(record.device);
  kernel.num_regs = record.num_regs;
  kernel.static_shared_bytes = record.static_shared_bytes;
  kernel.local_bytes_per_thread = record.local_bytes_per_thread;
  event::KernelConfig config;
  config.kernel = kernels_.intern_kernel(kernel, -1);
  if (!config.kernel) return {};
  config.shape = record.shape;
  if (const auto known = kernels_.find_config(config.kernel, config.shape)) return *known;
  if (const event::DeviceInfo* const device = devices_.describe(kernel.device)) {
    config.occupancy = occupancy::compute_occupancy(*device, kernel, config.shape);
  }
  return kernels_.intern_config(config);
}

void ActivityConfigs::index_new_configs() {
  for (const std::uint32_t have = kernels_.configs(); indexed_ < have; ++indexed_) {
    const event::ConfigId id{indexed_ + 1};
    const event::KernelConfig* const config = kernels_.config(id);
    const event::KernelInfo* const kernel = config != nullptr ? kernels_.kernel(config->kernel) : nullptr;
    if (kernel != nullptr) by_name_.emplace(std::hash<std::string_view>()(kernel->name), id);
  }
}

}  // namespace gpuflight::capture
