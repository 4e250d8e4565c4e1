#include "capture/graph_table.h"

#include <utility>

namespace gpuflight::capture {
namespace {

std::size_t hash_of(const event::GraphContents& contents) {
  std::size_t h = contents.disabled;
  const auto mix = [&h](std::uint64_t value) { h = (h ^ value) * 0x9E3779B97F4A7C15ull + (h >> 29); };
  for (const std::uint64_t count : contents.nodes) mix(count);
  for (const event::GraphKernel& k : contents.kernels) {
    mix(k.config.value | std::uint64_t{k.grid.x} << 32);
    mix(k.grid.y | std::uint64_t{k.grid.z} << 32);
    mix(k.count);
  }
  return h;
}

}  // namespace

GraphTable::Known GraphTable::at_launch(const void* graph_exec) noexcept {
  try {
    std::lock_guard lock(mutex_);
    Graph& graph = graphs_[graph_exec];
    if (graph.id == 0) graph.id = next_++;
    if (graph.changed) look(graph);
    return {event::GraphId{graph.id}, graph.contents};
  } catch (...) {
    return {};
  }
}

// Only when it is launched: what it was between two updates nobody ran.
void GraphTable::look(Graph& graph) {
  graph.contents = graph.nodes != nullptr ? intern(graph.nodes->contents()) : event::ContentsId{};
  graph.changed = false;
}

event::ContentsId GraphTable::intern(event::GraphContents contents) {
  const std::size_t hash = hash_of(contents);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (*contents_[it->second.value - 1] == contents) return it->second;
  }
  if (contents.kernels.size() > kMostKernelRowsOfOne || contents_.size() >= kMostContents ||
      kernel_rows_ + contents.kernels.size() > kMostKernelRows) {
    say_full();
    return {};
  }
  const std::size_t rows = contents.kernels.size();
  contents_.push_back(std::make_unique<const event::GraphContents>(std::move(contents)));
  kernel_rows_ += rows;
  const event::ContentsId id{static_cast<std::uint32_t>(contents_.size())};
  by_hash_.emplace(hash, id);
  return id;
}

void GraphTable::keep(Graph& graph, GraphNodes nodes) {
  if (nodes_ + nodes.size() > kMostNodes) return say_full();
  const std::size_t count = nodes.size();
  graph.nodes = std::make_unique<GraphNodes>(std::move(nodes));
  nodes_ += count;
}

// From here on what it runs is not known.
void GraphTable::lose(Graph& graph, bool restorable) noexcept {
  if (graph.nodes != nullptr) nodes_ -= graph.nodes->size();
  graph.nodes.reset();
  graph.restorable = restorable;
  graph.changed = true;
  new_generation();
}

void GraphTable::on_instantiated(const void* graph_exec, std::optional<GraphNodes> nodes) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (const auto old = graphs_.find(graph_exec); old != graphs_.end()) {  // its end was not seen
      lose(old->second, false);
      graphs_.erase(old);
    }
    if (!nodes) return;
    Graph& graph = graphs_[graph_exec];
    graph.changed = true;
    graph.restorable = true;
    keep(graph, std::move(*nodes));
  } catch (...) {
  }
}

bool GraphTable::follows(const void* graph_exec) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = graphs_.find(graph_exec);
  return found != graphs_.end() && (found->second.nodes != nullptr || found->second.restorable);
}

// `apply` (nodes): as GraphNodes' updates. Memory that is lacking makes the contents unknown, not wrong.
template <class Update>
void GraphTable::update(const void* graph_exec, bool disables, Update&& apply) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = graphs_.find(graph_exec);
  if (found == graphs_.end() || found->second.nodes == nullptr) return;
  Graph& graph = found->second;
  std::optional<bool> changed;
  try {
    changed = apply(*graph.nodes);
  } catch (...) {
  }
  if (!changed) return lose(graph, !disables && graph.nodes->all_enabled());
  if (!*changed || graph.changed) return;
  graph.changed = true;
  new_generation();
}

void GraphTable::on_updated(const void* graph_exec, const std::optional<GraphNodes>& graph) noexcept {
  if (graph) {
    try {
      std::lock_guard lock(mutex_);
      const auto found = graphs_.find(graph_exec);
      if (found == graphs_.end()) return;
      if (Graph& known = found->second; known.nodes == nullptr) {
        if (!known.restorable) return;
        keep(known, *graph);
        known.changed = true;
        return new_generation();
      }
    } catch (...) {
      return;
    }
  }
  update(graph_exec, false,
         [&](GraphNodes& nodes) { return graph ? nodes.set_all(*graph) : std::optional<bool>(); });
}

void GraphTable::on_child_updated(const void* graph_exec, const void* node,
                                  const std::optional<GraphNodes>& child) noexcept {
  update(graph_exec, false,
         [&](GraphNodes& nodes) { return child ? nodes.set_child(node, *child) : std::optional<bool>(); });
}

void GraphTable::on_kernel_set(const void* graph_exec, const void* node,
                               const std::optional<GraphKernelShape>& kernel) noexcept {
  update(graph_exec, false,
         [&](GraphNodes& nodes) { return kernel ? nodes.set_kernel(node, *kernel) : std::optional<bool>(); });
}

void GraphTable::on_enabled(const void* graph_exec, const void* node, bool on) noexcept {
  {
    std::lock_guard lock(mutex_);
    const auto found = graphs_.find(graph_exec);
    if (found != graphs_.end() && !on && found->second.nodes == nullptr) found->second.restorable = false;
  }
  update(graph_exec, !on, [&](GraphNodes& nodes) { return nodes.set_enabled(node, on); });
}

void GraphTable::on_graph_exec_destroyed(const void* graph_exec) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = graphs_.find(graph_exec);
  if (found == graphs_.end()) return;
  lose(found->second, false);
  graphs_.erase(found);
}

void GraphTable::forget_all() noexcept {
  std::lock_guard lock(mutex_);
  graphs_.clear();
  nodes_ = 0;
  new_generation();
}

const event::GraphContents* GraphTable::contents(event::ContentsId id) const noexcept {
  std::lock_guard lock(mutex_);
  return id && id.value <= contents_.size() ? contents_[id.value - 1].get() : nullptr;
}

void GraphTable::say_full() noexcept {
  if (notices_ == nullptr) return;
  notices_->post(event::Severity::kWarning, "graph_table_full",
                 "graphs have more nodes or more different contents than are kept: what further ones run is not known");
}

}  // namespace gpuflight::capture
