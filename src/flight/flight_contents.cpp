#include "flight/flight_contents.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "event/api_call.h"
#include "flight/shared_time.h"

namespace gpuflight::flight {
namespace {

constexpr auto kReady = static_cast<std::uint32_t>(RowState::kReady);
constexpr auto kFree = static_cast<std::uint32_t>(RowState::kFree);
// A kernel's name may be tens of kilobytes; a length beyond this is damage, and would be repeated on every line.
constexpr std::uint32_t kMaxStringBytes = 1u << 20;
constexpr std::size_t kMaxScopeDepth = 1024, kMaxScopeBytes = 256 * 1024;
// Times are ns since t0 and stay exact in a double (docs/FORMAT.md).
constexpr std::int64_t kMaxNs = std::int64_t{1} << 53;
constexpr const char* kNameNotKept = "(name not kept)";  // its arena was full, or is damaged

bool is_time(std::int64_t ns) { return ns >= 0 && ns < kMaxNs; }

template <class Row>
const Row* ready_row(const std::vector<Copied<Row>>& rows, std::uint32_t id) {
  if (id == 0 || id >= rows.size()) return nullptr;
  const Row& row = rows[id].get();
  return row.state.load(std::memory_order_relaxed) == kReady ? &row : nullptr;
}

}  // namespace

const char* flight_trouble_name(FlightTrouble trouble) {
  constexpr std::array<const char*, kFlightTroubleCount> kNames = {
      "truncated",    "bad_section", "bad_slot",   "bad_row",        "bad_string", "bad_chunk",
      "moved_chunk",  "stale_record", "bad_record", "unknown_record", "overlap",    "beyond_limit"};
  const auto i = static_cast<std::size_t>(trouble);
  return i < kNames.size() ? kNames[i] : "";
}

std::uint64_t FlightContents::trouble_total() const {
  std::uint64_t total = 0;
  for (const std::uint64_t n : troubles) total += n;
  return total;
}

std::optional<std::size_t> FlightContents::find(event::Seq seq) const {
  const auto key = std::pair(seq.slot(), seq.counter());
  auto after = std::upper_bound(chunks.begin(), chunks.end(), key, [](const auto& k, const HeldChunk& chunk) {
    return k < std::pair(chunk.slot, chunk.first_counter);
  });
  // Chunks of one slot hold disjoint counters, but for damage: there a few are looked at for the one that stands.
  constexpr int kLooks = 8;
  std::optional<std::size_t> found;
  for (int look = 0; look < kLooks && after != chunks.begin(); ++look) {
    const HeldChunk& chunk = *--after;
    if (chunk.slot != seq.slot()) break;
    const std::uint64_t at = seq.counter() - chunk.first_counter;
    if (at >= chunk.count) continue;
    const std::size_t record = chunk.first_record + static_cast<std::size_t>(at);
    if (usable_[record]) return record;
    if (!found) found = record;
  }
  return found;
}

std::optional<std::string_view> FlightContents::string_at(std::uint32_t offset) const {
  std::uint32_t length = 0;
  if (offset == kNoString || offset > strings_.size() || strings_.size() - offset < sizeof length) return std::nullopt;
  std::memcpy(&length, strings_.data() + offset, sizeof length);
  if (length > kMaxStringBytes || length > strings_.size() - offset - sizeof length) return std::nullopt;
  return std::string_view(strings_.data() + offset + sizeof length, length);
}

// Rows that cannot be are made free ones in our copy, so that nobody meets them.
void FlightContents::check_rows() {
  const auto reject = [&](auto& row) {
    row.state.store(kFree, std::memory_order_relaxed);
    count(FlightTrouble::kBadRow);
  };
  const auto each = [&](auto& rows, auto&& good) {
    for (std::uint32_t id = 0; id < rows.size(); ++id) {
      auto& row = rows[id].get();
      const std::uint32_t state = row.state.load(std::memory_order_relaxed);
      if (state == kFree) continue;
      if (state != kReady || id == 0 || !good(row, id)) reject(row);
    }
    while (!rows.empty() && rows.back().get().state.load(std::memory_order_relaxed) == kFree) rows.pop_back();
  };
  each(kernels_, [&](const KernelEntry& row, std::uint32_t) {
    if (row.name != kNoString && !string_at(row.name)) count(FlightTrouble::kBadString);
    return row.device >= -1 && row.num_regs >= -1 && row.static_shared_bytes >= -1;
  });
  each(configs_, [&](const ConfigEntry& row, std::uint32_t) {
    return ready_row(kernels_, row.kernel) != nullptr && row.limiter < event::kLimiterCount &&
           row.occupancy_source <= static_cast<std::uint8_t>(event::OccupancySource::kModel) &&
           row.limiters < (1u << event::kLimiterCount) && row.max_active_blocks >= -1 && row.warps_per_block >= 0 &&
           row.max_warps_per_sm >= 0;
  });
  each(streams_, [](const StreamEntry& row, std::uint32_t) {
    return row.kind <= static_cast<std::uint8_t>(event::StreamInfo::Kind::kCreated) && row.device >= -1;
  });
  // A parent is made before its children: that also means that a path ends.
  each(scopes_, [&](const ScopeEntry& row, std::uint32_t id) {
    if (row.name != kNoString && !string_at(row.name)) count(FlightTrouble::kBadString);
    return row.parent < id;
  });
}

void FlightContents::check_records() {
  std::sort(chunks.begin(), chunks.end(), [](const HeldChunk& a, const HeldChunk& b) {
    return std::tuple(a.slot, a.first_counter, a.index) < std::tuple(b.slot, b.first_counter, b.index);
  });
  usable_.assign(records_.size(), false);
  std::uint32_t slot = ~0u;
  std::uint64_t end = 0;  // of the counters that chunks of this slot have held so far
  for (const HeldChunk& chunk : chunks) {
    if (chunk.slot != slot) end = 0;
    slot = chunk.slot;
    const auto record_at = [&](std::uint32_t i) -> Record& { return records_[chunk.first_record + i].get(); };
    for (std::uint32_t i = 0; i < chunk.count; ++i) {
      const std::size_t at = chunk.first_record + i;
      const Record& r = record_at(i);
      // As the recorder would have; of the last ones nobody knows by when they had come back.
      settle_shared_time(record_at, i, chunk.count, [] { return std::optional<std::int64_t>(); });
      const std::uint64_t counter = chunk.first_counter + i;
      const auto phase = r.phase.load(std::memory_order_relaxed);
      if (counter < end) {
        count(FlightTrouble::kOverlap);
      } else if (r.counter_low != static_cast<std::uint32_t>(counter)) {
        count(FlightTrouble::kStaleRecord);
      } else if (r.kind > static_cast<std::uint8_t>(RecordKind::kApiCall) ||
                 (r.kind == static_cast<std::uint8_t>(RecordKind::kApiCall) && r.config >= event::kApiCallCount)) {
        count(FlightTrouble::kUnknownRecord);
      } else if (r.kind == static_cast<std::uint8_t>(RecordKind::kNone) || !is_time(r.launch_ns) ||
                 phase < static_cast<std::uint8_t>(RecordPhase::kEntered) ||
                 phase > static_cast<std::uint8_t>(RecordPhase::kAbandoned) ||
                 (phase == static_cast<std::uint8_t>(RecordPhase::kReturned) && !is_time(r.call_ns) &&
                  !(shares_time(r) && r.call_ns == kTimeNotKnown))) {
        count(FlightTrouble::kBadRecord);
      } else {
        usable_[at] = true;
      }
    }
    end = std::max(end, chunk.first_counter + chunk.count);
  }
}

std::optional<event::KernelInfo> FlightContents::kernel(event::KernelId id) const {
  const KernelEntry* const row = ready_row(kernels_, id.value);
  if (row == nullptr) return std::nullopt;
  event::KernelInfo info;
  info.name = string_at(row->name).value_or(kNameNotKept);
  info.device = row->device;
  info.num_regs = row->num_regs;
  info.static_shared_bytes = row->static_shared_bytes;
  info.local_bytes_per_thread = row->local_bytes_per_thread;
  info.const_bytes = row->const_bytes;
  info.max_threads_per_block = row->max_threads_per_block;
  info.max_dyn_shared_bytes = row->max_dyn_shared_bytes;
  info.binary_version = row->binary_version;
  info.ptx_version = row->ptx_version;
  info.module_hash = row->module_hash;
  return info;
}

std::optional<event::KernelConfig> FlightContents::config(event::ConfigId id) const {
  const ConfigEntry* const row = ready_row(configs_, id.value);
  if (row == nullptr) return std::nullopt;
  event::KernelConfig config;
  config.kernel = event::KernelId{row->kernel};
  event::LaunchShape& shape = config.shape;
  shape.block = {row->block[0], row->block[1], row->block[2]};
  shape.dyn_shared_bytes = row->dyn_shared_bytes;
  shape.cluster = {row->cluster[0], row->cluster[1], row->cluster[2]};
  shape.carveout = row->carveout;
  shape.carveout_from_launch = row->carveout_from_launch != 0;
  shape.cooperative = row->cooperative != 0;
  event::Occupancy& occupancy = config.occupancy;
  occupancy.source = static_cast<event::OccupancySource>(row->occupancy_source);
  occupancy.limiter = static_cast<event::Limiter>(row->limiter);
  occupancy.limiters = row->limiters;
  occupancy.model_disagrees = row->model_disagrees != 0;
  occupancy.max_active_blocks = row->max_active_blocks;
  occupancy.warps_per_block = row->warps_per_block;
  occupancy.max_warps_per_sm = row->max_warps_per_sm;
  occupancy.model_blocks = row->model_blocks;
  occupancy.max_active_clusters = row->max_active_clusters;
  for (int i = 0; i < event::kLimiterCount; ++i) {
    occupancy.limit_blocks[static_cast<std::size_t>(i)] = row->limit_blocks[i];
  }
  return config;
}

std::optional<event::StreamInfo> FlightContents::stream(event::StreamId id) const {
  const StreamEntry* const row = ready_row(streams_, id.value);
  if (row == nullptr) return std::nullopt;
  event::StreamInfo info;
  info.stream = id;
  info.context = event::ContextId{row->context};
  info.device = row->device;
  info.kind = static_cast<event::StreamInfo::Kind>(row->kind);
  info.handle = row->handle;
  if (row->has_priority != 0) info.priority = row->priority;
  if (row->has_flags != 0) info.flags = row->flags;
  info.thread = row->thread;
  return info;
}

std::int64_t FlightContents::finished_ns(event::StreamId id) const {
  const StreamEntry* const row = ready_row(streams_, id.value);
  if (row == nullptr) return 0;
  const std::int64_t ns = row->finished_ns.load(std::memory_order_relaxed);
  return is_time(ns) ? ns : 0;
}

std::optional<std::string> FlightContents::scope_path(event::ScopeId id) const {
  std::vector<std::string_view> names;
  std::size_t bytes = 0;
  for (std::uint32_t at = id.value; at != 0;) {
    const ScopeEntry* const row = ready_row(scopes_, at);
    if (row == nullptr || names.size() == kMaxScopeDepth) return std::nullopt;
    names.push_back(string_at(row->name).value_or(kNameNotKept));
    bytes += names.back().size() + 1;
    if (bytes > kMaxScopeBytes) return std::nullopt;
    at = row->parent;
  }
  if (names.empty()) return std::nullopt;
  std::string path;
  path.reserve(bytes);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!path.empty()) path += '/';
    path += *name;
  }
  return path;
}

}  // namespace gpuflight::flight
