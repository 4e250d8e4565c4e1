#include "capture/activity_layout.h"

#include <cupti.h>
#if CUPTI_API_VERSION >= 21
#include <cupti_activity_deprecated.h>  // since 12.3 the structs of older versions stand here
#endif

#include <array>
#include <cstring>

namespace gpuflight::capture {
namespace {

// One alias for each struct: the newest that the header at hand has.
#if CUPTI_API_VERSION >= 130400
using NewestKernel = CUpti_ActivityKernel13;
using NewestCopy = CUpti_ActivityMemcpy7;
using NewestFill = CUpti_ActivityMemset5;
#elif CUPTI_API_VERSION >= 130300
using NewestKernel = CUpti_ActivityKernel12;
using NewestCopy = CUpti_ActivityMemcpy6;
using NewestFill = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 130100
using NewestKernel = CUpti_ActivityKernel11;
using NewestCopy = CUpti_ActivityMemcpy6;
using NewestFill = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 130000
using NewestKernel = CUpti_ActivityKernel10;
using NewestCopy = CUpti_ActivityMemcpy6;
using NewestFill = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 26
using NewestKernel = CUpti_ActivityKernel9;
using NewestCopy = CUpti_ActivityMemcpy6;
using NewestFill = CUpti_ActivityMemset4;
#else
using NewestKernel = CUpti_ActivityKernel9;
using NewestCopy = CUpti_ActivityMemcpy5;
using NewestFill = CUpti_ActivityMemset4;
#endif
using NewestPeerCopy = CUpti_ActivityMemcpyPtoP4;
#if CUPTI_API_VERSION >= 21
using NewestGraph = CUpti_ActivityGraphTrace2;
#else
using NewestGraph = CUpti_ActivityGraphTrace;
#endif

// CUPTI 12.0 to 13.5: records have grown at their end, and what is read here has stayed where it was.
//
//   CUDA     API version      kernel    copy     peer copy      fill     graph
//   12.0     18               Kernel9   Memcpy5  MemcpyPtoP4    Memset4  GraphTrace
//   12.3     21               .         .        .              .        GraphTrace2
//   12.8     26               .         Memcpy6  .              .        .
//   13.0     130000           Kernel10  .        .              .        .
//   13.1     130100           Kernel11  .        .              .        .
//   13.3     130300           Kernel12  .        .              .        .
//   13.4     130400           Kernel13  Memcpy7  .              Memset5  .
constexpr KernelLayout kKernel9 = {.bytes = 188, .registers = 6, .start = 16, .end = 24, .device = 40, .context = 44,
                                   .stream = 48, .grid = 52, .block = 64, .static_shared = 76, .dynamic_shared = 80,
                                   .local_memory = 84, .correlation = 92, .name = 104, .launch_type = 136,
                                   .carveout_asked = 137, .carveout = 138, .graph_node = 144, .graph = 156,
                                   .cluster = 176};
constexpr CopyLayout kMemcpy5 = {.bytes = 76, .copy_kind = 4, .source = 5, .destination = 6, .flags = 7, .amount = 8,
                                 .start = 16, .end = 24, .device = 32, .context = 36, .stream = 40, .correlation = 44,
                                 .graph_node = 64, .graph = 72, .source_device = 0, .destination_device = 0};
constexpr CopyLayout kMemcpyPtoP4 = {.bytes = 84, .copy_kind = 4, .source = 5, .destination = 6, .flags = 7,
                                     .amount = 8, .start = 16, .end = 24, .device = 32, .context = 36, .stream = 40,
                                     .correlation = 60, .graph_node = 72, .graph = 80, .source_device = 44,
                                     .destination_device = 52};
constexpr FillLayout kMemset4 = {.bytes = 76, .value = 4, .amount = 8, .start = 16, .end = 24, .device = 32,
                                 .context = 36, .stream = 40, .correlation = 44, .flags = 48, .memory = 50,
                                 .graph_node = 64, .graph = 72};
constexpr GraphLayout kGraphTrace = {.bytes = 40, .correlation = 4, .start = 8, .end = 16, .device = 24, .graph = 28,
                                     .context = 32, .stream = 36};

constexpr std::array kLayouts = {
    ActivityLayout{18, kKernel9, kMemcpy5, kMemcpyPtoP4, kMemset4, kGraphTrace},
};
constexpr std::uint32_t kFirstUnknownVersion = 140000;

#define GPUFLIGHT_AT(type, field, place, width)                                       \
  static_assert(offsetof(type, field) == (place) && sizeof(type::field) == (width), #type "::" #field)
#define GPUFLIGHT_CHECK_KERNEL(type)                                                  \
  GPUFLIGHT_AT(type, kind, 0, 4);                                                     \
  GPUFLIGHT_AT(type, registersPerThread, kKernel9.registers, 2);                      \
  GPUFLIGHT_AT(type, start, kKernel9.start, 8);                                       \
  GPUFLIGHT_AT(type, end, kKernel9.end, 8);                                           \
  GPUFLIGHT_AT(type, deviceId, kKernel9.device, 4);                                   \
  GPUFLIGHT_AT(type, contextId, kKernel9.context, 4);                                 \
  GPUFLIGHT_AT(type, streamId, kKernel9.stream, 4);                                   \
  GPUFLIGHT_AT(type, gridX, kKernel9.grid, 4);                                        \
  GPUFLIGHT_AT(type, gridZ, kKernel9.grid + 8, 4);                                    \
  GPUFLIGHT_AT(type, blockX, kKernel9.block, 4);                                      \
  GPUFLIGHT_AT(type, blockZ, kKernel9.block + 8, 4);                                  \
  GPUFLIGHT_AT(type, staticSharedMemory, kKernel9.static_shared, 4);                  \
  GPUFLIGHT_AT(type, dynamicSharedMemory, kKernel9.dynamic_shared, 4);                \
  GPUFLIGHT_AT(type, localMemoryPerThread, kKernel9.local_memory, 4);                 \
  GPUFLIGHT_AT(type, correlationId, kKernel9.correlation, 4);                         \
  GPUFLIGHT_AT(type, name, kKernel9.name, 8);                                         \
  GPUFLIGHT_AT(type, launchType, kKernel9.launch_type, 1);                            \
  GPUFLIGHT_AT(type, isSharedMemoryCarveoutRequested, kKernel9.carveout_asked, 1);    \
  GPUFLIGHT_AT(type, sharedMemoryCarveoutRequested, kKernel9.carveout, 1);            \
  GPUFLIGHT_AT(type, graphNodeId, kKernel9.graph_node, 8);                            \
  GPUFLIGHT_AT(type, graphId, kKernel9.graph, 4);                                     \
  GPUFLIGHT_AT(type, clusterX, kKernel9.cluster, 4);                                  \
  GPUFLIGHT_AT(type, clusterZ, kKernel9.cluster + 8, 4)
#define GPUFLIGHT_CHECK_COPY(type, layout)                                            \
  GPUFLIGHT_AT(type, copyKind, layout.copy_kind, 1);                                  \
  GPUFLIGHT_AT(type, srcKind, layout.source, 1);                                      \
  GPUFLIGHT_AT(type, dstKind, layout.destination, 1);                                 \
  GPUFLIGHT_AT(type, flags, layout.flags, 1);                                         \
  GPUFLIGHT_AT(type, bytes, layout.amount, 8);                                        \
  GPUFLIGHT_AT(type, start, layout.start, 8);                                         \
  GPUFLIGHT_AT(type, end, layout.end, 8);                                             \
  GPUFLIGHT_AT(type, deviceId, layout.device, 4);                                     \
  GPUFLIGHT_AT(type, contextId, layout.context, 4);                                   \
  GPUFLIGHT_AT(type, streamId, layout.stream, 4);                                     \
  GPUFLIGHT_AT(type, correlationId, layout.correlation, 4);                           \
  GPUFLIGHT_AT(type, graphNodeId, layout.graph_node, 8);                              \
  GPUFLIGHT_AT(type, graphId, layout.graph, 4)
#define GPUFLIGHT_CHECK_FILL(type)                                                    \
  GPUFLIGHT_AT(type, value, kMemset4.value, 4);                                       \
  GPUFLIGHT_AT(type, bytes, kMemset4.amount, 8);                                      \
  GPUFLIGHT_AT(type, start, kMemset4.start, 8);                                       \
  GPUFLIGHT_AT(type, end, kMemset4.end, 8);                                           \
  GPUFLIGHT_AT(type, deviceId, kMemset4.device, 4);                                   \
  GPUFLIGHT_AT(type, contextId, kMemset4.context, 4);                                 \
  GPUFLIGHT_AT(type, streamId, kMemset4.stream, 4);                                   \
  GPUFLIGHT_AT(type, correlationId, kMemset4.correlation, 4);                         \
  GPUFLIGHT_AT(type, flags, kMemset4.flags, 2);                                       \
  GPUFLIGHT_AT(type, memoryKind, kMemset4.memory, 2);                                 \
  GPUFLIGHT_AT(type, graphNodeId, kMemset4.graph_node, 8);                            \
  GPUFLIGHT_AT(type, graphId, kMemset4.graph, 4)
#define GPUFLIGHT_CHECK_GRAPH(type)                                                   \
  GPUFLIGHT_AT(type, correlationId, kGraphTrace.correlation, 4);                      \
  GPUFLIGHT_AT(type, start, kGraphTrace.start, 8);                                    \
  GPUFLIGHT_AT(type, end, kGraphTrace.end, 8);                                        \
  GPUFLIGHT_AT(type, deviceId, kGraphTrace.device, 4);                                \
  GPUFLIGHT_AT(type, graphId, kGraphTrace.graph, 4);                                  \
  GPUFLIGHT_AT(type, contextId, kGraphTrace.context, 4);                              \
  GPUFLIGHT_AT(type, streamId, kGraphTrace.stream, 4)

// What the header at hand has, old structs included, must lie as the table says.
GPUFLIGHT_CHECK_KERNEL(NewestKernel);
GPUFLIGHT_CHECK_COPY(NewestCopy, kMemcpy5);
GPUFLIGHT_CHECK_COPY(NewestPeerCopy, kMemcpyPtoP4);
GPUFLIGHT_AT(NewestPeerCopy, srcDeviceId, kMemcpyPtoP4.source_device, 4);
GPUFLIGHT_AT(NewestPeerCopy, dstDeviceId, kMemcpyPtoP4.destination_device, 4);
GPUFLIGHT_CHECK_FILL(NewestFill);
GPUFLIGHT_CHECK_GRAPH(NewestGraph);
GPUFLIGHT_CHECK_KERNEL(CUpti_ActivityKernel9);
GPUFLIGHT_CHECK_COPY(CUpti_ActivityMemcpy5, kMemcpy5);
GPUFLIGHT_CHECK_FILL(CUpti_ActivityMemset4);
GPUFLIGHT_CHECK_GRAPH(CUpti_ActivityGraphTrace);
#if CUPTI_API_VERSION >= 130100
GPUFLIGHT_CHECK_KERNEL(CUpti_ActivityKernel10);
GPUFLIGHT_CHECK_COPY(CUpti_ActivityMemcpy6, kMemcpy5);
#endif
#if CUPTI_API_VERSION >= 130300
GPUFLIGHT_CHECK_KERNEL(CUpti_ActivityKernel11);
#endif
#if CUPTI_API_VERSION >= 130400
GPUFLIGHT_CHECK_KERNEL(CUpti_ActivityKernel12);
#endif

// The numbers of kinds and flags are ours as well.
template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(event::CopyKind::kUnknown, CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN));
static_assert(same(event::CopyKind::kHtoD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD));
static_assert(same(event::CopyKind::kDtoH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH));
static_assert(same(event::CopyKind::kHtoA, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA));
static_assert(same(event::CopyKind::kAtoH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH));
static_assert(same(event::CopyKind::kAtoA, CUPTI_ACTIVITY_MEMCPY_KIND_ATOA));
static_assert(same(event::CopyKind::kAtoD, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD));
static_assert(same(event::CopyKind::kDtoA, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA));
static_assert(same(event::CopyKind::kDtoD, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD));
static_assert(same(event::CopyKind::kHtoH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH));
static_assert(same(event::CopyKind::kPtoP, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP));
static_assert(same(event::MemoryKind::kUnknown, CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN));
static_assert(same(event::MemoryKind::kPageable, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE));
static_assert(same(event::MemoryKind::kPinned, CUPTI_ACTIVITY_MEMORY_KIND_PINNED));
static_assert(same(event::MemoryKind::kDevice, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE));
static_assert(same(event::MemoryKind::kArray, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY));
static_assert(same(event::MemoryKind::kManaged, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED));
static_assert(same(event::MemoryKind::kDeviceStatic, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC));
static_assert(same(event::MemoryKind::kManagedStatic, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC));
constexpr std::uint16_t kAsyncFlag = 1;
static_assert(same(kAsyncFlag, CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC));
static_assert(same(kAsyncFlag, CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC));

// Records are aligned to 8 bytes as CUPTI says, yet memcpy costs nothing and needs no such promise.
template <class Field>
Field at(const std::uint8_t* raw, std::uint16_t offset) noexcept {
  Field field;
  std::memcpy(&field, raw + offset, sizeof field);
  return field;
}

event::Dim3 dim_at(const std::uint8_t* raw, std::uint16_t offset) noexcept {
  return {at<std::uint32_t>(raw, offset), at<std::uint32_t>(raw, offset + 4), at<std::uint32_t>(raw, offset + 8)};
}

event::CopyKind copy_kind(std::uint8_t value) noexcept {
  return value < event::kCopyKindCount ? static_cast<event::CopyKind>(value) : event::CopyKind::kUnknown;
}

event::MemoryKind memory_kind(std::uint16_t value) noexcept {
  return value < event::kMemoryKindCount ? static_cast<event::MemoryKind>(value) : event::MemoryKind::kUnknown;
}

// What all kinds have. false: a time is missing.
template <class Layout>
bool read_common(const Layout& layout, const std::uint8_t* raw, std::int64_t clock_base, ActivityRecord& out) noexcept {
  out.correlation = at<std::uint32_t>(raw, layout.correlation);
  out.device = at<std::uint32_t>(raw, layout.device);
  out.context_uid = at<std::uint32_t>(raw, layout.context);
  out.stream_uid = at<std::uint32_t>(raw, layout.stream);
  out.graph_uid = at<std::uint32_t>(raw, layout.graph);
  const auto start = at<std::uint64_t>(raw, layout.start);
  const auto end = at<std::uint64_t>(raw, layout.end);
  const bool reversed = start != 0 && end != 0 && end < start;
  if (start != 0 && !reversed) out.start_ns = static_cast<std::int64_t>(start) - clock_base;
  if (end != 0 && !reversed) out.end_ns = static_cast<std::int64_t>(end) - clock_base;
  return out.start_ns && out.end_ns;
}

bool read_kernel(const KernelLayout& layout, const std::uint8_t* raw, std::int64_t clock_base,
                 ActivityRecord& out) noexcept {
  out.kind = ActivityRecord::Kind::kKernel;
  out.graph_node = at<std::uint64_t>(raw, layout.graph_node);
  out.name = at<const char*>(raw, layout.name);
  out.grid = dim_at(raw, layout.grid);
  out.shape.block = dim_at(raw, layout.block);
  out.shape.cluster = dim_at(raw, layout.cluster);
  out.shape.dyn_shared_bytes = at<std::uint32_t>(raw, layout.dynamic_shared);
  if (at<std::uint8_t>(raw, layout.carveout_asked) != 0) out.shape.carveout = at<std::uint8_t>(raw, layout.carveout);
  const auto type = at<std::uint8_t>(raw, layout.launch_type);
  out.shape.cooperative = type == CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE ||
                          type == CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_MULTI_DEVICE;
  out.num_regs = at<std::uint16_t>(raw, layout.registers);
  out.static_shared_bytes = at<std::int32_t>(raw, layout.static_shared);
  out.local_bytes_per_thread = at<std::int32_t>(raw, layout.local_memory);
  return read_common(layout, raw, clock_base, out);
}

bool read_copy(const CopyLayout& layout, const std::uint8_t* raw, std::int64_t clock_base,
               ActivityRecord& out) noexcept {
  out.kind = ActivityRecord::Kind::kMemcpy;
  out.graph_node = at<std::uint64_t>(raw, layout.graph_node);
  out.copy = copy_kind(at<std::uint8_t>(raw, layout.copy_kind));
  out.source = memory_kind(at<std::uint8_t>(raw, layout.source));
  out.destination = memory_kind(at<std::uint8_t>(raw, layout.destination));
  out.bytes = at<std::uint64_t>(raw, layout.amount);
  out.async = (at<std::uint8_t>(raw, layout.flags) & kAsyncFlag) != 0;
  if (layout.source_device != 0) {
    out.source_device = at<std::int32_t>(raw, layout.source_device);
    out.destination_device = at<std::int32_t>(raw, layout.destination_device);
  }
  return read_common(layout, raw, clock_base, out);
}

bool read_fill(const FillLayout& layout, const std::uint8_t* raw, std::int64_t clock_base,
               ActivityRecord& out) noexcept {
  out.kind = ActivityRecord::Kind::kMemset;
  out.graph_node = at<std::uint64_t>(raw, layout.graph_node);
  out.destination = memory_kind(at<std::uint16_t>(raw, layout.memory));
  out.bytes = at<std::uint64_t>(raw, layout.amount);
  out.value = at<std::uint32_t>(raw, layout.value);
  out.async = (at<std::uint16_t>(raw, layout.flags) & kAsyncFlag) != 0;
  return read_common(layout, raw, clock_base, out);
}

bool read_graph(const GraphLayout& layout, const std::uint8_t* raw, std::int64_t clock_base,
                ActivityRecord& out) noexcept {
  out.kind = ActivityRecord::Kind::kGraph;
  return read_common(layout, raw, clock_base, out);
}

}  // namespace

const ActivityLayout* find_activity_layout(std::uint32_t cupti_version) noexcept {
  if (cupti_version >= kFirstUnknownVersion) return nullptr;
  const ActivityLayout* found = nullptr;
  for (const ActivityLayout& layout : kLayouts) {
    if (layout.from_version <= cupti_version) found = &layout;
  }
  return found;
}

ReadResult read_activity(const ActivityLayout& layout, const std::uint8_t* raw, std::size_t room,
                         std::int64_t clock_base, ActivityRecord& out) noexcept {
  if (room < sizeof(CUpti_ActivityKind)) return ReadResult::kUnknown;
  out = {};
  const auto read = [&](auto& function, const auto& of_kind) {
    if (room < of_kind.bytes) return ReadResult::kUnknown;
    return function(of_kind, raw, clock_base, out) ? ReadResult::kRead : ReadResult::kNoTime;
  };
  switch (at<CUpti_ActivityKind>(raw, 0)) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: return read(read_kernel, layout.kernel);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return read(read_copy, layout.copy);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return read(read_copy, layout.peer_copy);
    case CUPTI_ACTIVITY_KIND_MEMSET: return read(read_fill, layout.fill);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return read(read_graph, layout.graph);
    default: return ReadResult::kUnknown;
  }
}

}  // namespace gpuflight::capture
