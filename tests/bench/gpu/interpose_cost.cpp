// What a launch and the replay of a graph cost the host where launches are seen by the driver's entry points: the hook
// against the driver's own function, batch by batch in turns, in rounds in which nothing is recorded and in rounds in
// which all is.
//
//   interpose_cost [--threads N] [--rounds N] [--launches N] [--batch N] [--replays N] [--null-stream 0|1] [--simulated]
//
// Both libraries are preloaded by who starts it. Without them only the driver's own function is measured. Launches: the
// call alone, a batch after 10 and before a synchronise that are not timed; which of a pair of batches comes first is
// drawn. Threads go in step, all through the hook or none: beside threads that are faster by little one waits for the
// driver's lock for longer than that, and in a program that is recorded there are none. Replays of a graph of 100: the call
// alone, and until the last has ended on the GPU. Result: one JSON line, ns.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "driver_host.h"
#include "gpuflight/gpuflight.h"
#include "hooks/hook_table.h"

namespace {

using namespace gpuflight::gpu_tests;
using Clock = std::chrono::steady_clock;

constexpr long kFirst = 10, kNodes = 100, kReplayBatch = 10;

enum State { kIdle, kRecorded, kStates };
constexpr const char* kNames[] = {"idle", "recorded"};

// Batches of the driver's own function and of the hook, each pair one after the other.
struct Pairs {
  std::vector<double> own, hooked;

