// Asks the driver what is in a graph of the host's: its nodes, those of child graphs, and of each kernel node the
// configuration. Some 0.5 us a node, in the host's call that instantiates or updates, never at a launch.
//
// Threads: the one that makes the call, with its `inside` guard set. Calls the driver, allocates; no lock is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <cuda.h>
#include <unordered_map>
#include <vector>

#include "capture/driver_api.h"
#include "capture/graph_nodes.h"
#include "capture/kernel_resolver.h"

namespace gpuflight::capture {

class ContextSource;

class GraphWalk {
 public:
  static constexpr std::size_t kMostNodes = 131'072;

  // `current`: the context of the call. `device_of` as for LaunchRecorder, with `source`.
  using DeviceOf = std::int32_t (*)(void* source, const void* context);
  // `refused`: bits of attributes that the driver does not know; kept from walk to walk, so that it is not asked again.
  GraphWalk(const DriverApi& driver, KernelResolver& resolver, ContextSource& contexts, CUcontext current,
            std::uint32_t current_uid, void* source, DeviceOf device_of, std::atomic<std::uint32_t>& refused)
      : driver_(driver),
        resolver_(resolver),
        contexts_(contexts),
        current_(current),
        current_uid_(current_uid),
        source_(source),
        device_of_(device_of),
        refused_(refused) {}

  enum class Status : std::uint8_t {
    kOk,
    kUnknown,   // the driver lacks a function, or refused one
    kTooLarge,
    kDeviceUpdated,  // kernels on the GPU may change what it runs
  };
  Status walk(CUgraph graph, GraphNodes& out);

  // What a kernel node runs with these parameters and the attributes that `node` has. False: it cannot be told.
  struct KernelParams {
    CUfunction function = nullptr;
    CUkernel kernel = nullptr;
    CUcontext context = nullptr;
    event::Dim3 grid, block;
    std::uint32_t shared_bytes = 0;
  };
  bool resolve(CUgraphNode node, const KernelParams& params, GraphKernelShape& out);

 private:
  struct Key {
    const void* function;
    const void* context;
    event::LaunchShape shape;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  Status add_graph(CUgraph graph, std::uint32_t parent, int depth, GraphNodes& out);
  Status add_node(CUgraphNode node, std::uint32_t parent, int depth, GraphNodes& out);
  bool params_of(CUgraphNode node, KernelParams& params) const;
  bool attribute(CUgraphNode node, unsigned which, CUlaunchAttributeValue& value) const;

  const DriverApi& driver_;
  KernelResolver& resolver_;
  ContextSource& contexts_;
  const CUcontext current_;
  const std::uint32_t current_uid_;
  void* const source_;
  const DeviceOf device_of_;
  std::atomic<std::uint32_t>& refused_;
  bool device_updated_ = false;
  std::unordered_map<Key, event::ConfigId, Hash> configs_;  // of this walk: most nodes are like one before
};

}  // namespace gpuflight::capture
