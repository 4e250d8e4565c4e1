// What an executable graph runs with each of its launches: read off the graph when it was instantiated or updated,
// since a launch itself says nothing of it. Equal contents are one, whatever graphs have them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "event/ids.h"
#include "event/kernel_config.h"

namespace gpuflight::event {

using ContentsId = Id<struct ContentsTag, std::uint32_t>;  // 0: not known

// Order is that of kNodeKindNames: the keys of `nodes` in graph_info.
enum class NodeKind : std::uint8_t {
  kKernel,
  kMemcpy,
  kMemset,
  kHost,
  kGraph,  // a child graph; its nodes are counted too
  kEmpty,
  kEvent,      // records one or waits for one
  kSemaphore,  // of another API
  kAlloc,
  kFree,
  kMemOp,
  kConditional,  // the nodes of its bodies are not counted: how often they run only the GPU knows
  kOther,
};
inline constexpr std::array<const char*, 13> kNodeKindNames = {"kernel", "memcpy",    "memset", "host", "graph",
                                                               "empty",  "event",     "semaphore", "alloc", "free",
                                                               "memop",  "conditional", "other"};
inline constexpr std::size_t kNodeKindCount = kNodeKindNames.size();

// Kernel nodes that are alike.
struct GraphKernel {
  ConfigId config;  // 0: the table was full
  Dim3 grid;
  std::uint64_t count = 0;  // of them
  bool operator==(const GraphKernel&) const = default;
};

struct GraphContents {
  std::array<std::uint64_t, kNodeKindCount> nodes{};  // those that run
  std::uint64_t disabled = 0;                         // nodes that do not, beside them
  std::vector<GraphKernel> kernels;                   // in order of configuration and grid
  bool operator==(const GraphContents&) const = default;

  std::uint64_t kernel_nodes() const noexcept { return nodes[static_cast<std::size_t>(NodeKind::kKernel)]; }
};

// The line that begins them; one of graph_kernel for each of `kernels` follows.
struct GraphInfo {
  Seq seq;
  ContentsId contents;
  std::array<std::uint64_t, kNodeKindCount> nodes{};
  std::uint64_t disabled = 0;
  std::uint64_t kernels = 0;
};

struct GraphKernelInfo {
  Seq seq;
  ContentsId contents;
  GraphKernel kernel;
  std::int32_t device = -1;
};

}  // namespace gpuflight::event
