// The simulated driver against what facts.md and the CUDA documentation say of a real one.
#include <dlfcn.h>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "sim_fixture.h"

namespace gpuflight::sim::test {
namespace {

int occupancy(CUfunction f, int block, std::size_t dynamic = 0) {
  int blocks = -1;
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, block, dynamic), CUDA_SUCCESS);
  return blocks;
}

TEST(SimImage, SurvivesEveryByteOfAName) {
  ModuleImage image;
  std::string name;
  for (int c = 1; c < 256; ++c) name += static_cast<char>(c);
  image.kernels = {kernel(name, 77, 123), kernel(std::string(65536, 'x'))};
  const auto read = read_image(write_image(image).data());
  ASSERT_TRUE(read);
  ASSERT_EQ(read->kernels.size(), 2u);
  EXPECT_EQ(read->kernels[0].name, name);
  EXPECT_EQ(read->kernels[0].registers, 77);
  EXPECT_EQ(read->kernels[0].static_shared_bytes, 123);
  EXPECT_EQ(read->kernels[1].name.size(), 65536u);
}

TEST(SimImage, RefusesForeignBlobs) {
  EXPECT_FALSE(read_image("\x7f" "ELF"));
  EXPECT_FALSE(read_image("GPUFLIGHT-SIM-MODULE 1\n{\"kernels\": [{}]}"));
  EXPECT_FALSE(read_image(nullptr));
}

TEST(SimDriver, NothingWorksBeforeInit) {
  in_child({}, [] {
    int count = 0;
    CUcontext context = nullptr;
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST(SimDriver, DescribesTheBoardAskedFor) {
  in_child({{"GPUFLIGHT_SIM_DEVICE", "sm_86"}, {"GPUFLIGHT_SIM_DRIVER_VERSION", "12080"},
            {"GPUFLIGHT_SIM_DEVICE_COUNT", "2"}},
           [] {
             int version = 0, count = 0, value = 0;
             EXPECT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
             EXPECT_EQ(version, 12080);
             EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
             EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
             EXPECT_EQ(count, 2);
             EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 1), CUDA_SUCCESS);
             EXPECT_EQ(value, 6);
             EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0), 0);
             EXPECT_EQ(value, 1536);
             EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 0), 0);
             EXPECT_EQ(value, 1024);
             EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2), CUDA_ERROR_INVALID_DEVICE);
           });
}

TEST(SimDriver, AComplaintAboutTheConfigurationStopsInit) {
  in_child({{"GPUFLIGHT_SIM_DEVICE", "sm_42"}}, [] { EXPECT_EQ(cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY); });
}

TEST(SimOccupancy, ReferenceValuesOfAnSm86Board) {
  in_child({{"GPUFLIGHT_SIM_DEVICE", "sm_86"}}, [] {
    start();
    const CUmodule m = load({{kernel("naive", 16, 16384), kernel("small", 16, 1024), kernel("none", 16)}});
    EXPECT_EQ(occupancy(function(m, "naive"), 256), 5);
    EXPECT_EQ(occupancy(function(m, "small"), 256), 6);
    EXPECT_EQ(occupancy(function(m, "none"), 256, 1024), 6);
  });
}

TEST(SimOccupancy, ReferenceValuesOfAnSm90Board) {
  in_child({{"GPUFLIGHT_SIM_DEVICE", "sm_90"}}, [] {
    start();
    ModuleImage image{{kernel("naive", 16, 16384), kernel("r33", 33), kernel("b5"), kernel("b9"), kernel("b16"),
                       kernel("opt_in", 32), kernel("carved", 16, 16384)}};
    image.kernels[2].barriers = 5;
    image.kernels[3].barriers = 9;
    image.kernels[4].barriers = 16;
    const CUmodule m = load(image);
    EXPECT_EQ(occupancy(function(m, "naive"), 256), 8);
    EXPECT_EQ(occupancy(function(m, "r33"), 800), 1);  // not 2: registers are given to whole warps
    EXPECT_EQ(occupancy(function(m, "b5"), 32), 12);
    EXPECT_EQ(occupancy(function(m, "b9"), 32), 7);
    EXPECT_EQ(occupancy(function(m, "b16"), 32), 4);

    const CUfunction opt_in = function(m, "opt_in");
    EXPECT_EQ(occupancy(opt_in, 256, 64 * 1024), 0);
    EXPECT_EQ(cuFuncSetAttribute(opt_in, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024), CUDA_SUCCESS);
    EXPECT_EQ(occupancy(opt_in, 256, 64 * 1024), 3);  // 228 KB / (64 + 1)
    EXPECT_EQ(cuFuncSetAttribute(opt_in, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 * 1024),
              CUDA_ERROR_INVALID_VALUE);

    const CUfunction carved = function(m, "carved");
    const int before = occupancy(carved, 256);
    EXPECT_EQ(cuFuncSetAttribute(carved, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 25), CUDA_SUCCESS);
    EXPECT_LT(occupancy(carved, 256), before);
  });
}

