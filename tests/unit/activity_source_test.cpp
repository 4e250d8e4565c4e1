// The GPU's times through the simulated CUPTI: what the recorder thread gets to see of what ran.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "activity_fixture.h"

namespace gpuflight::capture {
namespace {

using namespace test;
using namespace sim::test;
using Graphs = ActivitySource::Graphs;

TEST(ActivitySource, KernelsWithTheirTimes) {
  for (const char* version : {"12.0", "12.9", "13.0", "13.3"}) {
    in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", version}}, [] {
      Recording recording;
      recording.start();
      const CUcontext context = start();
      sim::ModuleImage image{{kernel("_Z1kv", 24, 512)}};
      image.kernels[0].duration_ns = 2'000'000;
      const CUfunction k = function(load(image), "_Z1kv");
      CUstream stream = nullptr;
      ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
      EXPECT_EQ(launch(k, 5, 96, 128, stream), CUDA_SUCCESS);
      EXPECT_EQ(launch(k, 6, 32, 0, stream), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      recording.finish();
      ASSERT_EQ(recording.seen.size(), 2u);
      const ActivityRecord& r = recording.seen[0].record;
      EXPECT_EQ(recording.seen[0].name, "_Z1kv");
      EXPECT_EQ(r.kind, ActivityRecord::Kind::kKernel);
      EXPECT_EQ(r.grid, (event::Dim3{5, 1, 1}));
      EXPECT_EQ(r.shape.block, (event::Dim3{96, 1, 1}));
      EXPECT_EQ(r.shape.dyn_shared_bytes, 128u);
      EXPECT_EQ(r.num_regs, 24);
      EXPECT_EQ(r.static_shared_bytes, 512);
      std::uint32_t id = 0;
      EXPECT_EQ(cuptiGetStreamIdEx(context, stream, 0, &id), CUPTI_SUCCESS);
      EXPECT_EQ(r.stream_uid, id);
      EXPECT_EQ(cuptiGetContextId(context, &id), CUPTI_SUCCESS);
      EXPECT_EQ(r.context_uid, id);
      ASSERT_TRUE(r.start_ns && r.end_ns && recording.seen[1].record.start_ns && recording.seen[1].record.end_ns);
      EXPECT_EQ(*r.end_ns - *r.start_ns, 2'000'000);
      EXPECT_GT(*r.start_ns, 0);
      EXPECT_GE(*recording.seen[1].record.start_ns, *r.end_ns);
      EXPECT_LE(*recording.seen[1].record.end_ns, monotonic_ns() - recording.t0);
      EXPECT_NE(recording.seen[1].record.correlation, r.correlation);
      EXPECT_EQ(recording.source.counters().records, 2u);
      EXPECT_EQ(recording.source.counters().null_times, 0u);
    });
  }
}

TEST(ActivitySource, SaysWhyItDoesNotStart) {
  in_child({{"GPUFLIGHT_SIM_ACTIVITY_ERROR", "35"}}, [] {
    Recording recording;
    std::string problem;
    EXPECT_FALSE(recording.start({}, &problem));
    EXPECT_EQ(problem, "cuptiActivityEnable of CONCURRENT_KERNEL: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES");
    recording.finish();
    EXPECT_TRUE(recording.seen.empty());
    recording.source.stop();
  });
  in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", "140000"}}, [] {
    Recording recording;
    std::string problem;
    EXPECT_FALSE(recording.start({}, &problem));
    EXPECT_NE(problem.find("CUPTI 140000"), std::string::npos) << problem;
    recording.finish();
    recording.source.stop();
    EXPECT_EQ(recording.source.counters().buffers_requested, 0u);
  });
  in_child({}, [] {  // a library that is no CUPTI
    SharedObject library;
    ASSERT_TRUE(library.adopt("libcuda.so.1"));
    ActivitySource source;
    std::string problem;
    EXPECT_FALSE(source.start(library, 130000, {}, 0, problem));
    EXPECT_EQ(problem.find("cuptiActivityRegisterCallbacks is missing in "), 0u) << problem;
  });
}

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, bytes), CUDA_SUCCESS);
  return memory;
}

