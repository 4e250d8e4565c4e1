#include "capture/kernel_table.h"

#include <functional>
#include <string_view>
#include <tuple>

namespace gpuflight::capture {
namespace {

std::size_t mix(std::size_t seed, std::uint64_t value) {
  return (seed ^ value) * 0x9E3779B97F4A7C15ull + (seed >> 29);
}

auto facts(const event::KernelInfo& k) {
  return std::tie(k.name, k.device, k.num_regs, k.static_shared_bytes, k.local_bytes_per_thread, k.const_bytes,
                  k.max_threads_per_block, k.max_dyn_shared_bytes, k.binary_version, k.ptx_version, k.module_hash);
}

}  // namespace

std::size_t KernelTable::KernelHash::operator()(const KernelKey& key) const noexcept {
  std::size_t h = std::hash<std::string_view>{}(key.info->name);
  h = mix(h, static_cast<std::uint32_t>(key.info->num_regs));
  h = mix(h, static_cast<std::uint32_t>(key.info->static_shared_bytes));
  h = mix(h, static_cast<std::uint32_t>(key.info->device));
  return mix(h, static_cast<std::uint32_t>(key.probe));
}

bool KernelTable::KernelEqual::operator()(const KernelKey& a, const KernelKey& b) const noexcept {
  return a.probe == b.probe && facts(*a.info) == facts(*b.info);
}

std::size_t KernelTable::ConfigHash::operator()(const ConfigKey& key) const noexcept {
  const event::LaunchShape& s = key.shape;
  std::size_t h = mix(key.kernel.value, s.block.x | std::uint64_t{s.block.y} << 32);
  h = mix(h, s.block.z | std::uint64_t{s.dyn_shared_bytes} << 32);
  h = mix(h, s.cluster.x | std::uint64_t{s.cluster.y} << 20 | std::uint64_t{s.cluster.z} << 40);
  return mix(h, static_cast<std::uint32_t>(s.carveout) | std::uint64_t{s.cooperative} << 32);
}

KernelTable::KernelTable(flight::TableWriter& rows, std::uint32_t kernel_capacity, std::uint32_t config_capacity)
    : rows_(rows),
      kernel_capacity_(kernel_capacity),
      config_capacity_(config_capacity),
      kernels_(new std::unique_ptr<const event::KernelInfo>[kernel_capacity]),
      configs_(new std::unique_ptr<const event::KernelConfig>[config_capacity]) {}

event::KernelId KernelTable::intern_kernel(const event::KernelInfo& kernel, std::int32_t probe) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (const auto it = kernel_ids_.find(KernelKey{&kernel, probe}); it != kernel_ids_.end()) return it->second;
    auto copy = std::make_unique<const event::KernelInfo>(kernel);
    const event::KernelId id = rows_.add_kernel(kernel);
    if (!id || id.value >= kernel_capacity_) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
    const event::KernelInfo* const stable = copy.get();
    kernels_[id.value] = std::move(copy);
    kernels_used_.store(id.value + 1, std::memory_order_release);
    kernel_ids_.emplace(KernelKey{stable, probe}, id);
    return id;
  } catch (...) {
    return {};
  }
}

std::optional<event::ConfigId> KernelTable::find_config(event::KernelId kernel,
                                                        const event::LaunchShape& shape) noexcept {
  std::lock_guard lock(mutex_);
  const auto it = config_ids_.find(ConfigKey{kernel, shape});
  if (it == config_ids_.end()) return std::nullopt;
  return it->second;
}

event::ConfigId KernelTable::intern_config(const event::KernelConfig& config) noexcept {
  try {
    std::lock_guard lock(mutex_);
    const ConfigKey key{config.kernel, config.shape};
    if (const auto it = config_ids_.find(key); it != config_ids_.end()) return it->second;
    auto copy = std::make_unique<const event::KernelConfig>(config);
    const event::ConfigId id = rows_.add_config(config);
    if (!id || id.value >= config_capacity_) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
    configs_[id.value] = std::move(copy);
    configs_used_.store(id.value + 1, std::memory_order_release);
    config_ids_.emplace(key, id);
    return id;
  } catch (...) {
    return {};
  }
}

const event::KernelInfo* KernelTable::kernel(event::KernelId id) const noexcept {
  return id && id.value < kernels_used_.load(std::memory_order_acquire) ? kernels_[id.value].get() : nullptr;
}

const event::KernelConfig* KernelTable::config(event::ConfigId id) const noexcept {
  return id && id.value < configs_used_.load(std::memory_order_acquire) ? configs_[id.value].get() : nullptr;
}

}  // namespace gpuflight::capture
