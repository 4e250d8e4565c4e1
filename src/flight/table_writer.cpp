#include "flight/table_writer.h"

#include <cstring>

namespace gpuflight::flight {
namespace {

constexpr auto kReady = static_cast<std::uint32_t>(RowState::kReady);

template <class Entry>
void publish(Entry& entry, std::atomic<std::uint32_t>& used_in_file, std::uint32_t used) {
  entry.state.store(kReady, std::memory_order_release);
  used_in_file.store(used, std::memory_order_release);
}

}  // namespace

// Offset of the text, or kNoString when the arena is full.
std::uint32_t TableWriter::add_string(std::string_view text) noexcept {
  const std::uint64_t capacity = file_.capacities().string_bytes;
  const std::uint64_t need = (sizeof(std::uint32_t) + text.size() + 3) / 4 * 4;
  if (need > capacity) return kNoString;
  std::uint64_t here = strings_.load(std::memory_order_relaxed);
  do {
    if (here + need > capacity) return kNoString;
  } while (!strings_.compare_exchange_weak(here, here + need, std::memory_order_relaxed));
  char* const place = file_.strings() + here;
  const auto length = static_cast<std::uint32_t>(text.size());
  std::memcpy(place, &length, sizeof length);
  std::memcpy(place + sizeof length, text.data(), text.size());
  file_.header().strings_used.store(strings_.load(std::memory_order_relaxed), std::memory_order_release);
  return static_cast<std::uint32_t>(here);
}

event::KernelId TableWriter::add_kernel(const event::KernelInfo& kernel) noexcept {
  if (kernels_ >= file_.capacities().kernels) return {};
  const std::uint32_t row = kernels_++;
  KernelEntry& entry = file_.kernels()[row];
  entry.name = add_string(kernel.name);
  entry.device = kernel.device;
  entry.num_regs = kernel.num_regs;
  entry.static_shared_bytes = kernel.static_shared_bytes;
  entry.local_bytes_per_thread = kernel.local_bytes_per_thread;
  entry.const_bytes = kernel.const_bytes;
  entry.max_threads_per_block = kernel.max_threads_per_block;
  entry.max_dyn_shared_bytes = kernel.max_dyn_shared_bytes;
  entry.binary_version = kernel.binary_version;
  entry.ptx_version = kernel.ptx_version;
  entry.module_hash = kernel.module_hash;
  publish(entry, file_.header().kernels_used, kernels_);
  return event::KernelId{row};
}

event::ConfigId TableWriter::add_config(const event::KernelConfig& config) noexcept {
  if (configs_ >= file_.capacities().configs) return {};
  const std::uint32_t row = configs_++;
  ConfigEntry& entry = file_.configs()[row];
  const event::LaunchShape& shape = config.shape;
  const event::Occupancy& occupancy = config.occupancy;
  entry.kernel = config.kernel.value;
  entry.block[0] = shape.block.x;
  entry.block[1] = shape.block.y;
  entry.block[2] = shape.block.z;
  entry.dyn_shared_bytes = shape.dyn_shared_bytes;
  entry.cluster[0] = shape.cluster.x;
  entry.cluster[1] = shape.cluster.y;
  entry.cluster[2] = shape.cluster.z;
  entry.carveout = shape.carveout;
  entry.carveout_from_launch = shape.carveout_from_launch;
  entry.cooperative = shape.cooperative;
  entry.occupancy_source = static_cast<std::uint8_t>(occupancy.source);
  entry.limiter = static_cast<std::uint8_t>(occupancy.limiter);
  entry.limiters = occupancy.limiters;
  entry.model_disagrees = occupancy.model_disagrees;
  entry.max_active_blocks = occupancy.max_active_blocks;
  entry.warps_per_block = occupancy.warps_per_block;
  entry.max_warps_per_sm = occupancy.max_warps_per_sm;
  entry.model_blocks = occupancy.model_blocks;
  entry.max_active_clusters = occupancy.max_active_clusters;
  for (int i = 0; i < event::kLimiterCount; ++i) entry.limit_blocks[i] = occupancy.limit_blocks[i];
  publish(entry, file_.header().configs_used, configs_);
  return event::ConfigId{row};
}

event::StreamId TableWriter::add_stream(const event::StreamInfo& stream) noexcept {
  if (streams_ >= file_.capacities().streams) return {};
  const std::uint32_t row = streams_++;
  StreamEntry& entry = file_.streams()[row];
  entry.context = stream.context.value;
  entry.device = stream.device;
  entry.kind = static_cast<std::uint8_t>(stream.kind);
  entry.has_priority = stream.priority.has_value();
  entry.has_flags = stream.flags.has_value();
  entry.handle = stream.handle;
  entry.priority = stream.priority.value_or(0);
  entry.flags = stream.flags.value_or(0);
  entry.thread = stream.thread;
  publish(entry, file_.header().streams_used, streams_);
  return event::StreamId{row};
}

event::ScopeId TableWriter::add_scope(event::ScopeId parent, std::string_view name) noexcept {
  if (scopes_ >= file_.capacities().scopes) return {};
  const std::uint32_t row = scopes_++;
  ScopeEntry& entry = file_.scopes()[row];
  entry.parent = parent.value;
  entry.name = add_string(name);
  publish(entry, file_.header().scopes_used, scopes_);
  return event::ScopeId{row};
}

}  // namespace gpuflight::flight
