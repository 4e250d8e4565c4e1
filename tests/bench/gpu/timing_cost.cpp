// What GPU times cost the host, one way of asking for them a process: run in turns by the check `timing_cost`.
//
//   timing_cost --mode bare|callback|activity|both [--cupti libcupti.so] [--batches N] [--whole N] [--replays N]
//               [--no-graph-callback] [--own-clock] [--flush-ms N] [--buffer-kb N] [--copies] [--peer-copies] [--simulated]
//
// The middle ones vary what `callback` and `activity` do, to find what a recorder's way of using CUPTI costs: no callback
// for cuGraphLaunch, a timestamp callback, a thread that flushes, another size of buffer, records of copies and fills.
// `callback`: a subscriber with an empty launch callback. `activity`: CUPTI's CONCURRENT_KERNEL with buffers that are
// handed back and forth unread, the least that such a client can do. A recorder is measured by preloading it into
// `bare`: one process cannot hold two clients of CUPTI's activity. Result: one JSON line, ns.
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>

#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 500;
constexpr long kNodes = 100;
constexpr int kReplayBatch = 5;

void cupti_must(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  std::fprintf(stderr, "timing_cost: %s gave CUPTI error %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

template <class Function>
Function* symbol(void* library, const char* name) {
  void* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "timing_cost: no %s: %s\n", name, dlerror());
    std::_Exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

class EmptyCallback {
 public:
  static void start(void* cupti, bool of_graphs) {
    CUpti_SubscriberHandle subscriber = nullptr;
    auto* const subscribe = symbol<decltype(cuptiSubscribe)>(cupti, "cuptiSubscribe");
    cupti_must(subscribe(&subscriber, &on_call, nullptr), "cuptiSubscribe");
    auto* const enable = symbol<decltype(cuptiEnableCallback)>(cupti, "cuptiEnableCallback");
    for (const CUpti_CallbackId id :
         {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
          CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz}) {
      const bool graph = id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch || id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz;
      if (graph && !of_graphs) continue;
      cupti_must(enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "cuptiEnableCallback");
    }
  }
  static inline unsigned long calls = 0;  // all come on the one thread that launches

 private:
  static void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) { ++calls; }
};

class Activity {
 public:
  struct Ways {
    bool own_clock = false, copies = false, peer_copies = false;
    long flush_ms = 0, buffer_kb = 128;
  };
  static void start(void* cupti, const Ways& ways) {
    buffer_bytes_ = static_cast<std::size_t>(ways.buffer_kb) << 10;
    if (ways.own_clock) {
      auto* const set_clock = symbol<decltype(cuptiActivityRegisterTimestampCallback)>(
          cupti, "cuptiActivityRegisterTimestampCallback");
      cupti_must(set_clock(&on_timestamp), "cuptiActivityRegisterTimestampCallback");
    }
    auto* const set_buffers = symbol<decltype(cuptiActivityRegisterCallbacks)>(cupti, "cuptiActivityRegisterCallbacks");
    auto* const enable = symbol<decltype(cuptiActivityEnable)>(cupti, "cuptiActivityEnable");
    cupti_must(set_buffers(&on_request, &on_complete), "cuptiActivityRegisterCallbacks");
    cupti_must(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
    if (ways.copies) {
      cupti_must(enable(CUPTI_ACTIVITY_KIND_MEMCPY), "cuptiActivityEnable");
      cupti_must(enable(CUPTI_ACTIVITY_KIND_MEMSET), "cuptiActivityEnable");
    }
    if (ways.peer_copies) cupti_must(enable(CUPTI_ACTIVITY_KIND_MEMCPY2), "cuptiActivityEnable");
    flush_ = symbol<decltype(cuptiActivityFlushAll)>(cupti, "cuptiActivityFlushAll");
    if (ways.flush_ms <= 0) return;
    std::thread([ms = ways.flush_ms] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
        flush_(0);
      }
    }).detach();
  }
  static std::size_t bytes_seen() {
    if (flush_ != nullptr) cupti_must(flush_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    return bytes_;
  }

 private:
  static uint64_t CUPTIAPI on_timestamp() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  }
  static void CUPTIAPI on_request(uint8_t** buffer, size_t* size, size_t* max_records) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) free_.push_back(static_cast<uint8_t*>(std::aligned_alloc(64, buffer_bytes_)));
    *buffer = free_.back();
    free_.pop_back();
    *size = buffer_bytes_;
    *max_records = 0;
  }
  static void CUPTIAPI on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
    bytes_ += valid;
  }

  static inline std::mutex mutex_;
  static inline std::vector<uint8_t*> free_;
  static inline std::atomic<std::size_t> bytes_{0};
  static inline std::size_t buffer_bytes_ = 128 << 10;
  static inline decltype(cuptiActivityFlushAll)* flush_ = nullptr;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// ns of one call: median over batches; the synchronise after each is not timed, and the first ones warm up.
