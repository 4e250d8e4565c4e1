// Instantiated graphs by handle: each gets a small id for good; a handle used again after its destruction is a new one.
// And what each runs, as far as it was seen to be instantiated and updated: contents with a number of their own, equal
// ones with the same, so that a launch says with one number what it ran.
//
// Threads: any; `at_launch` on a miss of the thread's cache, updates inside the host's calls: lock, may allocate, never
// call the driver. The recorder thread reads contents.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/graph_nodes.h"
#include "capture/hot_page.h"
#include "capture/notice_board.h"
#include "event/graph_contents.h"
#include "event/ids.h"

namespace gpuflight::capture {

class GraphTable {
 public:
  static constexpr std::size_t kMostNodes = 1 << 20;        // of all graphs; 25 MB
  static constexpr std::size_t kMostKernelRows = 1 << 19;   // of all contents; 12 MB
  static constexpr std::size_t kMostContents = 65'536;
  static constexpr std::size_t kMostKernelRowsOfOne = 4096;  // some 4 MB of lines

  GraphTable(HotPage& page, NoticeBoard* notices) : generation_(page.graph_generation), notices_(notices) {}

  struct Known {
    event::GraphId id;
    event::ContentsId contents;
  };
  Known at_launch(const void* graph_exec) noexcept;

  // nullopt: its nodes could not be read.
  void on_instantiated(const void* graph_exec, std::optional<GraphNodes> nodes) noexcept;
  // Whether updates of it can be followed: what it ran before is known.
  bool follows(const void* graph_exec) noexcept;
  void on_updated(const void* graph_exec, const std::optional<GraphNodes>& graph) noexcept;
  void on_child_updated(const void* graph_exec, const void* node, const std::optional<GraphNodes>& child) noexcept;
  void on_kernel_set(const void* graph_exec, const void* node, const std::optional<GraphKernelShape>& kernel) noexcept;
  void on_enabled(const void* graph_exec, const void* node, bool on) noexcept;
  void on_graph_exec_destroyed(const void* graph_exec) noexcept;
  void forget_all() noexcept;

  // Stable for good; null for 0 and for numbers not given out.
  const event::GraphContents* contents(event::ContentsId id) const noexcept;

  std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }

 private:
  struct Graph {
    std::uint32_t id = 0;                 // 0: not launched yet
    event::ContentsId contents;           // as of the last look
    std::unique_ptr<GraphNodes> nodes;    // null: what it runs is not known
    bool changed = false;                 // since that look
    bool restorable = false;  // an update of the whole makes it known again: no node can be disabled unseen
  };

  template <class Update>
  void update(const void* graph_exec, bool disables, Update&& apply) noexcept;
  void lose(Graph& graph, bool restorable) noexcept;
  void look(Graph& graph);
  event::ContentsId intern(event::GraphContents contents);
  void keep(Graph& graph, GraphNodes nodes);
  void say_full() noexcept;
  void new_generation() noexcept { generation_.fetch_add(1, std::memory_order_release); }

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Graph> graphs_;
  std::uint32_t next_ = 1;
  std::size_t nodes_ = 0, kernel_rows_ = 0;
  std::vector<std::unique_ptr<const event::GraphContents>> contents_;  // by number - 1
  std::unordered_multimap<std::size_t, event::ContentsId> by_hash_;
  std::atomic<std::uint32_t>& generation_;
  NoticeBoard* const notices_;
};

}  // namespace gpuflight::capture
