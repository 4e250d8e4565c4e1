#include "capture/graph_nodes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

namespace gpuflight::capture {
namespace {

auto order(const event::GraphKernel& k) { return std::tie(k.config, k.grid.x, k.grid.y, k.grid.z); }

}  // namespace

std::uint32_t GraphNodes::add(const void* handle, std::uint32_t parent, event::NodeKind kind) {
  nodes_.push_back({handle, parent, kNone, kind});
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

std::uint32_t GraphNodes::add_kernel(const void* handle, std::uint32_t parent, const GraphKernelShape& kernel) {
  nodes_.push_back({handle, parent, place_of(kernel), event::NodeKind::kKernel});
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

// Neighbours are often alike; else a new place, so that no search makes a big graph dear: contents() merges equal ones.
std::uint32_t GraphNodes::place_of(const GraphKernelShape& kernel) {
  if (last_kernel_ < kernels_.size() && kernels_[last_kernel_] == kernel) return last_kernel_;
  const std::size_t near = kernels_.size() > 16 ? kernels_.size() - 16 : 0;
  for (std::size_t i = near; i < kernels_.size(); ++i) {
    if (kernels_[i] == kernel) return last_kernel_ = static_cast<std::uint32_t>(i);
  }
  kernels_.push_back(kernel);
  return last_kernel_ = static_cast<std::uint32_t>(kernels_.size() - 1);
}

std::uint32_t GraphNodes::find(const void* handle) {
  const auto before = [this](std::uint32_t place, const void* h) { return std::less<>()(nodes_[place].handle, h); };
  if (by_handle_.size() != nodes_.size()) {
    by_handle_.resize(nodes_.size());
    std::iota(by_handle_.begin(), by_handle_.end(), 0);
    std::sort(by_handle_.begin(), by_handle_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return before(a, nodes_[b].handle); });
  }
  const auto it = std::lower_bound(by_handle_.begin(), by_handle_.end(), handle, before);
  return it != by_handle_.end() && nodes_[*it].handle == handle ? *it : kNone;
}

std::optional<bool> GraphNodes::set_kernel(const void* handle, const GraphKernelShape& kernel) {
  const std::uint32_t at = find(handle);
  if (at == kNone || !nodes_[at].paired || nodes_[at].kind != event::NodeKind::kKernel) return std::nullopt;
  Node& node = nodes_[at];
  if (kernels_[node.kernel] == kernel) return false;
  node.kernel = place_of(kernel);
  drop_unused();
  return node.enabled;
}

std::optional<bool> GraphNodes::set_enabled(const void* handle, bool on) {
  const std::uint32_t at = find(handle);
  if (at == kNone || !nodes_[at].paired) return std::nullopt;
  return std::exchange(nodes_[at].enabled, on) != on;
}

std::optional<bool> GraphNodes::set_child(const void* handle, const GraphNodes& child) {
  const std::uint32_t at = find(handle);
  if (at == kNone || !nodes_[at].paired || nodes_[at].kind != event::NodeKind::kGraph) return std::nullopt;
  std::uint32_t end = at + 1;
  while (end < nodes_.size() && nodes_[end].parent != kNone && nodes_[end].parent >= at) ++end;
  return take(at + 1, end - at - 1, child);
}

std::optional<bool> GraphNodes::set_all(const GraphNodes& graph) {
  return take(0, static_cast<std::uint32_t>(nodes_.size()), graph);
}

// The driver pairs the nodes of the two graphs by how they depend on each other. Which belongs to which is only certain
// where it is the same graph; what all of them run is known all the same, unless some are disabled.
std::optional<bool> GraphNodes::take(std::uint32_t first, std::uint32_t count, const GraphNodes& from) {
  if (from.nodes_.size() != count) return std::nullopt;
  bool same = true, changed = false;
  for (std::uint32_t i = 0; i < count; ++i) same = same && nodes_[first + i].handle == from.nodes_[i].handle;
  if (!same && !all_enabled()) return std::nullopt;
  std::vector<GraphKernelShape> kernels;
  if (count != nodes_.size()) {
    kernels = kernels_;
    kernels.insert(kernels.end(), from.kernels_.begin(), from.kernels_.end());
  } else {
    kernels = from.kernels_;
  }
  const auto moved = static_cast<std::uint32_t>(kernels.size() - from.kernels_.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    Node& node = nodes_[first + i];
    const Node& other = from.nodes_[i];
    const bool is_kernel = other.kind == event::NodeKind::kKernel;
    changed = changed || node.kind != other.kind ||
              (is_kernel && kernels_[node.kernel] != from.kernels_[other.kernel]);
    node.kind = other.kind;
    node.kernel = is_kernel ? other.kernel + moved : kNone;
    node.paired = same;
  }
  kernels_ = std::move(kernels);
  last_kernel_ = 0;
  drop_unused();
  return changed;
}

// Nodes that are set again and again leave kernels behind that none has any more.
void GraphNodes::drop_unused() {
  if (kernels_.size() <= 2 * nodes_.size() + 64) return;
  std::vector<std::uint32_t> places(kernels_.size(), kNone);
  std::vector<GraphKernelShape> kept;
  for (Node& node : nodes_) {
    if (node.kind != event::NodeKind::kKernel) continue;
    std::uint32_t& place = places[node.kernel];
    if (place == kNone) {
      place = static_cast<std::uint32_t>(kept.size());
      kept.push_back(kernels_[node.kernel]);
    }
    node.kernel = place;
  }
  kernels_ = std::move(kept);
  last_kernel_ = 0;
}

bool GraphNodes::all_enabled() const noexcept {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.enabled; });
}

event::GraphContents GraphNodes::contents() const {
  event::GraphContents contents;
  std::vector<std::uint64_t> counts(kernels_.size());
  for (const Node& node : nodes_) {
    if (!node.enabled) {
      ++contents.disabled;
      continue;
    }
    ++contents.nodes[static_cast<std::size_t>(node.kind)];
    if (node.kind == event::NodeKind::kKernel) ++counts[node.kernel];
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) contents.kernels.push_back({kernels_[i].config, kernels_[i].grid, counts[i]});
  }
  std::vector<event::GraphKernel>& all = contents.kernels;
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return order(a) < order(b); });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (kept > 0 && order(all[kept - 1]) == order(all[i])) {
      all[kept - 1].count += all[i].count;
    } else {
      all[kept++] = all[i];
    }
  }
  all.resize(kept);
  all.shrink_to_fit();
  return contents;
}

}  // namespace gpuflight::capture
