// Host programs that are linked to libgpuflight and use its C++ API. api_test.py says what must be seen.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "gpuflight/gpuflight.hpp"
#include "sim/sim_hooks.h"
#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;
using gpuflight::sim::SimHooks;

namespace {

void say(const char* what, gpuflight::Status status) { std::printf("%s=%d\n", what, static_cast<int>(status)); }

gpuflight::Options options_for(const char* log) {
  gpuflight::Options options;
  if (log != nullptr) options.logPath = log;
  return options.set("flush_ms", "10ms");
}

// Scopes, marks, flush, pause, resume, shutdown: one of each, in a program's usual order.
int tour(const char* log) {
  say("init", gpuflight::init(options_for(log)));
  say("init_again", gpuflight::init());
  const Cuda cuda({kernel_named("toured")});
  const gpuflight::Scope step("step");
  cuda.launch_times(2, 1);
  {
    const gpuflight::Scope forward(std::string("forward"));
    cuda.launch_times(3, 2);
    gpuflight::mark("half way");
    std::thread([&] {  // scopes are a thread's own
      cuda.use();
      cuda.launch_times(1, 3);
      const gpuflight::Scope other("other \"thread\"");
      cuda.launch_times(1, 4);
    }).join();
  }
  cuda.launch_times(1, 5);
  say("flush", gpuflight::flush(std::chrono::seconds(20)));
  std::printf("log=%s\n", gpuflight::logPath().c_str());
  // What flush promises: the lines are in the file now.
  int lines = 0;
  if (std::FILE* const file = std::fopen(gpuflight::logPath().c_str(), "r")) {
    static char line[1 << 16];
    while (std::fgets(line, sizeof line, file) != nullptr) lines += std::strstr(line, "\"kernel_event\"") != nullptr;
    std::fclose(file);
  }
  std::printf("lines_after_flush=%d\n", lines);
  const gpuflight_stats stats = gpuflight::stats();
  std::printf("stats=%llu,%llu,%llu,%llu\n", static_cast<unsigned long long>(stats.seen),
              static_cast<unsigned long long>(stats.written), static_cast<unsigned long long>(stats.kernels),
              static_cast<unsigned long long>(stats.configs));
  say("pause", gpuflight::pause());
  cuda.launch_times(7, 70);
  say("resume", gpuflight::resume());
  cuda.launch_times(1, 6);
  say("pause_release", gpuflight::pause(true));
  cuda.launch_times(7, 71);
  say("resume_again", gpuflight::resume());
  cuda.launch_times(1, 7);
  say("shutdown", gpuflight::shutdown(std::chrono::seconds(20)));
  cuda.launch_times(7, 72);
  say("flush_after", gpuflight::flush());
  say("shutdown_again", gpuflight::shutdown());
  gpuflight::mark("after the end");
  return 0;
}

// Linked, and perhaps preloaded too: no init at all, one recorder if any.
int plain() {
  const Cuda cuda({kernel_named("plain")});
  const gpuflight::Scope scope("only");
  cuda.launch_times(25, 1);
  say("init", gpuflight::init());
  cuda.launch_times(5, 2);
  return 0;
}

// Without a driver every call says so, or does nothing.
int no_driver() {
  say("init", gpuflight::init());
  const gpuflight::Scope scope("nothing");
  gpuflight::mark("nothing");
  say("flush", gpuflight::flush());
  say("pause", gpuflight::pause());
  say("resume", gpuflight::resume());
  say("shutdown", gpuflight::shutdown());
  std::printf("log=\"%s\" %s\n", gpuflight::logPath().c_str(), gpuflight::toString(GPUFLIGHT_ERROR_NO_DRIVER));
  return 0;
}

int init_only(const char* log) {
  say("init", gpuflight::init(options_for(log)));
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(5, 1);
  return 0;
}

// --- which driver calls the recorder makes, counted where the driver tells its subscriber of every call ---

CUpti_CallbackFunc g_subscriber = nullptr;
std::atomic<int> g_questions{0};

void CUPTIAPI count_questions(void* userdata, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const bool question = id == CUPTI_DRIVER_TRACE_CBID_cuOccupancyMaxActiveBlocksPerMultiprocessor ||
                        id == CUPTI_DRIVER_TRACE_CBID_cuOccupancyMaxActiveClusters ||
                        id == CUPTI_DRIVER_TRACE_CBID_cuFuncGetAttribute ||
                        id == CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && question) {
    g_questions.fetch_add(static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_ENTER);
  }
  g_subscriber(userdata, domain, id, data);
}

