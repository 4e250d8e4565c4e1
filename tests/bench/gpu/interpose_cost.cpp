// What a launch and the replay of a graph cost the host where launches are seen by the driver's entry points: the driver's
// own function, the hook while nothing is recorded, and the hook while recording; in one process, in alternating rounds.
//
//   interpose_cost [--threads N] [--rounds N] [--launches N] [--replays N] [--null-stream 0|1] [--simulated]
//
// Both libraries are preloaded by who starts it. Without them only the bare way is measured. Launches: the call alone,
// 500 between two synchronises that are not timed; replays of a graph of 100: the call alone, and until the last has
// ended on the GPU. Result: one JSON line, ns.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>

#include "driver_host.h"
#include "gpuflight/gpuflight.h"
#include "hooks/hook_table.h"

namespace {

using namespace gpuflight::gpu_tests;
using Clock = std::chrono::steady_clock;

constexpr long kBatch = 500, kNodes = 100, kReplayBatch = 10;

enum Way { kBare, kIdle, kRecorded, kWays };
constexpr const char* kNames[] = {"bare", "idle", "recorded"};

struct Entries {
  decltype(&::cuLaunchKernel) launch;
  decltype(&::cuGraphLaunch) replay;
};

double since(Clock::time_point begin) { return std::chrono::duration<double, std::nano>(Clock::now() - begin).count(); }

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// The driver's own functions: behind the hooks, where there are hooks.
Entries drivers_own() {
  Entries entries{&::cuLaunchKernel, &::cuGraphLaunch};
  using Find = gpuflight::hooks::HookTable* (*)();
  const auto find = reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "gpuflight_hooks"));
  if (find == nullptr) return entries;
  const gpuflight::hooks::HookTable* const table = find();
  for (std::uint32_t i = 0; i < table->rows; ++i) {
    void* const real = table->row[i].real;
    if (std::strcmp(table->row[i].name, "cuLaunchKernel") == 0) std::memcpy(&entries.launch, &real, sizeof real);
    if (std::strcmp(table->row[i].name, "cuGraphLaunch") == 0) std::memcpy(&entries.replay, &real, sizeof real);
  }
  return entries;
}

class Recorder {
 public:
  Recorder()
      : pause_(symbol<decltype(&gpuflight_pause)>("gpuflight_pause")),
        resume_(symbol<decltype(&gpuflight_resume)>("gpuflight_resume")),
        flush_(symbol<decltype(&gpuflight_flush)>("gpuflight_flush")),
        stats_(symbol<decltype(&gpuflight_get_stats)>("gpuflight_get_stats")) {}
  bool there() const { return pause_ != nullptr && flush_(5000) == GPUFLIGHT_OK && stats().seen > 0; }
  void record(bool on) const {
    if (!on) flush_(5000);  // the writer is not to run beside the next round
    const gpuflight_status status = on ? resume_() : pause_(0);
    if (status != GPUFLIGHT_OK) {
      std::fprintf(stderr, "interpose_cost: %s gave %d\n", on ? "resume" : "pause", status);
      std::_Exit(1);
    }
  }
  gpuflight_stats stats() const {
    gpuflight_stats stats{};
    stats.size = sizeof stats;
    stats_(&stats);
    return stats;
  }

