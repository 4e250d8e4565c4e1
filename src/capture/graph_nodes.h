// The nodes of one executable graph, as they were read off the graph it was made from, and as updates change them.
//
// Threads: whoever has it; GraphTable under its lock. Allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "event/graph_contents.h"

namespace gpuflight::capture {

struct GraphKernelShape {
  event::ConfigId config;
  event::Dim3 grid;
  bool operator==(const GraphKernelShape&) const = default;
};

class GraphNodes {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Node {
    const void* handle;    // CUgraphNode of the graph that the executable one was made from
    std::uint32_t parent;  // place of the node whose child graph it is in; kNone: of the graph itself
    std::uint32_t kernel;  // of kernel nodes: place among the kernels
    event::NodeKind kind;
    bool enabled = true;
    bool paired = true;  // it is the node of that handle; false: an update may have paired them otherwise
  };

  std::size_t size() const noexcept { return nodes_.size(); }

  // In order: a child graph's nodes right behind the node that runs it.
  std::uint32_t add(const void* handle, std::uint32_t parent, event::NodeKind kind);
  std::uint32_t add_kernel(const void* handle, std::uint32_t parent, const GraphKernelShape& kernel);

  // Updates; nullopt where what the graph runs from then on is not known, else whether it has changed.
  std::optional<bool> set_kernel(const void* handle, const GraphKernelShape& kernel);
  std::optional<bool> set_enabled(const void* handle, bool on);
  std::optional<bool> set_child(const void* handle, const GraphNodes& child);
  std::optional<bool> set_all(const GraphNodes& graph);

  bool all_enabled() const noexcept;
  event::GraphContents contents() const;

 private:
  std::uint32_t find(const void* handle);
  std::uint32_t place_of(const GraphKernelShape& kernel);
  // Takes over the kernels of `from` for the nodes from `first` on.
  std::optional<bool> take(std::uint32_t first, std::uint32_t count, const GraphNodes& from);

  void drop_unused();

  std::vector<Node> nodes_;
  std::vector<GraphKernelShape> kernels_;  // some more than once, some that no node has any more
  std::vector<std::uint32_t> by_handle_;   // places, sorted by handle; made when first needed
  std::uint32_t last_kernel_ = 0;
};

}  // namespace gpuflight::capture
