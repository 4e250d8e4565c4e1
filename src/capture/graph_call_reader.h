// The driver calls that make and change executable graphs, as they return: what the graph runs is read off and kept in
// GraphTable.
//
// Threads: any app thread, inside its driver call. Calls the driver, locks, allocates; never at a launch. Owned by
// DriverCallReader.
#pragma once

#include <atomic>
#include <cstdint>
#include <cupti.h>
#include <span>

#include "capture/graph_table.h"
#include "capture/graph_walk.h"
#include "capture/thread_state.h"

namespace gpuflight::capture {

class GraphCallReader {
 public:
  struct Parts {
    const DriverApi& driver;
    KernelResolver& resolver;
    GraphTable& graphs;
    NoticeBoard& notices;
    ContextSource& contexts;
    GraphWalk::DeviceOf device_of;  // with `source`
    void* source;
  };
  explicit GraphCallReader(const Parts& parts) : parts_(parts) {}

  static std::span<const CUpti_CallbackId> ids() noexcept;
  static bool is_graph_call(CUpti_CallbackId id) noexcept;

  // Of a call that succeeded.
  void on_return(ThreadState& thread, CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;

 private:
  void look_at(CUpti_CallbackId id, const CUpti_CallbackData& data);
  GraphWalk walk_in(const CUpti_CallbackData& data) const;
  std::optional<GraphNodes> nodes_of(CUgraph graph, const CUpti_CallbackData& data);
  template <class Params>
  void on_kernel_set(CUgraphExec exec, CUgraphNode node, const Params& params, const CUpti_CallbackData& data);

  const Parts parts_;
  mutable std::atomic<std::uint32_t> refused_{0};
};

}  // namespace gpuflight::capture