int details(const char* log, bool on) {
  gpuflight::Options options = options_for(log);
  options.enableKernelDetails = on;
  say("init", gpuflight::init(options));
  const Cuda cuda({kernel_named("a"), kernel_named("b", 40)});
  SimHooks& hooks = *Cuda::symbol<SimHooks*()>("gpuflight_sim_hooks")();
  g_subscriber = hooks.callback.load();
  for (const auto id : {CUPTI_DRIVER_TRACE_CBID_cuOccupancyMaxActiveBlocksPerMultiprocessor,
                        CUPTI_DRIVER_TRACE_CBID_cuOccupancyMaxActiveClusters,
                        CUPTI_DRIVER_TRACE_CBID_cuFuncGetAttribute}) {
    hooks.driver_enabled[id].store(1);
  }
  hooks.callback.store(&count_questions);
  for (unsigned i = 0; i < 40; ++i) Cuda::check(cuda.launch(i + 1, i % 2, 32 + 32 * (i % 5)), "launch");
  const int first = g_questions.load();
  for (unsigned i = 0; i < 40; ++i) Cuda::check(cuda.launch(i + 1, i % 2, 32 + 32 * (i % 5)), "launch");
  std::printf("questions=%d,%d\n", first, g_questions.load() - first);
  return 0;
}

// A capture begins while the slot is given up: it is known by asking, once a stream and again where one may have joined.
int blind(const char* log) {
  say("init", gpuflight::init(options_for(log)));
  const Cuda cuda({kernel_named("k")});
  const auto begin = Cuda::symbol<decltype(::cuStreamBeginCapture)>("cuStreamBeginCapture_v2");
  const auto end = Cuda::symbol<decltype(::cuStreamEndCapture)>("cuStreamEndCapture");
  const auto record = Cuda::symbol<decltype(::cuEventRecord)>("cuEventRecord");
  const auto wait = Cuda::symbol<decltype(::cuStreamWaitEvent)>("cuStreamWaitEvent");
  CUevent fork = nullptr, join = nullptr;
  for (CUevent* event : {&fork, &join}) {
    Cuda::check(Cuda::symbol<decltype(::cuEventCreate)>("cuEventCreate")(event, CU_EVENT_DISABLE_TIMING), "event");
  }
  const CUstream captured = cuda.stream(), joining = cuda.stream();
  const auto launch = [&](unsigned grid, CUstream stream, int times = 1) {
    for (int i = 0; i < times; ++i) Cuda::check(cuda.launch(grid, 0, 64, stream), "launch");
  };
  launch(1, captured);
  say("pause", gpuflight::pause(true));
  Cuda::check(begin(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin");
  say("resume", gpuflight::resume());
  SimHooks& hooks = *Cuda::symbol<SimHooks*()>("gpuflight_sim_hooks")();
  g_subscriber = hooks.callback.load();
  hooks.driver_enabled[CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing].store(1);
  hooks.callback.store(&count_questions);
  launch(2, captured);
  g_questions = 0;
  launch(3, joining, 300);
  std::printf("questions=%d\n", g_questions.load());
  Cuda::check(record(fork, captured), "record");
  Cuda::check(wait(joining, fork, 0), "wait");
  launch(4, joining);
  Cuda::check(record(join, joining), "record");
  Cuda::check(wait(captured, join, 0), "wait");
  CUgraph graph = nullptr;
  Cuda::check(end(captured, &graph), "end");
  launch(5, captured);
  launch(6, joining);
  say("shutdown", gpuflight::shutdown(std::chrono::seconds(20)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const char* const log = argc > 2 ? argv[2] : nullptr;
  if (verb == "tour") return tour(log);
  if (verb == "plain") return plain();
  if (verb == "no_driver") return no_driver();
  if (verb == "init_only") return init_only(log);
  if (verb == "blind") return blind(log);
  if (verb == "details_on") return details(log, true);
  if (verb == "details_off") return details(log, false);
  std::fprintf(stderr, "usage: api_host VERB [LOG]\n");
  return 2;
}