TEST(ActivitySource, CopiesAndFillsAsCalled) {
  for (const char* version : {"12.0", "12.9", "13.0", "13.5"}) {
    in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", version}}, [] {
      Recording recording;
      recording.start();
      start();
      constexpr std::size_t kBytes = 1 << 20;
      const CUdeviceptr a = allocate(kBytes), b = allocate(kBytes);
      CUdeviceptr managed = 0;
      void* pinned = nullptr;
      ASSERT_EQ(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
      ASSERT_EQ(cuMemAllocHost(&pinned, kBytes), CUDA_SUCCESS);
      std::vector<char> pageable(kBytes);
      CUstream stream = nullptr;
      ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyHtoD(a, pageable.data(), kBytes), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyHtoDAsync(a, pinned, kBytes / 2, stream), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyDtoHAsync(pinned, managed, kBytes, stream), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyDtoD(b, a, kBytes), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpy(reinterpret_cast<CUdeviceptr>(pinned), a, 64), CUDA_SUCCESS);
      EXPECT_EQ(cuMemsetD8(a, 0x5a, kBytes), CUDA_SUCCESS);
      EXPECT_EQ(cuMemsetD32Async(managed, 77, 256, stream), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      recording.finish();
      using K = event::CopyKind;
      using M = event::MemoryKind;
      struct Expected {
        ActivityRecord::Kind kind;
        K copy;
        M source, destination;
        std::uint64_t bytes;
        bool async;
      };
      constexpr auto kCopy = ActivityRecord::Kind::kMemcpy, kFill = ActivityRecord::Kind::kMemset;
      const std::vector<Expected> expected = {
          {kCopy, K::kHtoD, M::kPageable, M::kDevice, kBytes, false},
          {kCopy, K::kHtoD, M::kPinned, M::kDevice, kBytes / 2, true},
          {kCopy, K::kDtoH, M::kManaged, M::kPinned, kBytes, true},
          {kCopy, K::kDtoD, M::kDevice, M::kDevice, kBytes, false},
          {kCopy, K::kDtoH, M::kDevice, M::kPinned, 64, false},
          {kFill, K::kUnknown, M::kUnknown, M::kDevice, kBytes, false},
          {kFill, K::kUnknown, M::kUnknown, M::kManaged, 1024, true},
      };
      ASSERT_EQ(recording.seen.size(), expected.size());
      std::set<std::uint32_t> correlations;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE(i);
        const ActivityRecord& r = recording.seen[i].record;
        EXPECT_EQ(r.kind, expected[i].kind);
        EXPECT_EQ(r.copy, expected[i].copy);
        EXPECT_EQ(r.source, expected[i].source);
        EXPECT_EQ(r.destination, expected[i].destination);
        EXPECT_EQ(r.bytes, expected[i].bytes);
        EXPECT_EQ(r.async, expected[i].async);
        EXPECT_FALSE(r.source_device.has_value());
        ASSERT_TRUE(r.start_ns && r.end_ns);
        EXPECT_GT(*r.end_ns, *r.start_ns);
        correlations.insert(r.correlation);
      }
      EXPECT_EQ(recording.seen[5].record.value, 0x5au);
      EXPECT_EQ(recording.seen[6].record.value, 77u);
      EXPECT_NE(recording.seen[1].record.stream_uid, recording.seen[0].record.stream_uid);
      EXPECT_EQ(correlations.size(), expected.size());
      EXPECT_EQ(correlations.count(0), 0u);
    });
  }
}

