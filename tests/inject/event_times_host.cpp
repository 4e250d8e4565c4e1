// Hosts for event_times_test.py: each does one thing to its launches, and says which calls of events the driver has had,
// whoever made them: {"create":0,"record":0,"query":0,"elapsed":0,"destroy":0}.
//
//   event_times_host plain N        N launches of 20 us
//   event_times_host capture N      N launches while a capture in the strictest mode runs on another thread
//   event_times_host unjoined N     N launches after a capture that could not be ended in order
//   event_times_host waits N        N times a launch into a stream, a wait for it, and 1 ms; says {"marks":0,"slow":0} only
//   event_times_host context        contexts that are destroyed while launches of theirs are in flight
//   event_times_host reset          the primary context likewise
//   event_times_host unfinished     ends while its kernels run
//   event_times_host state N        N launches; errno, the current context and the capture mode are as they were
#include <cuda.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "sim/sim_hooks.h"
#include "sim_program.h"

using gpuflight::test::call;
using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

namespace {

struct Counted {
  const char* name;
  std::array<CUpti_CallbackId, 2> calls;
  std::atomic<int> times{0};
};
Counted g_counted[] = {
    {"create", {CUPTI_DRIVER_TRACE_CBID_cuEventCreate, CUPTI_DRIVER_TRACE_CBID_cuEventCreate}},
    {"record", {CUPTI_DRIVER_TRACE_CBID_cuEventRecord, CUPTI_DRIVER_TRACE_CBID_cuEventRecord_ptsz}},
    {"query", {CUPTI_DRIVER_TRACE_CBID_cuEventQuery, CUPTI_DRIVER_TRACE_CBID_cuEventQuery}},
    {"elapsed", {CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime, CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime}},
    {"destroy", {CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2, CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2}},
};

void CUPTIAPI count(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  if (static_cast<const CUpti_CallbackData*>(data)->callbackSite != CUPTI_API_ENTER) return;
  for (Counted& one : g_counted) {
    if (one.calls[0] == id || one.calls[1] == id) one.times.fetch_add(1);
  }
}

void watch_driver() {
  auto& hooks = *Cuda::symbol<gpuflight::sim::SimHooks*()>("gpuflight_sim_hooks")();
  hooks.callback.store(&count);
  for (const Counted& one : g_counted) {
    for (const CUpti_CallbackId id : one.calls) hooks.driver_enabled[id].store(1);
  }
}

void say_calls() {
  const char* separator = "{";
  for (const Counted& one : g_counted) {
    std::printf("%s\"%s\":%d", separator, one.name, one.times.load());
    separator = ",";
  }
  std::puts("}");
}

void synchronize() { Cuda::check(call("cuCtxSynchronize"), "cuCtxSynchronize"); }

void plain(int launches) {
  const Cuda cuda({kernel_named("k", 16, 20'000)});
  watch_driver();
  const CUstream stream = cuda.stream();
  for (int i = 0; i < launches; ++i) Cuda::check(cuda.launch(1, 0, 64, stream), "launch");
  synchronize();
  usleep(150'000);  // the recorder reads them back
}

void waits(int times) {
  const Cuda cuda({kernel_named("k", 16, 1000)});
  const CUstream stream = cuda.stream();
  static std::atomic<int> marks{0};
  auto& hooks = *Cuda::symbol<gpuflight::sim::SimHooks*()>("gpuflight_sim_hooks")();
  hooks.callback.store([](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
    marks += static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_ENTER ? 1 : 0;
  });
  hooks.driver_enabled[CUPTI_DRIVER_TRACE_CBID_cuStreamWriteValue32_v2].store(1);
  int slow = 0;  // from before a wait to the next one
  for (auto last = std::chrono::steady_clock::now(); times > 0; --times) {
    Cuda::check(cuda.launch(1, 0, 64, stream), "launch");
    Cuda::check(call("cuStreamSynchronize", stream), "wait");
    usleep(1000);
    const auto now = std::chrono::steady_clock::now();
    if (now - std::exchange(last, now) > std::chrono::milliseconds(4)) ++slow;  // two in a row make up 10 ms
  }
  std::printf("{\"marks\":%d,\"slow\":%d}\n", marks.load(), slow);
}

// The simulated driver loses a capture to any query of an event, or making of one, that is not in the relaxed mode.
void capture(int launches) {
  const Cuda cuda({kernel_named("k", 16, 20'000), kernel_named("captured")});
  watch_driver();
  const CUstream captured = cuda.stream(), stream = cuda.stream();
  const auto launch = [&](int count) {
    for (int i = 0; i < count; ++i) Cuda::check(cuda.launch(1, 0, 64, stream), "launch beside the capture");
  };
  launch(launches);  // in flight while the capture runs
  Cuda::check(call("cuStreamBeginCapture_v2", captured, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin");
  std::thread other([&] {
    cuda.use();
    launch(launches);
  });
  for (int i = 0; i < 5; ++i) Cuda::check(cuda.launch(1, 1, 64, captured), "captured launch");
  other.join();
  usleep(150'000);  // the recorder asks for those of before
  CUgraph graph = nullptr;
  Cuda::check(call("cuStreamEndCapture", captured, &graph), "end of the capture");
  std::size_t nodes = 0;
  Cuda::check(call("cuGraphGetNodes", graph, static_cast<CUgraphNode*>(nullptr), &nodes), "nodes");
  if (nodes != 5) fail("the graph has " + std::to_string(nodes) + " nodes");
  launch(launches);
  synchronize();
  usleep(150'000);
}

void unjoined(int launches) {
  const Cuda cuda({kernel_named("k", 16, 20'000)});
  const CUstream origin = cuda.stream(), forked = cuda.stream(), stream = cuda.stream();
  CUevent fork = nullptr;
  Cuda::check(call("cuEventCreate", &fork, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING)), "event");
  Cuda::check(call("cuStreamBeginCapture_v2", origin, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
  Cuda::check(call("cuEventRecord", fork, origin), "fork");
  Cuda::check(call("cuStreamWaitEvent", forked, fork, 0u), "fork");
  Cuda::check(cuda.launch(1, 0, 64, forked), "captured launch");
  CUgraph graph = nullptr;
  const int code = call("cuStreamEndCapture", origin, &graph);
  if (code != CUDA_ERROR_STREAM_CAPTURE_UNJOINED) fail("the capture's end: " + std::to_string(code));
  for (int i = 0; i < launches; ++i) Cuda::check(cuda.launch(1, 0, 64, stream), "launch");
  synchronize();
  usleep(150'000);
}

CUfunction function_in_current() {
  gpuflight::sim::ModuleImage image;
  image.kernels = {kernel_named("k", 16, 20'000'000)};
  const std::string text = gpuflight::sim::write_image(image);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Cuda::check(call("cuModuleLoadData", &module, static_cast<const void*>(text.data())), "cuModuleLoadData");
  Cuda::check(call("cuModuleGetFunction", &function, module, "k"), "cuModuleGetFunction");
  return function;
}

void launch_some(CUfunction function, int count) {
  void* parameters[] = {nullptr};
  for (int i = 0; i < count; ++i) {
    Cuda::check(Cuda::symbol<decltype(::cuLaunchKernel)>("cuLaunchKernel")(function, 1, 1, 1, 64, 1, 1, 0, nullptr,
                                                                            parameters, nullptr),
                "launch");
  }
}

void contexts() {
  const Cuda cuda({kernel_named("first")});
  for (int round = 0; round < 80; ++round) {  // more than there are pools
    CUcontext context = nullptr;
    Cuda::check(call("cuCtxCreate_v2", &context, 0u, CUdevice{0}), "cuCtxCreate");
    launch_some(function_in_current(), 20);
    if (round % 16 == 0) usleep(60'000);  // some are asked for before
    Cuda::check(call("cuCtxDestroy_v2", context), "cuCtxDestroy");
  }
  cuda.use();
  cuda.launch_times(40, 1);
  synchronize();
}

void reset() {
  for (int round = 0; round < 20; ++round) {
    const Cuda cuda({kernel_named("k", 16, 20'000'000)});
    cuda.launch_times(20, 1);
    if (round % 5 == 0) usleep(60'000);
    Cuda::check(call("cuDevicePrimaryCtxReset_v2", CUdevice{0}), "reset");
  }
}

void unfinished() {
  const Cuda cuda({kernel_named("k", 16, gpuflight::sim::kForeverNs)});
  cuda.launch_times(50, 1);
}

void state(int launches) {
  const Cuda cuda({kernel_named("k", 16, 1'000)});
  CUcontext mine = nullptr;
  Cuda::check(call("cuCtxGetCurrent", &mine), "current");
  const CUstream stream = cuda.stream();
  for (int i = 0; i < launches; ++i) {
    errno = 4711;
    Cuda::check(cuda.launch(1, 0, 64, stream), "launch");
    if (errno != 4711) fail("errno is another one");
    CUcontext now = nullptr;
    Cuda::check(call("cuCtxGetCurrent", &now), "current");
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    Cuda::check(call("cuThreadExchangeStreamCaptureMode", &mode), "mode");
    if (now != mine) fail("another context is current");
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL) fail("another capture mode");
  }
  synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string what = argv[1];
  const int count = argc > 2 ? std::atoi(argv[2]) : 0;
  if (what == "plain") plain(count);
  if (what == "capture") capture(count);
  if (what == "unjoined") unjoined(count);
  if (what == "waits") return waits(count), 0;
  if (what == "context") contexts();
  if (what == "reset") reset();
  if (what == "unfinished") unfinished();
  if (what == "state") state(count);
  say_calls();
  return 0;
}
