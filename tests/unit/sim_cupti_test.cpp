// The simulated CUPTI as its clients see it: callbacks, one slot, activity records by version.
#define CUDA_ENABLE_DEPRECATED  // the legacy launches are called here
#include <cuda.h>
#include <cupti.h>
#include <cupti_activity_deprecated.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "sim_fixture.h"

namespace gpuflight::sim::test {
namespace {

struct Seen {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId cbid;
  CUpti_ApiCallbackSite site;
  std::string function, symbol;
  std::uint32_t correlation = 0, context_uid = 0;
  CUresult result = CUDA_SUCCESS;
  std::uint64_t correlation_data = 0;
};

std::vector<Seen> seen;
bool nest = false;
cuLaunchKernelEx_params last_ex{};
cuLaunchKernel_params last_launch{};

void on_callback(void* userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* cbdata) {
  EXPECT_EQ(userdata, &seen);
  Seen s{domain, cbid, CUPTI_API_ENTER, "", "", 0, 0, CUDA_SUCCESS, 0};
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    const auto& data = *static_cast<const CUpti_CallbackData*>(cbdata);
    s.site = data.callbackSite;
    s.function = data.functionName;
    if (data.symbolName != nullptr) s.symbol = data.symbolName;
    s.correlation = data.correlationId;
    s.context_uid = data.contextUid;
    if (s.site == CUPTI_API_ENTER) {
      *data.correlationData = 0xabcd0000 + data.correlationId;
      if (cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx) {
        last_ex = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
      }
      if (cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) {
        last_launch = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
      }
    } else {
      s.result = *static_cast<const CUresult*>(data.functionReturnValue);
      s.correlation_data = *data.correlationData;
    }
  }
  seen.push_back(s);
  if (nest && s.site == CUPTI_API_ENTER && cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) {
    int version = 0;
    cuDriverGetVersion(&version);
  }
}

CUpti_SubscriberHandle subscribe() {
  CUpti_SubscriberHandle handle = nullptr;
  EXPECT_EQ(cuptiSubscribe(&handle, on_callback, &seen), CUPTI_SUCCESS);
  return handle;
}

void enable(CUpti_SubscriberHandle s, CUpti_CallbackId cbid) {
  EXPECT_EQ(cuptiEnableCallback(1, s, CUPTI_CB_DOMAIN_DRIVER_API, cbid), CUPTI_SUCCESS);
}

TEST(SimCupti, OneLaunchGivesEnterAndExit) {
  in_child({}, [] {
    const CUpti_SubscriberHandle s = subscribe();
    const CUcontext context = start();
    EXPECT_TRUE(seen.empty());
    enable(s, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    const CUfunction k = function(load({{kernel("_Z1kv")}}), "_Z1kv");
    EXPECT_EQ(launch(k, 7, 96, 128), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 0, 96), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_EQ(seen[0].cbid, 307u);
    EXPECT_EQ(seen[0].site, CUPTI_API_ENTER);
    EXPECT_EQ(seen[0].function, "cuLaunchKernel");
    EXPECT_EQ(seen[0].symbol, "_Z1kv");
    EXPECT_EQ(seen[1].site, CUPTI_API_EXIT);
    EXPECT_EQ(seen[1].correlation, seen[0].correlation);
    EXPECT_EQ(seen[1].correlation_data, 0xabcd0000 + seen[0].correlation);
    EXPECT_EQ(seen[1].result, CUDA_SUCCESS);
    EXPECT_EQ(seen[3].result, CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(seen[2].correlation, seen[0].correlation);
    std::uint32_t uid = 0;
    EXPECT_EQ(cuptiGetContextId(context, &uid), CUPTI_SUCCESS);
    EXPECT_EQ(seen[0].context_uid, uid);
    EXPECT_EQ(last_launch.f, k);
    EXPECT_EQ(last_launch.blockDimX, 96u);
  });
}

TEST(SimCupti, EveryFormHasTheIdOfTheRealOne) {
  in_child({}, [] {
    const CUpti_SubscriberHandle s = subscribe();
    start();
    ASSERT_EQ(cuptiEnableDomain(1, s, CUPTI_CB_DOMAIN_DRIVER_API), CUPTI_SUCCESS);
    const CUfunction k = function(load({{kernel("k")}}), "k");
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    const auto id_of = [&](auto&& call) -> CUpti_CallbackId {
      seen.clear();
      EXPECT_EQ(call(), CUDA_SUCCESS);
      EXPECT_FALSE(seen.empty());
      return seen.empty() ? 0 : seen.back().cbid;
    };
    const auto ptsz = [](const char* name) {
      void* found = nullptr;
      cuGetProcAddress(name, &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr);
      return found;
    };
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    EXPECT_EQ(id_of([&] { return launch(k, 1, 32); }), 307u);
    const auto kernel_ptsz = reinterpret_cast<decltype(&cuLaunchKernel)>(ptsz("cuLaunchKernel"));
    EXPECT_EQ(id_of([&] { return kernel_ptsz(k, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr); }), 442u);
    EXPECT_EQ(id_of([&] { return cuLaunchKernelEx(&config, k, nullptr, nullptr); }), 652u);
    EXPECT_EQ(last_ex.config, &config);
    EXPECT_EQ(last_ex.f, k);
    EXPECT_EQ(seen.front().symbol, "k");
    const auto ex_ptsz = reinterpret_cast<decltype(&cuLaunchKernelEx)>(ptsz("cuLaunchKernelEx"));
    EXPECT_EQ(id_of([&] { return ex_ptsz(&config, k, nullptr, nullptr); }), 653u);
    EXPECT_EQ(id_of([&] { return cuLaunchCooperativeKernel(k, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr); }), 477u);
    CUDA_LAUNCH_PARAMS multi{k, 1, 1, 1, 32, 1, 1, 0, stream, nullptr};
    EXPECT_EQ(id_of([&] { return cuLaunchCooperativeKernelMultiDevice(&multi, 1, 0); }), 480u);
    EXPECT_EQ(id_of([&] { return cuFuncSetBlockShape(k, 32, 1, 1); }), 83u);
    EXPECT_EQ(id_of([&] { return cuFuncSetSharedSize(k, 64); }), 84u);
    EXPECT_EQ(id_of([&] { return cuLaunch(k); }), 115u);
    EXPECT_EQ(id_of([&] { return cuLaunchGrid(k, 2, 2); }), 116u);
    EXPECT_EQ(id_of([&] { return cuLaunchGridAsync(k, 2, 2, stream); }), 117u);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(id_of([&] { return launch(k, 1, 32, 0, stream); }), 307u);  // captured launches call back too
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(id_of([&] { return cuGraphLaunch(exec, stream); }), 514u);
    EXPECT_EQ(seen.front().symbol, "");
    const auto graph_ptsz = reinterpret_cast<decltype(&cuGraphLaunch)>(ptsz("cuGraphLaunch"));
    EXPECT_EQ(id_of([&] { return graph_ptsz(exec, stream); }), 515u);
  });
}

TEST(SimCupti, CallsMadeInsideACallbackCallBackToo) {
  in_child({}, [] {
    const CUpti_SubscriberHandle s = subscribe();
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    enable(s, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    enable(s, CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
    nest = true;
    EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    std::vector<std::string> order;
    for (const Seen& x : seen) order.push_back(x.function);
    EXPECT_EQ(order, (std::vector<std::string>{"cuLaunchKernel", "cuDriverGetVersion", "cuDriverGetVersion",
                                               "cuLaunchKernel"}));
  });
}

TEST(SimCupti, ResourcesAnnounceThemselves) {
  in_child({}, [] {
    const CUpti_SubscriberHandle s = subscribe();
    ASSERT_EQ(cuptiEnableDomain(1, s, CUPTI_CB_DOMAIN_RESOURCE), CUPTI_SUCCESS);
    start();
    const CUmodule m = load({{kernel("k")}});
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(m), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    std::vector<CUpti_CallbackId> order;
    for (const Seen& x : seen) order.push_back(x.cbid);
    EXPECT_EQ(order,
              (std::vector<CUpti_CallbackId>{
                  CUPTI_CBID_RESOURCE_CU_INIT_FINISHED, CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
                  CUPTI_CBID_RESOURCE_MODULE_LOADED, CUPTI_CBID_RESOURCE_STREAM_CREATED,
                  CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
                  CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING}));
  });
}

TEST(SimCupti, TheSlotIsGivenOnce) {
  in_child({}, [] {
    CUpti_SubscriberParams first{};
    first.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    first.subscriberName = "first tool";
    CUpti_SubscriberHandle a = nullptr, b = nullptr;
    ASSERT_EQ(cuptiSubscribe_v2(&a, on_callback, &seen, &first), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiSubscribe(&b, on_callback, &seen), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    char holder[64] = "";
    CUpti_SubscriberParams second{};
    second.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    second.oldSubscriberName = holder;
    second.oldSubscriberSize = sizeof holder;
    EXPECT_EQ(cuptiSubscribe_v2(&b, on_callback, &seen, &second), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    EXPECT_STREQ(holder, "CUPTI for first tool");
    const auto bogus = reinterpret_cast<CUpti_SubscriberHandle>(0x10);
    EXPECT_EQ(cuptiUnsubscribe(bogus), CUPTI_ERROR_INVALID_PARAMETER);
    EXPECT_EQ(cuptiUnsubscribe(a), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiSubscribe(&b, on_callback, &seen), CUPTI_SUCCESS);
  });
}

TEST(SimCupti, UnsubscribedMeansSilent) {
  in_child({}, [] {
    const CUpti_SubscriberHandle s = subscribe();
    start();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    enable(s, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    std::uint32_t on = 0;
    EXPECT_EQ(cuptiGetCallbackState(&on, s, CUPTI_CB_DOMAIN_DRIVER_API, 307), CUPTI_SUCCESS);
    EXPECT_EQ(on, 1u);
    EXPECT_EQ(cuptiUnsubscribe(s), CUPTI_SUCCESS);
    EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    EXPECT_TRUE(seen.empty());
  });
}

TEST(SimCupti, RefusalsOnDemand) {
  in_child({{"GPUFLIGHT_SIM_SUBSCRIBER_TAKEN", "1"}}, [] {
    CUpti_SubscriberHandle s = nullptr;
    EXPECT_EQ(cuptiSubscribe(&s, on_callback, nullptr), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  });
  in_child({{"GPUFLIGHT_SIM_CUPTI_TOO_NEW", "1"}}, [] {
    CUpti_SubscriberHandle s = nullptr;
    EXPECT_EQ(cuptiSubscribe(&s, on_callback, nullptr), CUPTI_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_ERROR_NOT_INITIALIZED);
  });
  in_child({{"GPUFLIGHT_SIM_ACTIVITY_ERROR", "35"}}, [] {
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  });
}

TEST(SimCupti, NamesComeFromTheHeaders) {
  const char* name = nullptr;
  EXPECT_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 307, &name), CUPTI_SUCCESS);
  EXPECT_STREQ(name, "cuLaunchKernel");
  EXPECT_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 100000, &name), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cuptiGetResultString(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &name), CUPTI_SUCCESS);
  EXPECT_STREQ(name, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
}

// ---- activity ----

struct Record {
  std::uint64_t start, end;
  std::uint32_t device, context, stream, correlation, graph;
  std::uint64_t node;
  int grid;
  std::string name;
};

std::mutex records_mutex;
std::vector<Record> records;
std::set<std::thread::id> requesting_threads;
std::size_t buffer_bytes = 16 * 1024;

void on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  const std::lock_guard lock(records_mutex);
  requesting_threads.insert(std::this_thread::get_id());
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = buffer_bytes;
  *max_records = 0;
}

template <class Field>
Field at(const void* record, std::size_t offset) {
  Field field;
  std::memcpy(&field, static_cast<const char*>(record) + offset, sizeof field);
  return field;
}

// Reads by the offsets that are the same from Kernel4 to Kernel10.
void on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(records_mutex);
  CUpti_Activity* r = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS) {
    EXPECT_EQ(r->kind, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    records.push_back({at<std::uint64_t>(r, 16), at<std::uint64_t>(r, 24), at<std::uint32_t>(r, 40),
                       at<std::uint32_t>(r, 44), at<std::uint32_t>(r, 48), at<std::uint32_t>(r, 92),
                       at<std::uint32_t>(r, 156), at<std::uint64_t>(r, 144), at<int>(r, 52),
                       at<const char*>(r, 104)});
  }
  std::free(buffer);
}

void start_activity() {
  ASSERT_EQ(cuptiActivityRegisterCallbacks(on_request, on_complete), CUPTI_SUCCESS);
  ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
}

std::uint64_t wall_clock() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

// One launch, its record, under a faked version of CUPTI.
void check_record(const char* version, std::uint32_t number, std::size_t bytes) {
  in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", version}}, [=] {
    std::uint32_t reported = 0;
    EXPECT_EQ(cuptiGetVersion(&reported), CUPTI_SUCCESS);
    EXPECT_EQ(reported, number);
    const CUpti_SubscriberHandle s = subscribe();
    enable(s, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    start();
    start_activity();
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ModuleImage image{{kernel("_Z1kv")}};
    image.kernels[0].duration_ns = 2'000'000;
    const CUfunction k = function(load(image), "_Z1kv");
    const std::uint64_t before = wall_clock();
    EXPECT_EQ(launch(k, 5, 32, 0, stream), CUDA_SUCCESS);
    EXPECT_EQ(launch(k, 6, 32, 0, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
    ASSERT_EQ(records.size(), 2u);
    std::uint32_t stream_id = 0;
    EXPECT_EQ(cuptiGetStreamIdEx(nullptr, stream, 0, &stream_id), CUPTI_SUCCESS);
    EXPECT_EQ(records[0].name, "_Z1kv");
    EXPECT_EQ(records[0].stream, stream_id);
    EXPECT_EQ(records[0].correlation, seen[0].correlation);
    EXPECT_EQ(records[1].correlation, seen[2].correlation);
    EXPECT_EQ(records[1].grid, 6);
    EXPECT_EQ(records[0].end - records[0].start, 2'000'000u);
    EXPECT_GE(records[1].start, records[0].end);
    EXPECT_GE(records[0].start, before);
    EXPECT_LE(records[1].end, wall_clock());
    // How far apart two records lie is the size of the version's struct.
    std::vector<std::uint8_t> two(2 * bytes);
    constexpr CUpti_ActivityKind kKind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    for (std::size_t i = 0; i < 2; ++i) std::memcpy(two.data() + i * bytes, &kKind, sizeof kKind);
    CUpti_Activity* r = nullptr;
    EXPECT_EQ(cuptiActivityGetNextRecord(two.data(), two.size(), &r), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityGetNextRecord(two.data(), two.size(), &r), CUPTI_SUCCESS);
    EXPECT_EQ(reinterpret_cast<std::uint8_t*>(r), two.data() + bytes);
    EXPECT_EQ(cuptiActivityGetNextRecord(two.data(), two.size(), &r), CUPTI_ERROR_MAX_LIMIT_REACHED);
  });
}

TEST(SimActivity, RecordsFollowTheFakedVersion) {
  check_record("12.0", 18, sizeof(CUpti_ActivityKernel9));
  check_record("12.9", 28, sizeof(CUpti_ActivityKernel9));
  check_record("130001", 130001, sizeof(CUpti_ActivityKernel10));
  check_record("13.1", 130100, 224);
  check_record("13.5", 130500, 248);
}

TEST(SimActivity, GraphTraceComesTooLateAfterAGraph) {
  in_child({}, [] {
    start();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(on_request, on_complete), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_NAME), CUPTI_ERROR_INVALID_KIND);
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  });
}

TEST(SimActivity, AGraphLaunchGivesItsNodesWithOneCorrelation) {
  in_child({}, [] {
    const CUpti_SubscriberHandle s = subscribe();
    start();
    start_activity();
    enable(s, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
    const CUmodule m = load({{kernel("a"), kernel("b")}});
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(launch(function(m, "a"), 1, 32, 0, stream), CUDA_SUCCESS);
    EXPECT_EQ(launch(function(m, "b"), 2, 32, 0, stream), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
    ASSERT_EQ(records.size(), 4u);
    std::uint32_t graph_id = 0;
    EXPECT_EQ(cuptiGetGraphExecId(exec, &graph_id), CUPTI_SUCCESS);
    for (const Record& r : records) EXPECT_EQ(r.graph, graph_id);
    EXPECT_EQ(records[0].correlation, records[1].correlation);
    EXPECT_EQ(records[0].correlation, seen[0].correlation);
    EXPECT_NE(records[0].node, records[1].node);
    EXPECT_EQ(records[0].node, records[2].node);
    EXPECT_NE(records[0].correlation, records[2].correlation);
    EXPECT_EQ(records[1].name, "b");
  });
}

TEST(SimActivity, OnlyAForcedFlushDeliversWhatStillRuns) {
  in_child({}, [] {
    start();
    start_activity();
    ModuleImage image{{kernel("short"), kernel("hung")}};
    image.kernels[1].duration_ns = kForeverNs;
    const CUmodule m = load(image);
    EXPECT_EQ(launch(function(m, "short"), 1, 32, 0, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    EXPECT_EQ(launch(function(m, "hung"), 1, 32, 0, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
    EXPECT_TRUE(records.empty());  // the finished neighbour waits with it, as measured
    EXPECT_EQ(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), CUPTI_SUCCESS);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_NE(records[0].end, 0u);
    EXPECT_NE(records[1].start, 0u);
    EXPECT_EQ(records[1].end, 0u);
  });
}

TEST(SimActivity, RecordsOfADeadContextHaveNoTimes) {
  in_child({}, [] {
    start();
    start_activity();
    ModuleImage image{{kernel("bad")}};
    image.kernels[0].fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_EQ(launch(function(load(image), "bad"), 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), CUPTI_SUCCESS);
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].start, 0u);
    EXPECT_EQ(records[0].end, 0u);
  });
}

// Launches `count` kernels on each of several threads; every one must be delivered or counted as dropped.
std::size_t play_threads(int threads, int count) {
  const CUcontext context = start();
  start_activity();
  const CUfunction k = function(load({{kernel("k")}}), "k");
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([=] {
      cuCtxSetCurrent(context);
      for (int i = 0; i < count; ++i) EXPECT_EQ(launch(k, 1, 32, 0, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    });
  }
  for (std::thread& t : all) t.join();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), CUPTI_SUCCESS);
  std::size_t dropped = 0;
  EXPECT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the worker may be delivering
  return dropped;
}

TEST(SimActivity, EveryRecordOfManyThreadsArrivesOnce) {
  in_child({}, [] {
    EXPECT_EQ(play_threads(8, 1000), 0u);
    const std::lock_guard lock(records_mutex);
    std::set<std::uint32_t> correlations;
    for (const Record& r : records) correlations.insert(r.correlation);
    EXPECT_EQ(records.size(), 8000u);
    EXPECT_EQ(correlations.size(), 8000u);
  });
}

TEST(SimActivity, DropsAreCounted) {
  in_child({{"GPUFLIGHT_SIM_DROP_EVERY", "10"}}, [] {
    EXPECT_EQ(play_threads(4, 500), 200u);
    const std::lock_guard lock(records_mutex);
    EXPECT_EQ(records.size(), 1800u);
  });
}

TEST(SimActivity, BuffersAreAskedForOnLaunchingThreadsOnDemand) {
  in_child({{"GPUFLIGHT_SIM_BUFFERS_ON_APP_THREADS", "1"}}, [] {
    EXPECT_EQ(play_threads(4, 300), 0u);
    const std::lock_guard lock(records_mutex);
    EXPECT_EQ(requesting_threads.size(), 4u);
    EXPECT_EQ(records.size(), 1200u);
  });
}

TEST(SimActivity, LateBuffersComeLate) {
  in_child({{"GPUFLIGHT_SIM_BUFFERS_LATE_MS", "200"}}, [] {
    buffer_bytes = 1024;
    start();
    start_activity();
    const CUfunction k = function(load({{kernel("k")}}), "k");
    for (int i = 0; i < 100; ++i) EXPECT_EQ(launch(k, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
    {
      const std::lock_guard lock(records_mutex);
      EXPECT_TRUE(records.empty());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const std::lock_guard lock(records_mutex);
    EXPECT_GE(records.size(), 90u);
  });
}

TEST(SimActivity, AttributesAreKept) {
  in_child({}, [] {
    std::size_t value = 0, bytes = sizeof value;
    EXPECT_EQ(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &bytes, &value), CUPTI_SUCCESS);
    EXPECT_EQ(value, 250u);
    value = 7;
    EXPECT_EQ(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &bytes, &value), CUPTI_SUCCESS);
    value = 0;
    EXPECT_EQ(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &bytes, &value), CUPTI_SUCCESS);
    EXPECT_EQ(value, 7u);
  });
}

}  // namespace
}  // namespace gpuflight::sim::test
