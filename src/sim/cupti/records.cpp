#include "sim/cupti/records.h"

#include <cupti_activity_deprecated.h>

#include <algorithm>
#include <cstring>

namespace gpuflight::sim {
namespace {

// From which version on a struct is so long. Beyond 13.0, whose headers we are built with, the numbers are those of the
// headers in NVIDIA's pip packages.
struct Length {
  std::uint32_t from_version;
  std::size_t bytes;
};
constexpr Length kKernel[] = {{0, sizeof(CUpti_ActivityKernel9)}, {130000, sizeof(CUpti_ActivityKernel10)},
                              {130100, 224}, {130300, 232}, {130400, 248}};
constexpr Length kMemcpy[] = {{0, sizeof(CUpti_ActivityMemcpy5)}, {26, sizeof(CUpti_ActivityMemcpy6)}, {130400, 112}};
constexpr Length kMemcpy2[] = {{0, sizeof(CUpti_ActivityMemcpyPtoP4)}};
constexpr Length kMemset[] = {{0, sizeof(CUpti_ActivityMemset4)}, {130400, 104}};
constexpr Length kGraphTrace[] = {{0, sizeof(CUpti_ActivityGraphTrace)}, {21, sizeof(CUpti_ActivityGraphTrace2)}};

template <std::size_t N>
std::size_t length_in(const Length (&lengths)[N], std::uint32_t version) {
  std::size_t bytes = 0;
  for (const Length& length : lengths) {
    if (length.from_version <= version) bytes = length.bytes;
  }
  return bytes;
}

template <class Raw>
RawRecord pack(const Raw& raw, std::uint32_t version, const Execution& execution) {
  RawRecord record;
  record.bytes = record_bytes(raw.kind, version);
  record.start_at = offsetof(Raw, start);
  record.end_at = offsetof(Raw, end);
  record.execution = &execution;
  std::memcpy(record.data.data(), &raw, std::min(record.bytes, sizeof raw));  // older structs are prefixes
  return record;
}

template <class Raw>
Raw with_common(CUpti_ActivityKind kind, const Execution& e) {
  Raw raw;
  std::memset(&raw, 0, sizeof raw);
  raw.kind = kind;
  raw.deviceId = e.device;
  raw.contextId = e.context_uid;
  raw.streamId = e.stream_id;
  raw.correlationId = e.correlation;
  raw.graphId = e.graph_id;
  return raw;
}

}  // namespace

std::size_t record_bytes(CUpti_ActivityKind kind, std::uint32_t version) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return length_in(kKernel, version);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return length_in(kMemcpy, version);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return length_in(kMemcpy2, version);
    case CUPTI_ACTIVITY_KIND_MEMSET: return length_in(kMemset, version);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return length_in(kGraphTrace, version);
    default: return 0;
  }
}

RawRecord make_record(const KernelExecution& kernel, std::uint32_t version, std::int64_t number) {
  auto r = with_common<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, kernel);
  r.registersPerThread = static_cast<std::uint16_t>(kernel.registers);
  r.gridX = static_cast<std::int32_t>(kernel.grid[0]);
  r.gridY = static_cast<std::int32_t>(kernel.grid[1]);
  r.gridZ = static_cast<std::int32_t>(kernel.grid[2]);
  r.blockX = static_cast<std::int32_t>(kernel.block[0]);
  r.blockY = static_cast<std::int32_t>(kernel.block[1]);
  r.blockZ = static_cast<std::int32_t>(kernel.block[2]);
  r.staticSharedMemory = kernel.static_shared_bytes;
  r.dynamicSharedMemory = kernel.dynamic_shared_bytes;
  r.localMemoryPerThread = static_cast<std::uint32_t>(kernel.local_bytes);
  r.gridId = number;
  r.name = kernel.name;
  r.launchType = kernel.cooperative ? CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE
                                    : CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR;
  r.isSharedMemoryCarveoutRequested = kernel.carveout >= 0;
  r.sharedMemoryCarveoutRequested = static_cast<std::uint8_t>(std::max(kernel.carveout, 0));
  r.graphNodeId = kernel.graph_node_id;
  r.clusterX = kernel.cluster[0];
  r.clusterY = kernel.cluster[1];
  r.clusterZ = kernel.cluster[2];
  RawRecord record = pack(r, version, kernel);
  record.completed_at = offsetof(CUpti_ActivityKernel10, completed);
  return record;
}

CUpti_ActivityKind kind_of(const CopyExecution& copy) {
  return copy.kind == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY;
}

RawRecord make_record(const CopyExecution& copy, std::uint32_t version) {
  const auto fill_in = [&](auto r) {
    r.copyKind = static_cast<std::uint8_t>(copy.kind);
    r.srcKind = static_cast<std::uint8_t>(copy.source);
    r.dstKind = static_cast<std::uint8_t>(copy.destination);
    r.flags = copy.async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
    r.bytes = copy.bytes;
    r.graphNodeId = copy.graph_node_id;
    return r;
  };
  const CUpti_ActivityKind kind = kind_of(copy);
  if (kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    return pack(fill_in(with_common<CUpti_ActivityMemcpy6>(kind, copy)), version, copy);
  }
  auto r = fill_in(with_common<CUpti_ActivityMemcpyPtoP4>(kind, copy));
  r.srcDeviceId = copy.source_device;
  r.dstDeviceId = copy.destination_device;
  return pack(r, version, copy);
}

RawRecord make_record(const FillExecution& fill, std::uint32_t version) {
  auto r = with_common<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, fill);
  r.value = fill.value;
  r.bytes = fill.bytes;
  r.flags = fill.async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : 0;
  r.memoryKind = static_cast<std::uint16_t>(fill.memory);
  r.graphNodeId = fill.graph_node_id;
  return pack(r, version, fill);
}

RawRecord make_record(const GraphExecution& graph, std::uint32_t version) {
  return pack(with_common<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, graph), version, graph);
}

}  // namespace gpuflight::sim