  void append(const Pairs& more) {
    own.insert(own.end(), more.own.begin(), more.own.end());
    hooked.insert(hooked.end(), more.hooked.begin(), more.hooked.end());
  }
  void add(bool is_hooked, double ns) { (is_hooked ? hooked : own).push_back(ns); }
};

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
        batch_(arguments["batch"]),
        null_stream_(arguments["null-stream"] != 0),
        barrier_(arguments["threads"] + 1),
        step_(arguments["threads"]),
        took_(static_cast<std::size_t>(arguments["threads"])) {
    for (std::size_t i = 0; i < took_.size(); ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Launchers() {
    launch_ = {};
    barrier_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  // ns a launch, by batch: the mean of the threads.
  Pairs round(decltype(&::cuLaunchKernel) own, decltype(&::cuLaunchKernel) hooked) {
    launch_ = {own, hooked};
    barrier_.arrive_and_wait();
    barrier_.arrive_and_wait();
    Pairs mean;
    for (std::size_t batch = 0; batch < took_[0].own.size(); ++batch) {
      for (const bool is_hooked : {false, true}) {
        double sum = 0;
        for (const Pairs& one : took_) sum += (is_hooked ? one.hooked : one.own)[batch];
        mean.add(is_hooked, sum / static_cast<double>(took_.size()));
      }
    }
    return mean;
  }

 private:
  void serve(std::size_t index) {
    device_.make_current();
    const CUstream stream = null_stream_ ? nullptr : new_stream();
    std::minstd_rand draw(1);  // alike in all threads
    bool hooked = false;
    for (;;) {
      barrier_.arrive_and_wait();
      if (launch_[0] == nullptr) return;
      took_[index] = {};
      for (long batch = -2; batch < 2 * (launches_ / batch_); ++batch) {  // the first of each warms up
        hooked = batch % 2 == 0 ? (draw() >> 8) % 2 != 0 : !hooked;
        const auto function = launch_[hooked ? 1 : 0];
        const auto launch_all = [&](long launches) {
          for (long i = 0; i < launches; ++i) {
            const CUresult result = function(kernel_, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
            if (result != CUDA_SUCCESS) [[unlikely]] must(result, "cuLaunchKernel");
          }
        };
        step_.arrive_and_wait();
        launch_all(kFirst);
        const auto begin = Clock::now();
        launch_all(batch_);
        if (batch >= 0) took_[index].add(hooked, since(begin) / static_cast<double>(batch_));
        must(cuStreamSynchronize(stream), "cuStreamSynchronize");
      }
      barrier_.arrive_and_wait();
    }
  }

  const Device& device_;
  const CUfunction kernel_;
  const long launches_, batch_;
  const bool null_stream_;
  std::barrier<> barrier_, step_;
  std::vector<Pairs> took_;
  std::vector<std::thread> threads_;
  std::array<decltype(&::cuLaunchKernel), 2> launch_{};
};

struct Replays {
  Pairs call_ns, whole_ns;
};

Replays replay_round(CUgraphExec graph, CUstream stream, long replays, const Entries& own, const Entries& hooks) {
  Replays all;
  for (long batch = -2; batch < 2 * (replays / kReplayBatch); ++batch) {
    const bool hooked = ((batch ^ (batch >> 1)) & 1) != 0;
    const auto replay = (hooked ? hooks : own).replay;
    const auto begin = Clock::now();
    double in_calls = 0;
    for (long i = 0; i < kReplayBatch; ++i) {
      const auto before = Clock::now();
      must(replay(graph, stream), "cuGraphLaunch");
      in_calls += since(before);
    }
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (batch < 0) continue;
    all.call_ns.add(hooked, in_calls / kReplayBatch);
    all.whole_ns.add(hooked, since(begin) / kReplayBatch);
  }
  return all;
}

void print(const std::string& name, const std::vector<double>& values) {
  std::printf("\"%s\":{\"median\":%.2f,\"q1\":%.2f,\"q3\":%.2f,\"tenth\":%.2f},", name.c_str(), quantile(values, 0.5),
              quantile(values, 0.25), quantile(values, 0.75), quantile(values, 0.1));
}

void print_pairs(const std::string& state, const std::string& what, const Pairs& pairs) {
  print(state + "_" + what + "_own_ns", pairs.own);
  print(state + "_" + what + "_hooked_ns", pairs.hooked);
  std::vector<double> more, percent;
  for (std::size_t i = 0; i < std::min(pairs.own.size(), pairs.hooked.size()); ++i) {
    more.push_back(pairs.hooked[i] - pairs.own[i]);
    percent.push_back(100 * (pairs.hooked[i] / pairs.own[i] - 1));
  }
  print(state + "_" + what + "_more_ns", more);
  print(state + "_" + what + "_more_percent", percent);
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
  const Arguments arguments(argc, argv, {{"threads", 1}, {"rounds", 60}, {"launches", 5000}, {"batch", 250},
                                         {"replays", 200}, {"null-stream", 0}});
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
  std::array<Pairs, kStates> launch_ns, replay_call_ns, replay_ns;
  {
    Launchers launchers(device, kernel, arguments);
    for (long round = 0; round < arguments["rounds"]; ++round) {
      for (const State state : {kIdle, kRecorded}) {
        if (state == kRecorded && !recorded) continue;
        if (state == kRecorded) recorder.record(true);
        launch_ns[state].append(launchers.round(own.launch, hooked.launch));
        const Replays replays = replay_round(graph, stream, arguments["replays"], own, hooked);
        replay_call_ns[state].append(replays.call_ns);
        replay_ns[state].append(replays.whole_ns);
        if (state == kRecorded) recorder.record(false);
      }
    }
  }
  std::printf("{\"threads\":%ld,\"null_stream\":%ld,\"rounds\":%ld,", arguments["threads"], arguments["null-stream"],
              arguments["rounds"]);
  for (const State state : {kIdle, kRecorded}) {
    if (state == kRecorded && !recorded) continue;
    print_pairs(kNames[state], "launch", launch_ns[state]);
    print_pairs(kNames[state], "replay_call", replay_call_ns[state]);
    print_pairs(kNames[state], "replay", replay_ns[state]);
  }
  const gpuflight_stats stats = recorded ? recorder.stats() : gpuflight_stats{};
  // Of each pair of batches one is hooked, one pair of each round warms up; both are followed by a synchronise, which is
  // an event too.
  const long batch = arguments["batch"];
  const long batches = arguments["launches"] / batch + 1, replay_batches = arguments["replays"] / kReplayBatch + 1;
  const long expected = arguments["rounds"] * (arguments["threads"] * batches * (kFirst + batch + 2) +
                                               replay_batches * (kReplayBatch + 2));
  std::printf("\"context_ns\":%.2f,\"recording\":%s,\"seen\":%llu,\"expected\":%ld,\"lost\":%llu}\n",
              current_context_ns(), recorded ? "true" : "false",
              static_cast<unsigned long long>(recorded ? stats.seen - seen_before : 0), recorded ? expected : 0,
              static_cast<unsigned long long>(stats.lost));
  return 0;
}
