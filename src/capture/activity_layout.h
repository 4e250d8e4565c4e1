// Where the fields of CUPTI's activity records lie, by the version of the CUPTI that runs, which need not be the one
// whose headers we were built with. tools/check_cupti_headers.py holds the table against the headers of other versions.
//
// Threads: any; pure functions over memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/activity_record.h"

namespace gpuflight::capture {

// Offsets in bytes.
struct KernelLayout {
  std::uint16_t bytes;  // as much of a record as is read
  std::uint16_t registers, start, end, device, context, stream, grid, block, static_shared, dynamic_shared,
      local_memory, correlation, name, launch_type, carveout_asked, carveout, graph_node, graph, cluster;
};
struct CopyLayout {
  std::uint16_t bytes;
  std::uint16_t copy_kind, source, destination, flags, amount, start, end, device, context, stream, correlation,
      graph_node, graph;
  std::uint16_t source_device, destination_device;  // 0: not a peer copy
};
struct FillLayout {
  std::uint16_t bytes;
  std::uint16_t value, amount, start, end, device, context, stream, correlation, flags, memory, graph_node, graph;
};
struct GraphLayout {
  std::uint16_t bytes;
  std::uint16_t correlation, start, end, device, graph, context, stream;
};

struct ActivityLayout {
  std::uint32_t from_version;  // of CUPTI's API, up to the next row's
  KernelLayout kernel;
  CopyLayout copy, peer_copy;
  FillLayout fill;
  GraphLayout graph;
};

// nullptr: a version older than CUDA 12.0's, or of a CUDA generation that we do not know.
const ActivityLayout* find_activity_layout(std::uint32_t cupti_version) noexcept;

enum class ReadResult : std::uint8_t { kRead, kNoTime, kUnknown };

// Reads the record at `raw`, of which `room` bytes may be looked at. Times are given less `clock_base`, null where they
// are zero or reversed (kNoTime). kUnknown: a kind that is not read; `out` is then of no use.
ReadResult read_activity(const ActivityLayout& layout, const std::uint8_t* raw, std::size_t room,
                         std::int64_t clock_base, ActivityRecord& out) noexcept;

}  // namespace gpuflight::capture
