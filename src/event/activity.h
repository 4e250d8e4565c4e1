// What the GPU did and when, beside kernels: copies, fills, memory, edges between streams, and the clocks by which their
// times are told. One plain struct for each line type (docs/FORMAT.md is normative); times are ns since the start of
// the recording.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "event/events.h"
#include "event/ids.h"

namespace gpuflight::event {

// Where one end of a copy or a fill lies. Names as in CUpti_ActivityMemoryKind.
enum class MemoryKind : std::uint8_t {
  kUnknown,
  kPageable,
  kPinned,
  kDevice,
  kArray,
  kManaged,
  kDeviceStatic,
  kManagedStatic,
};
inline constexpr int kMemoryKindCount = 8;
inline constexpr std::array<const char*, kMemoryKindCount> kMemoryKindNames = {
    nullptr, "pageable", "pinned", "device", "array", "managed", "device_static", "managed_static"};

// Direction of a copy. Names as in CUpti_ActivityMemcpyKind: host, array, device, peer.
enum class CopyKind : std::uint8_t { kUnknown, kHtoD, kDtoH, kHtoA, kAtoH, kAtoA, kAtoD, kDtoA, kDtoD, kHtoH, kPtoP };
inline constexpr int kCopyKindCount = 11;
inline constexpr std::array<const char*, kCopyKindCount> kCopyKindNames = {
    nullptr, "htod", "dtoh", "htoa", "atoh", "atoa", "atod", "dtoa", "dtod", "htoh", "ptop"};

// The host's side of a piece of GPU work: the call that asked for it, where it was seen. A node of a graph has those of
// its cuGraphLaunch, and no call_ns.
struct WorkOrigin {
  ScopeId scope;
  std::uint32_t thread = 0;
  MaybeNs launch_ns;
  MaybeNs call_ns;
  MaybeStatus status;
};

struct MemcpyEvent {
  Seq seq;
  CopyKind kind = CopyKind::kUnknown;
  MemoryKind source = MemoryKind::kUnknown;
  MemoryKind destination = MemoryKind::kUnknown;
  std::uint64_t bytes = 0;
  bool async = false;  // as called
  std::optional<std::int32_t> source_device, destination_device;  // peer copies
  StreamId stream;
  std::int32_t device = -1;  // where it ran, told where the stream is not known; < 0: not known
  CorrelationId correlation;
  WorkOrigin origin;
  MaybeNs start_ns, end_ns;
  GraphId graph;
  std::optional<std::uint64_t> graph_node;
  bool late = false;
};

struct MemsetEvent {
  Seq seq;
  MemoryKind memory = MemoryKind::kUnknown;
  std::uint64_t bytes = 0;
  std::uint32_t value = 0;
  bool async = false;
  StreamId stream;
  std::int32_t device = -1;  // where it ran, told where the stream is not known; < 0: not known
  CorrelationId correlation;
  WorkOrigin origin;
  MaybeNs start_ns, end_ns;
  GraphId graph;
  std::optional<std::uint64_t> graph_node;
  bool late = false;
};

// What kind of memory an allocation call hands out.
enum class AllocationKind : std::uint8_t { kDevice, kPool, kManaged, kPinned, kRegistered, kVirtual, kMapping };
inline constexpr int kAllocationKindCount = 7;
inline constexpr std::array<const char*, kAllocationKindCount> kAllocationKindNames = {
    "device", "pool", "managed", "pinned", "registered", "virtual", "mapping"};
// Of a free whose allocation was not seen, where the call does not tell: null in the line.
inline constexpr auto kUnknownAllocation = static_cast<AllocationKind>(kAllocationKindCount);
// Null: not known.
constexpr const char* allocation_name(AllocationKind kind) {
  const auto i = static_cast<std::size_t>(kind);
  return i < kAllocationKindNames.size() ? kAllocationKindNames[i] : nullptr;
}

// An allocation or a free, as called.
struct MemoryEvent {
  enum class Operation : std::uint8_t { kAlloc, kFree };
  Seq seq;
  Operation operation = Operation::kAlloc;
  AllocationKind kind = AllocationKind::kDevice;
  std::uint32_t call = 0;  // event::ApiCall
  std::uint64_t address = 0;                // 0: none was given; of virtual memory: its handle
  std::optional<std::uint64_t> bytes;       // of a free: what the allocation had; null: it was not seen
  std::int32_t device = -1;
  ContextId context;
  StreamId stream;                          // of stream-ordered calls
  std::optional<std::uint64_t> pool;        // handle of the memory pool, of pool memory
  std::optional<std::uint64_t> total_bytes; // of this kind, device and pool after the call: what was seen allocated
  std::optional<std::uint64_t> peak_bytes;  // the most that has been so far
  ScopeId scope;
  std::uint32_t thread = 0;
  std::int64_t time_ns = 0;
  MaybeNs call_ns;
  MaybeStatus status;
  bool late = false;
};

// A dependency between streams: an event recorded in one, waited for by another.
struct StreamEdge {
  enum class Operation : std::uint8_t { kRecord, kWait };
  Seq seq;
  Operation operation = Operation::kRecord;
  std::uint64_t event = 0;  // CUDA event's handle: used again after it was destroyed
  StreamId stream;
  ScopeId scope;
  std::uint32_t thread = 0;
  std::int64_t time_ns = 0;
  MaybeNs call_ns;
  MaybeStatus status;
  bool captured = false;
  bool late = false;
};

// Time of a kernel whose line had to be written before it was known (memory bound). To be added to that line.
struct KernelTime {
  Seq seq;
  Seq event;  // seq of the kernel_event
  ConfigId config;
  StreamId stream;
  std::int64_t launch_ns = 0;
  MaybeNs start_ns, end_ns;
  EventTime by_events;  // instead of these
};

// A launch of which the GPU has said nothing for kernel_pending_ns: it runs, waits, or a longer one holds the record.
struct KernelPending {
  Seq seq;
  Seq event;  // seq of the launch
  ConfigId config;
  StreamId stream;
  std::int64_t launch_ns = 0;
  std::int64_t time_ns = 0;
  std::uint64_t behind = 0;  // later launches of the stream without a time
};

// Clocks read together, so that times of processes and hosts can be laid over each other.
struct ClockEvent {
  Seq seq;
  std::int64_t time_ns = 0;             // of the recording's clock
  std::int64_t monotonic_ns = 0;        // CLOCK_MONOTONIC
  std::int64_t unix_ns = 0;             // CLOCK_REALTIME
  std::optional<std::int64_t> gpu_ns;   // CUPTI's timestamp
  std::int64_t error_ns = 0;            // bound: all were read within so long
  std::int64_t drift_ns = 0;            // of the recording's clock against CLOCK_MONOTONIC since the start
};

}  // namespace gpuflight::event