 private:
  template <class Function>
  static Function symbol(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
  decltype(&gpuflight_pause) pause_;
  decltype(&gpuflight_resume) resume_;
  decltype(&gpuflight_flush) flush_;
  decltype(&gpuflight_get_stats) stats_;
};

class Launchers {
 public:
  Launchers(const Device& device, CUfunction kernel, const Arguments& arguments)
      : device_(device),
        kernel_(kernel),
        launches_(arguments["launches"]),
        null_stream_(arguments["null-stream"] != 0),
        barrier_(arguments["threads"] + 1),
        took_(static_cast<std::size_t>(arguments["threads"])) {
    for (std::size_t i = 0; i < took_.size(); ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Launchers() {
    launch_ = nullptr;
    barrier_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  // ns a launch: median over all batches of all threads.
  double round(decltype(&::cuLaunchKernel) launch) {
    launch_ = launch;
    barrier_.arrive_and_wait();
    barrier_.arrive_and_wait();
    std::vector<double> all;
    for (const auto& one : took_) all.insert(all.end(), one.begin(), one.end());
    return quantile(std::move(all), 0.5);
  }

 private:
  void serve(std::size_t index) {
    device_.make_current();
    const CUstream stream = null_stream_ ? nullptr : new_stream();
    for (;;) {
      barrier_.arrive_and_wait();
      if (launch_ == nullptr) return;
      took_[index].clear();
      for (long batch = -1; batch < launches_ / kBatch; ++batch) {  // the first warms up
        const auto begin = Clock::now();
        for (long i = 0; i < kBatch; ++i) {
          const CUresult result = launch_(kernel_, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
          if (result != CUDA_SUCCESS) [[unlikely]] must(result, "cuLaunchKernel");
        }
        if (batch >= 0) took_[index].push_back(since(begin) / kBatch);
        must(cuStreamSynchronize(stream), "cuStreamSynchronize");
      }
      barrier_.arrive_and_wait();
    }
  }

  const Device& device_;
  const CUfunction kernel_;
  const long launches_;
  const bool null_stream_;
  std::barrier<> barrier_;
  std::vector<std::vector<double>> took_;
  std::vector<std::thread> threads_;
  decltype(&::cuLaunchKernel) launch_ = nullptr;
};

struct Replays {
  double call_ns = 0, whole_ns = 0;
};

Replays replay_round(CUgraphExec graph, CUstream stream, long replays, decltype(&::cuGraphLaunch) replay) {
  std::vector<double> calls, whole;
  for (long batch = -1; batch < replays / kReplayBatch; ++batch) {
    const auto begin = Clock::now();
    double in_calls = 0;
    for (long i = 0; i < kReplayBatch; ++i) {
      const auto before = Clock::now();
      must(replay(graph, stream), "cuGraphLaunch");
      in_calls += since(before);
    }
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (batch < 0) continue;
    calls.push_back(in_calls / kReplayBatch);
    whole.push_back(since(begin) / kReplayBatch);
  }
  return {quantile(calls, 0.5), quantile(whole, 0.5)};
}

void print(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\":{\"median\":%.2f,\"q1\":%.2f,\"q3\":%.2f},", name, quantile(values, 0.5), quantile(values, 0.25),
              quantile(values, 0.75));
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}

std::vector<double> percent(const std::vector<double>& more, const std::vector<double>& less) {
  std::vector<double> out;
  for (std::size_t i = 0; i < more.size(); ++i) out.push_back(100 * (more[i] / less[i] - 1));
  return out;
}

// What a source that is not told of contexts asks at a launch into a default stream.
double current_context_ns() {
  constexpr long kCalls = 100'000;
  CUcontext context = nullptr;
  const auto begin = Clock::now();
  for (long i = 0; i < kCalls; ++i) cuCtxGetCurrent(&context);
  return since(begin) / kCalls;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"threads", 1}, {"rounds", 60}, {"launches", 5000}, {"replays", 200},
                                         {"null-stream", 0}});
  const Device device;
  const Module module({{"empty_kernel"}}, arguments.simulated);
  const CUfunction kernel = module.function("empty_kernel");
  const CUgraphExec graph = chain_of(kernel, kNodes);
  const CUstream stream = new_stream();
  launch(kernel, stream);
  must(cuGraphLaunch(graph, stream), "cuGraphLaunch");
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");

  const Recorder recorder;
  const bool recorded = recorder.there();
  const Entries own = drivers_own(), hooked{&::cuLaunchKernel, &::cuGraphLaunch};
  const std::uint64_t seen_before = recorded ? recorder.stats().seen : 0;
  if (recorded) recorder.record(false);
  const int ways = recorded ? kWays : 1;
  std::array<std::vector<double>, kWays> launch_ns, replay_call_ns, replay_ns;
  {
    Launchers launchers(device, kernel, arguments);
    for (long round = 0; round < arguments["rounds"]; ++round) {
      for (int i = 0; i < ways; ++i) {
        const int way = (i + static_cast<int>(round)) % ways;
        if (way == kRecorded) recorder.record(true);
        const Entries& entries = way == kBare ? own : hooked;
        launch_ns[way].push_back(launchers.round(entries.launch));
        const Replays replays = replay_round(graph, stream, arguments["replays"], entries.replay);
        replay_call_ns[way].push_back(replays.call_ns);
        replay_ns[way].push_back(replays.whole_ns);
        if (way == kRecorded) recorder.record(false);
      }
    }
  }
  std::printf("{\"threads\":%ld,\"null_stream\":%ld,\"rounds\":%ld,", arguments["threads"], arguments["null-stream"],
              arguments["rounds"]);
  for (int way = 0; way < ways; ++way) {
    print((std::string(kNames[way]) + "_launch_ns").c_str(), launch_ns[way]);
    print((std::string(kNames[way]) + "_replay_call_ns").c_str(), replay_call_ns[way]);
    print((std::string(kNames[way]) + "_replay_ns").c_str(), replay_ns[way]);
    if (way == kBare) continue;
    print((std::string(kNames[way]) + "_minus_bare_ns").c_str(), difference(launch_ns[way], launch_ns[kBare]));
    print((std::string(kNames[way]) + "_replay_call_minus_bare_ns").c_str(),
          difference(replay_call_ns[way], replay_call_ns[kBare]));
    print((std::string(kNames[way]) + "_replay_percent").c_str(), percent(replay_ns[way], replay_ns[kBare]));
  }
  const gpuflight_stats stats = recorded ? recorder.stats() : gpuflight_stats{};
  // One batch of each round warms up; a synchronise after each batch, and the rest around it, are events too.
  const long batches = arguments["launches"] / kBatch + 1, replay_batches = arguments["replays"] / kReplayBatch + 1;
  const long expected = arguments["rounds"] * (arguments["threads"] * batches * (kBatch + 1) +
                                               replay_batches * (kReplayBatch + 1));
  std::printf("\"context_ns\":%.2f,\"recording\":%s,\"seen\":%llu,\"expected\":%ld,\"lost\":%llu}\n",
              current_context_ns(), recorded ? "true" : "false",
              static_cast<unsigned long long>(recorded ? stats.seen - seen_before : 0), recorded ? expected : 0,
              static_cast<unsigned long long>(stats.lost));
  return 0;
}
