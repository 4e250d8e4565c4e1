// What the GPU reports of one piece of work, read out of a CUPTI record of whatever version and independent of it.
#pragma once

#include <cstdint>
#include <optional>

#include "event/activity.h"
#include "event/kernel_config.h"

namespace gpuflight::capture {

struct ActivityRecord {
  // kGraph: a whole graph launch, where graphs are not followed node by node.
  enum class Kind : std::uint8_t { kKernel, kMemcpy, kMemset, kGraph };
  Kind kind = Kind::kKernel;
  std::uint32_t correlation = 0;  // that of the call; shared by all nodes of one cuGraphLaunch
  std::uint32_t device = 0;
  std::uint32_t context_uid = 0;
  std::uint32_t stream_uid = 0;  // CUPTI's number of the stream
  event::MaybeNs start_ns, end_ns;  // since the start of the recording; null: missing, zero or reversed
  event::EventTime by_events;       // instead of these; not CUPTI's
  std::uint32_t graph_uid = 0;      // CUPTI's number of the graph; 0: not of a graph
  std::uint64_t graph_node = 0;     // 0: not of a graph

  // kKernel
  const char* name = nullptr;  // mangled; valid during the visit only
  event::Dim3 grid;
  event::LaunchShape shape;
  std::int32_t num_regs = -1;
  std::int32_t static_shared_bytes = -1;
  std::int32_t local_bytes_per_thread = -1;

  // kMemcpy, kMemset (`destination`: of a fill, what is filled)
  event::CopyKind copy = event::CopyKind::kUnknown;
  event::MemoryKind source = event::MemoryKind::kUnknown;
  event::MemoryKind destination = event::MemoryKind::kUnknown;
  std::uint64_t bytes = 0;
  std::uint32_t value = 0;
  bool async = false;
  std::optional<std::int32_t> source_device, destination_device;
};

}  // namespace gpuflight::capture