TEST(SimDriver, AKernelIsNotAFunction) {
  in_child({}, [] {
    start();
    CUlibrary library = nullptr;
    const std::string image = write_image({{kernel("k", 40)}});
    ASSERT_EQ(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
    CUkernel k = nullptr;
    ASSERT_EQ(cuLibraryGetKernel(&k, library, "k"), CUDA_SUCCESS);
    const CUfunction disguised = reinterpret_cast<CUfunction>(k);
    int value = 0;
    EXPECT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, disguised), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 0), CUDA_SUCCESS);
    EXPECT_EQ(value, 40);
    CUfunction f = nullptr;
    EXPECT_EQ(cuKernelGetFunction(&f, k), CUDA_SUCCESS);
    EXPECT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f), CUDA_SUCCESS);
    CUfunction again = nullptr;
    EXPECT_EQ(cuKernelGetFunction(&again, reinterpret_cast<CUkernel>(f)), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(launch(disguised, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(launch(f, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
    EXPECT_EQ(launch(disguised, 1, 32), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(launch(f, 1, 32), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(SimDriver, HandlesAreReusedAtOnce) {
  in_child({}, [] {
    start();
    std::set<CUfunction> seen;
    for (int i = 0; i < 100; ++i) {
      const CUmodule m = load({{kernel("k" + std::to_string(i), 16 + i)}});
      const CUfunction f = function(m, "k" + std::to_string(i));
      int registers = 0;
      EXPECT_EQ(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f), CUDA_SUCCESS);
      EXPECT_EQ(registers, 16 + i);
      seen.insert(f);
      EXPECT_EQ(cuModuleUnload(m), CUDA_SUCCESS);
    }
    EXPECT_LT(seen.size(), 5u);
  });
}

TEST(SimDriver, RefusesWhatADriverRefuses) {
  in_child({}, [] {
    start();
    ModuleImage image{{kernel("k", 32), kernel("fat", 168)}};
    const CUmodule m = load(image);
    const CUfunction k = function(m, "k");
    EXPECT_EQ(launch(nullptr, 1, 32), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(launch(k, 0, 32), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(k, 1, 1025), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(k, 1, 32, 49 * 1024), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(function(m, "fat"), 1, 512), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_EQ(cuLaunchCooperativeKernel(k, 100000, 1, 1, 64, 1, 1, 0, nullptr, nullptr),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_EQ(launch(k, 1, 32, 0, reinterpret_cast<CUstream>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
  });
}

TEST(SimDriver, AnErrorSticksOnceItsKernelHasEnded) {
  in_child({}, [] {
    start();
    ModuleImage image{{kernel("bad"), kernel("good")}};
    image.kernels[0].fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    image.kernels[0].duration_ns = 30'000'000;
    const CUmodule m = load(image);
    EXPECT_EQ(launch(function(m, "bad"), 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(launch(function(m, "good"), 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(launch(function(m, "good"), 1, 32), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST(SimDriver, TheNthLaunchFailsOnDemand) {
  in_child({{"GPUFLIGHT_SIM_LAUNCH_ERROR", "2:719,4:1"}, {"GPUFLIGHT_SIM_STICKY", "5:714"}}, [] {
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    std::vector<int> results;
    for (int i = 0; i < 5; ++i) results.push_back(launch(k, 1, 32));
    EXPECT_EQ(results, (std::vector<int>{0, 719, 0, 1, 0}));
    EXPECT_EQ(cuCtxSynchronize(), 714);
    EXPECT_EQ(launch(k, 1, 32), 714);
  });
}

TEST(SimDriver, TimeRunsPerStreamAndSynchroniseWaitsForIt) {
  in_child({}, [] {
    start();
    ModuleImage image{{kernel("ms10")}};
    image.kernels[0].duration_ns = 10'000'000;
    const CUfunction k = function(load(image), "ms10");
    CUstream a = nullptr, b = nullptr;
    ASSERT_EQ(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUevent first = nullptr, last = nullptr;
    ASSERT_EQ(cuEventCreate(&first, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&last, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(first, a), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(k, 1, 32, 0, a), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(last, a), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32, 0, b), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);  // b ran beside a, not behind it
    EXPECT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
    float ms = 0;
    EXPECT_EQ(cuEventElapsedTime(&ms, first, last), CUDA_SUCCESS);
    EXPECT_GE(ms, 30.0f);
    EXPECT_LT(ms, 31.0f);
  });
}

TEST(SimDriver, TheDefaultStreamWaitsForBlockingStreams) {
  in_child({}, [] {
    start();
    ModuleImage image{{kernel("ms20")}};
    image.kernels[0].duration_ns = 20'000'000;
    const CUfunction k = function(load(image), "ms20");
    CUstream blocking = nullptr;
    ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    CUevent before = nullptr, after = nullptr;
    ASSERT_EQ(cuEventCreate(&before, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&after, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(before, blocking), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32, 0, blocking), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(after, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    float ms = 0;
    EXPECT_EQ(cuEventElapsedTime(&ms, before, after), CUDA_SUCCESS);
    EXPECT_GE(ms, 40.0f);
  });
}

TEST(SimCapture, NothingRunsAndTheGraphHoldsTheNodes) {
  in_child({}, [] {
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    CUstream a = nullptr, b = nullptr;
    ASSERT_EQ(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUevent fork_event = nullptr, join = nullptr;
    ASSERT_EQ(cuEventCreate(&fork_event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&join, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuStreamIsCapturing(a, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(cuStreamIsCapturing(b, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(launch(k, 1, 32, 0, a), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(fork_event, a), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(b, fork_event, 0), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 2, 32, 0, b), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamIsCapturing(b, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(cuEventRecord(join, b), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(a, join, 0), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_SUCCESS);
    std::size_t count = 0;
    EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    EXPECT_EQ(count, 2u);
    CUDA_KERNEL_NODE_PARAMS params{};
    CUgraphNode nodes[2];
    EXPECT_EQ(cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphKernelNodeGetParams(nodes[1], &params), CUDA_SUCCESS);
    EXPECT_EQ(params.func, k);
    EXPECT_EQ(params.gridDimX, 2u);
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, a), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  });
}

TEST(SimGraph, AttributesAndUpdatesOfNodes) {
  in_child({}, [] {
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = k;
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    CUgraph inner = nullptr, outer = nullptr;
    ASSERT_EQ(cuGraphCreate(&inner, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphCreate(&outer, 0), CUDA_SUCCESS);
    CUgraphNode node = nullptr, child = nullptr, kernel_node = nullptr;
    ASSERT_EQ(cuGraphAddKernelNode(&node, inner, nullptr, 0, &params), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddKernelNode(&kernel_node, outer, nullptr, 0, &params), CUDA_SUCCESS);

    CUlaunchAttributeValue value{};
    EXPECT_EQ(cuGraphKernelNodeGetAttribute(kernel_node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value), CUDA_SUCCESS);
    EXPECT_EQ(value.clusterDim.x, 0u);
    value.clusterDim = {2, 1, 1};
    EXPECT_EQ(cuGraphKernelNodeSetAttribute(kernel_node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value), CUDA_SUCCESS);
    value = {};
    EXPECT_EQ(cuGraphKernelNodeGetAttribute(kernel_node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value), CUDA_SUCCESS);
    EXPECT_EQ(value.clusterDim.x, 2u);
    EXPECT_EQ(cuGraphKernelNodeGetAttribute(child, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value),
              CUDA_ERROR_INVALID_VALUE);

    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiate(&exec, outer, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, child, inner), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, kernel_node, inner), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, child, outer), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_KERNEL;
    any.kernel.func = k;
    any.kernel.gridDimX = any.kernel.gridDimY = any.kernel.gridDimZ = 1;
    any.kernel.blockDimX = any.kernel.blockDimY = any.kernel.blockDimZ = 1;
    EXPECT_EQ(cuGraphExecNodeSetParams(exec, kernel_node, &any), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecNodeSetParams(exec, node, &any), CUDA_ERROR_INVALID_VALUE);  // of another graph
  });
}

TEST(SimCapture, UnjoinedWorkIsNoticed) {
  in_child({}, [] {
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    CUstream a = nullptr, b = nullptr;
    ASSERT_EQ(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUevent event = nullptr;
    ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(event, a), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(b, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32, 0, b), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph, nullptr);
  });
}

// What makes a recorder dangerous to its host: a forbidden call on another thread loses the capture, unless that
// thread has put itself into the relaxed mode.
TEST(SimCapture, ForbiddenCallsElsewhereLoseItUnlessRelaxed) {
  in_child({}, [] {
    const CUcontext context = start();
    CUstream a = nullptr;
    ASSERT_EQ(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (const bool relaxed : {true, false}) {
      ASSERT_EQ(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
      std::thread([&] {
        cuCtxSetCurrent(context);
        CUstreamCaptureMode mode = relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
        EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
        CUdeviceptr p = 0;
        EXPECT_EQ(cuMemAlloc(&p, 64), relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      }).join();
      CUgraph graph = nullptr;
      EXPECT_EQ(cuStreamEndCapture(a, &graph), relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
  });
}

TEST(SimCapture, TheDefaultStreamMustNotDependOnACapturedOne) {
  in_child({}, [] {
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    CUstream blocking = nullptr, free_stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamBeginCapture(free_stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamEndCapture(free_stream, &graph), CUDA_SUCCESS);
    CUstreamCaptureStatus status;
    ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_SUCCESS);  // asking did no harm
    ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

TEST(SimDriver, ProcAddressesFollowTheVersionAskedFor) {
  in_child({}, [] {
    const auto get = [](const char* name, int version, cuuint64_t flags) {
      void* found = nullptr;
      cuGetProcAddress(name, &found, version, flags, nullptr);
      return found;
    };
    const auto exported = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
    EXPECT_EQ(get("cuLaunchKernel", 4000, 0), exported("cuLaunchKernel"));
    EXPECT_EQ(get("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
              exported("cuLaunchKernel_ptsz"));
    EXPECT_EQ(get("cuMemAlloc", 3020, 0), exported("cuMemAlloc_v2"));
    EXPECT_EQ(get("cuMemcpyHtoD", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
              exported("cuMemcpyHtoD_v2_ptds"));
    EXPECT_EQ(get("cuGetProcAddress", 11030, 0), exported("cuGetProcAddress"));
    EXPECT_EQ(get("cuGetProcAddress", 12000, 0), exported("cuGetProcAddress_v2"));
    EXPECT_EQ(get("cuGraphInstantiate", 12000, 0), exported("cuGraphInstantiateWithFlags"));
    EXPECT_EQ(get("cuNoSuchThing", 13000, 0), nullptr);
    EXPECT_EQ(get("malloc", 13000, 0), nullptr);
  });
}

TEST(SimDriver, CopiesReallyCopy) {
  in_child({}, [] {
    start();
    CUdeviceptr device = 0;
    ASSERT_EQ(cuMemAlloc(&device, 4096), CUDA_SUCCESS);
    std::vector<unsigned char> in(4096, 7), out(4096);
    EXPECT_EQ(cuMemcpyHtoD(device, in.data(), in.size()), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32(device, 0x01020304, 4), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoH(out.data(), device, out.size()), CUDA_SUCCESS);
    EXPECT_EQ(out[0], 4);
    EXPECT_EQ(out[16], 7);
    EXPECT_EQ(cuMemcpyHtoD(device, in.data(), 4097), CUDA_ERROR_INVALID_VALUE);
    std::size_t before = 0, after = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(device), CUDA_SUCCESS);
    EXPECT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    EXPECT_EQ(after - before, 4096u);
    EXPECT_EQ(cuMemFree(device), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimDriver, ContextsNestAndTheirHandlesComeBack) {
  in_child({}, [] {
    const CUcontext primary = start();
    CUcontext own = nullptr, current = nullptr;
    ASSERT_EQ(cuCtxCreate(&own, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, own);
    unsigned long long first = 0, second = 0;
    EXPECT_EQ(cuCtxGetId(own, &first), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDestroy(own), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, primary);
    CUcontext again = nullptr;
    ASSERT_EQ(cuCtxCreate(&again, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(again, own);  // the handle is reused, the id is not
    EXPECT_EQ(cuCtxGetId(again, &second), CUDA_SUCCESS);
    EXPECT_NE(first, second);
  });
}

// No time is asserted: only that many threads launch at once, and all of it is seen.
TEST(SimDriver, ManyThreadsLaunchAtOnce) {
  in_child({}, [] {
    const CUcontext context = start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 64; ++t) {
      threads.emplace_back([&] {
        cuCtxSetCurrent(context);
        int mine = 0;
        for (int i = 0; i < 500; ++i) mine += launch(k, 1, 32, 0, CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
        good += mine;
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(good.load(), 64 * 500);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace gpuflight::sim::test