TEST(ActivitySource, CopiesBetweenDevices) {
  in_child({{"GPUFLIGHT_SIM_DEVICE_COUNT", "2"}}, [] {
    Recording recording;
    recording.start();
    recording.source.tell_peer_copies();
    const CUcontext first = start();
    const CUdeviceptr from = allocate(4096);
    CUcontext second = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(second), CUDA_SUCCESS);
    const CUdeviceptr to = allocate(4096);
    EXPECT_EQ(cuMemsetD8(from, 3, 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyPeerAsync(to, second, from, first, 4096, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyPeer(to, second, from, nullptr, 4096), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemcpyPeer(to, second, from, first, 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    unsigned char copied = 0;
    EXPECT_EQ(cuMemcpyDtoH(&copied, to + 4095, 1), CUDA_SUCCESS);
    EXPECT_EQ(copied, 3);
    recording.finish();
    ASSERT_EQ(recording.seen.size(), 4u);
    for (const int i : {1, 2}) {
      const ActivityRecord& r = recording.seen[static_cast<std::size_t>(i)].record;
      EXPECT_EQ(r.copy, event::CopyKind::kPtoP);
      EXPECT_EQ(r.source_device, 0);
      EXPECT_EQ(r.destination_device, 1);
      EXPECT_EQ(r.bytes, 4096u);
      EXPECT_EQ(r.async, i == 1);
      EXPECT_NE(r.correlation, 0u);
    }
  });
}

TEST(ActivitySource, WithoutCopiesOnlyKernels) {
  in_child({}, [] {
    Recording recording;
    recording.start({.copies = false});
    start();
    EXPECT_EQ(cuMemsetD8(allocate(64), 1, 64), CUDA_SUCCESS);
    EXPECT_EQ(launch(function(load({{kernel("k")}}), "k"), 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.finish();
    ASSERT_EQ(recording.seen.size(), 1u);
    EXPECT_EQ(recording.seen[0].name, "k");
  });
}

// A captured kernel, copy and fill; instantiated twice, launched three times.
void play_graphs(Recording& recording, std::array<std::uint32_t, 2>& graph_uids) {
  const CUcontext context = start();
  static_cast<void>(context);
  const CUfunction k = function(load({{kernel("k")}}), "k");
  const CUdeviceptr memory = allocate(4096);
  static char host[4096];
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(memory, 7, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(launch(k, 3, 64, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoHAsync(host, memory, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  std::array<CUgraphExec, 2> execs{};
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(cuGraphInstantiate(&execs[i], graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuptiGetGraphExecId(execs[i], &graph_uids[i]), CUPTI_SUCCESS);
  }
  EXPECT_EQ(cuGraphLaunch(execs[0], stream), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(execs[0], stream), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(execs[1], stream), CUDA_SUCCESS);
  EXPECT_EQ(launch(k, 1, 32, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  recording.finish();
}

TEST(ActivitySource, GraphsNodeByNode) {
  in_child({}, [] {
    Recording recording;
    recording.start({.graphs = Graphs::kNode});
    std::array<std::uint32_t, 2> graph_uids{};
    play_graphs(recording, graph_uids);
    ASSERT_EQ(recording.seen.size(), 10u);
    std::map<std::uint32_t, std::set<std::uint64_t>> nodes_of_launch;
    std::map<std::uint32_t, std::set<std::uint64_t>> nodes_of_graph;
    for (std::size_t i = 0; i < 9; ++i) {
      const ActivityRecord& r = recording.seen[i].record;
      constexpr std::array kKinds = {ActivityRecord::Kind::kMemset, ActivityRecord::Kind::kKernel,
                                     ActivityRecord::Kind::kMemcpy};
      EXPECT_EQ(r.kind, kKinds[i % 3]);
      EXPECT_EQ(r.graph_uid, graph_uids[i / 6]);
      EXPECT_NE(r.graph_node, 0u);
      nodes_of_launch[r.correlation].insert(r.graph_node);
      nodes_of_graph[r.graph_uid].insert(r.graph_node);
      if (i > 0) {
        EXPECT_GE(*r.start_ns, *recording.seen[i - 1].record.end_ns);
      }
    }
    EXPECT_EQ(nodes_of_launch.size(), 3u);
    for (const auto& [correlation, nodes] : nodes_of_launch) EXPECT_EQ(nodes.size(), 3u);
    for (const auto& [graph, nodes] : nodes_of_graph) EXPECT_EQ(nodes.size(), 3u);
    EXPECT_EQ(recording.seen[2].record.copy, event::CopyKind::kDtoH);
    EXPECT_EQ(recording.seen[0].record.value, 7u);
    EXPECT_EQ(recording.seen[9].record.graph_uid, 0u);
    EXPECT_EQ(recording.seen[9].record.graph_node, 0u);
  });
}

// first -> child {inner -> child {inner}} -> last
TEST(ActivitySource, NodesOfChildGraphs) {
  in_child({}, [] {
    Recording recording;
    recording.start();
    start();
    sim::ModuleImage image{{kernel("first"), kernel("inner"), kernel("last")}};
    for (auto& k : image.kernels) k.duration_ns = 100'000;
    const CUmodule m = load(image);
    const auto add = [&](CUgraph graph, const char* name, const CUgraphNode* after) {
      CUDA_KERNEL_NODE_PARAMS params{};
      params.func = function(m, name);
      params.gridDimX = params.gridDimY = params.gridDimZ = 1;
      params.blockDimX = params.blockDimY = params.blockDimZ = 1;
      CUgraphNode node = nullptr;
      EXPECT_EQ(cuGraphAddKernelNode(&node, graph, after, after != nullptr, &params), CUDA_SUCCESS);
      return node;
    };
    CUgraph parent = nullptr, child = nullptr, grandchild = nullptr, inside = nullptr;
    for (CUgraph* graph : {&parent, &child, &grandchild}) ASSERT_EQ(cuGraphCreate(graph, 0), CUDA_SUCCESS);
    add(grandchild, "inner", nullptr);
    CUgraphNode nested = nullptr, in_parent = nullptr;
    const CUgraphNode inner = add(child, "inner", nullptr);
    ASSERT_EQ(cuGraphAddChildGraphNode(&nested, child, &inner, 1, grandchild), CUDA_SUCCESS);
    const CUgraphNode first = add(parent, "first", nullptr);
    ASSERT_EQ(cuGraphAddChildGraphNode(&in_parent, parent, &first, 1, child), CUDA_SUCCESS);
    add(parent, "last", &in_parent);
    EXPECT_EQ(cuGraphChildGraphNodeGetGraph(in_parent, &inside), CUDA_SUCCESS);
    EXPECT_NE(inside, child);
    EXPECT_EQ(cuGraphDestroy(child), CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiate(&exec, parent, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.finish();
    ASSERT_EQ(recording.seen.size(), 4u);
    std::uint32_t graph_uid = 0;
    EXPECT_EQ(cuptiGetGraphExecId(exec, &graph_uid), CUPTI_SUCCESS);
    constexpr std::array kNames = {"first", "inner", "inner", "last"};
    std::set<std::uint64_t> nodes;
    for (std::size_t i = 0; i < 4; ++i) {
      const ActivityRecord& r = recording.seen[i].record;
      EXPECT_EQ(recording.seen[i].name, kNames[i]);
      EXPECT_EQ(r.graph_uid, graph_uid);
      nodes.insert(r.graph_node);
      if (i > 0) {
        EXPECT_EQ(*r.start_ns, *recording.seen[i - 1].record.end_ns);
      }
    }
    EXPECT_EQ(nodes.size(), 4u);
    EXPECT_EQ(cuGraphDestroy(parent), CUDA_SUCCESS);
  });
}

TEST(ActivitySource, GraphsAsAWhole) {
  for (const char* version : {"12.0", "12.9", "13.5"}) {
    in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", version}}, [] {
      Recording recording;
      recording.start({.graphs = Graphs::kGraph});
      std::array<std::uint32_t, 2> graph_uids{};
      play_graphs(recording, graph_uids);
      ASSERT_EQ(recording.seen.size(), 4u);
      for (std::size_t i = 0; i < 3; ++i) {
        const ActivityRecord& r = recording.seen[i].record;
        EXPECT_EQ(r.kind, ActivityRecord::Kind::kGraph);
        EXPECT_EQ(r.graph_uid, graph_uids[i / 2]);
        EXPECT_EQ(r.graph_node, 0u);
        EXPECT_NE(r.correlation, 0u);
        EXPECT_GT(*r.end_ns, *r.start_ns);
      }
      EXPECT_EQ(recording.seen[3].record.kind, ActivityRecord::Kind::kKernel);
    });
  }
}

TEST(ActivitySource, GraphsOff) {
  in_child({}, [] {
    Recording recording;
    recording.start({.graphs = Graphs::kOff});
    std::array<std::uint32_t, 2> graph_uids{};
    play_graphs(recording, graph_uids);
    ASSERT_EQ(recording.seen.size(), 1u);
    EXPECT_EQ(recording.seen[0].record.graph_uid, 0u);
    EXPECT_EQ(recording.source.counters().records, 1u);
    EXPECT_EQ(recording.source.counters().unknown_records, 0u);
  });
}

TEST(ActivitySource, TimesAreThoseOfTheRecordingOnEitherClock) {
  for (const char* error : {"0", "27"}) {  // 27: NOT_SUPPORTED, records then come in CLOCK_REALTIME
    in_child({{"GPUFLIGHT_SIM_TIMESTAMP_ERROR", error}}, [] {
      Recording recording;
      recording.start();
      start();
      const std::int64_t before = monotonic_ns() - recording.t0;
      EXPECT_EQ(launch(function(load({{kernel("k")}}), "k"), 1, 32), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      const std::int64_t after = monotonic_ns() - recording.t0;
      recording.finish();
      ASSERT_EQ(recording.seen.size(), 1u);
      constexpr std::int64_t kSlewNs = 100'000;  // between the readings of two clocks
      EXPECT_GE(*recording.seen[0].record.start_ns, before - kSlewNs);
      EXPECT_LE(*recording.seen[0].record.end_ns, after + kSlewNs);
    });
  }
}

TEST(ActivitySource, MissingTimesAreNullAndCounted) {
  in_child({{"GPUFLIGHT_SIM_ZERO_TIMES_EVERY", "4"}}, [] {
    Recording recording;
    recording.start();
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    for (int i = 0; i < 100; ++i) EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    recording.finish();
    const auto without = std::count_if(recording.seen.begin(), recording.seen.end(), [](const Seen& s) {
      return !s.record.start_ns && !s.record.end_ns;
    });
    EXPECT_EQ(without, 25);
    EXPECT_EQ(recording.source.counters().null_times, 25u);
    EXPECT_EQ(recording.source.counters().records, 100u);
  });
}

TEST(ActivitySource, MemoryOfTheGpuIsSetByAttributes) {
  in_child({}, [] {
    Recording recording;
    recording.start({.device_buffer_bytes = 2 << 20, .device_buffer_pool_limit = 9});
    const auto value_of = [](CUpti_ActivityAttribute attribute) {
      std::size_t value = 0, bytes = sizeof value;
      EXPECT_EQ(cuptiActivityGetAttribute(attribute, &bytes, &value), CUPTI_SUCCESS);
      return value;
    };
    EXPECT_EQ(value_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE), 2u << 20);
    EXPECT_EQ(value_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT), 9u);
    EXPECT_EQ(value_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE), 2u);
    EXPECT_EQ(value_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP), 1u << 20);
    EXPECT_EQ(value_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS), 1u << 20);
  });
}

}  // namespace
}  // namespace gpuflight::capture
