// Kernels and their configurations, each interned once: equal contents share a row, whatever handle they came under.
//
// Threads: any adds (on a miss of the thread's launch cache: locks, may allocate, never calls the driver), the recorder
// reads rows without the lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "event/events.h"
#include "flight/table_writer.h"

namespace gpuflight::capture {

class KernelTable {
 public:
  KernelTable(flight::TableWriter& rows, std::uint32_t kernel_capacity, std::uint32_t config_capacity);

  // `probe` tells apart kernels whose known facts are equal and whose occupancy is not (named barriers are no fact that
  // the driver gives). 0: the table is full.
  event::KernelId intern_kernel(const event::KernelInfo& kernel, std::int32_t probe) noexcept;

  std::optional<event::ConfigId> find_config(event::KernelId kernel, const event::LaunchShape& shape) noexcept;
  event::ConfigId intern_config(const event::KernelConfig& config) noexcept;

  // By id, stable for good; null for 0 and for ids not given out.
  const event::KernelInfo* kernel(event::KernelId id) const noexcept;
  const event::KernelConfig* config(event::ConfigId id) const noexcept;

  std::uint32_t kernels() const noexcept { return kernels_used_.load(std::memory_order_acquire) - 1; }
  std::uint32_t configs() const noexcept { return configs_used_.load(std::memory_order_acquire) - 1; }
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }  // no room

 private:
  struct KernelKey {
    const event::KernelInfo* info;
    std::int32_t probe;
  };
  struct KernelHash {
    std::size_t operator()(const KernelKey& key) const noexcept;
  };
  struct KernelEqual {
    bool operator()(const KernelKey& a, const KernelKey& b) const noexcept;
  };
  struct ConfigKey {
    event::KernelId kernel;
    event::LaunchShape shape;
    bool operator==(const ConfigKey&) const = default;
  };
  struct ConfigHash {
    std::size_t operator()(const ConfigKey& key) const noexcept;
  };

  flight::TableWriter& rows_;
  const std::uint32_t kernel_capacity_, config_capacity_;
  std::mutex mutex_;
  std::unordered_map<KernelKey, event::KernelId, KernelHash, KernelEqual> kernel_ids_;
  std::unordered_map<ConfigKey, event::ConfigId, ConfigHash> config_ids_;
  std::unique_ptr<std::unique_ptr<const event::KernelInfo>[]> kernels_;  // by id; published by kernels_used_
  std::unique_ptr<std::unique_ptr<const event::KernelConfig>[]> configs_;
  std::atomic<std::uint32_t> kernels_used_{1}, configs_used_{1};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace gpuflight::capture