template <class Call>
double call_ns(CUstream stream, long batches, int batch, Call&& call) {
  constexpr long kWarmUp = 4;
  std::vector<double> each;
  for (long b = -kWarmUp; b < batches; ++b) {
    const auto begin = Clock::now();
    for (int i = 0; i < batch; ++i) call();
    const double took = ns_since(begin);
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (b >= 0) each.push_back(took / batch);
  }
  return median(std::move(each));
}

// ns of one from first call to the end of the last on the GPU, back to back.
template <class Call>
double whole_ns(CUstream stream, long count, Call&& call) {
  const auto begin = Clock::now();
  for (long i = 0; i < count; ++i) call();
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
  return ns_since(begin) / static_cast<double>(std::max(1L, count));
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode, cupti_path;
  bool graph_callback = true;
  Activity::Ways ways;
  std::vector<char*> numbers = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (i + 1 < argc && option == "--mode") mode = argv[++i];
    else if (i + 1 < argc && option == "--cupti") cupti_path = argv[++i];
    else if (option == "--no-graph-callback") graph_callback = false;
    else if (option == "--own-clock") ways.own_clock = true;
    else if (option == "--copies") ways.copies = true;
    else if (option == "--peer-copies") ways.peer_copies = true;
    else numbers.push_back(argv[i]);
  }
  const Arguments arguments(static_cast<int>(numbers.size()), numbers.data(),
                            {{"batches", 100}, {"whole", 100'000}, {"replays", 500}, {"flush-ms", 0}, {"buffer-kb", 128}});
  ways.flush_ms = arguments["flush-ms"];
  ways.buffer_kb = arguments["buffer-kb"];
  const bool callback = mode == "callback" || mode == "both", activity = mode == "activity" || mode == "both";
  if (!callback && !activity && mode != "bare") {
    std::fprintf(stderr, "timing_cost: --mode bare|callback|activity|both\n");
    return 2;
  }
  must(cuInit(0), "cuInit");
  if (mode != "bare") {
    // Before the context, as at injection: kinds that are enabled later cost more.
    void* const cupti = dlopen(cupti_path.c_str(), RTLD_NOW);
    if (callback) EmptyCallback::start(cupti, graph_callback);
    if (activity) Activity::start(cupti, ways);
  }
  const Device device;
  const Module module({{"timing_empty"}, {"timing_node"}}, arguments.simulated);
  const CUfunction kernel = module.function("timing_empty");
  const CUgraphExec graph = chain_of(module.function("timing_node"), kNodes);
  const CUstream stream = new_stream();
  const auto launch_one = [&] { launch(kernel, stream); };
  const auto replay_one = [&] { must(cuGraphLaunch(graph, stream), "cuGraphLaunch"); };
  const double launch_ns = call_ns(stream, arguments["batches"], kBatch, launch_one);
  const double all_ns = whole_ns(stream, arguments["whole"], launch_one);
  const double replay_call_ns = call_ns(stream, arguments["replays"] / kReplayBatch, kReplayBatch, replay_one);
  const double replay_ns = whole_ns(stream, arguments["replays"], replay_one);
  std::printf("{\"mode\":\"%s\",\"launch_ns\":%.1f,\"whole_ns\":%.1f,\"replay_call_ns\":%.1f,\"replay_ns\":%.1f,"
              "\"callbacks\":%lu,\"activity_bytes\":%zu}\n",
              mode.c_str(), launch_ns, all_ns, replay_call_ns, replay_ns, EmptyCallback::calls, Activity::bytes_seen());
  return 0;
}
