// What a hooked launch costs over the driver's own function: the jump of an idle hook, and the whole way of a recorded
// launch at a cache hit, with a driver that does nothing. On a stream of the program's, and on the default stream,
// where the driver is asked for the current context. And of the calls beside launches a wait, a copy and a graph.
//
// The hooks library is not needed: this program is its table.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capture/interpose_source.h"
#include "recorder_rig.h"

namespace {

using namespace gpuflight;
using bench::Rig;

CUresult CUDAAPI launch_nothing(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                CUstream, void**, void**) {
  benchmark::ClobberMemory();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI one_context(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x1000);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI one_device(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI wait_for_nothing(CUstream) {
  benchmark::ClobberMemory();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI copy_nothing(CUdeviceptr, const void*, std::size_t, CUstream) {
  benchmark::ClobberMemory();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI launch_no_graph(CUgraphExec, CUstream) {
  benchmark::ClobberMemory();
  return CUDA_SUCCESS;
}

template <class Function>
hooks::HookRow row(const char* name, Function* function) {
  return {reinterpret_cast<void*>(function), reinterpret_cast<void*>(function), nullptr, nullptr, name, 0};
}
enum Row { kLaunch, kWait, kCopy, kGraph, kRows };
hooks::HookRow g_rows[kRows] = {row("cuLaunchKernel", &launch_nothing), row("cuStreamSynchronize", &wait_for_nothing),
                                row("cuMemcpyHtoDAsync_v2", &copy_nothing), row("cuGraphLaunch", &launch_no_graph)};
hooks::HookTable g_table{hooks::HookTable::kVersion, sizeof(hooks::HookRow), kRows, g_rows, 0, 1, 0};

// Through the row's target, or past it.
template <class... Args>
CUresult call(Row row, bool hooked, Args... args) {
  void* const target = __atomic_load_n(hooked ? &g_rows[row].target : &g_rows[row].real, __ATOMIC_RELAXED);
  return reinterpret_cast<CUresult (*)(Args...)>(target)(args...);
}
CUresult launch(bool hooked, CUstream stream) {
  return call(kLaunch, hooked, reinterpret_cast<CUfunction>(0x2000), 4u, 1u, 1u, 256u, 1u, 1u, 0u, stream,
              static_cast<void**>(nullptr), static_cast<void**>(nullptr));
}
CUresult call_of(Row row, bool hooked, CUstream stream) {
  switch (row) {
    case kWait: return call(row, hooked, stream);
    case kCopy:
      return call(row, hooked, CUdeviceptr{0x5000}, static_cast<const void*>(nullptr), std::size_t{8}, stream);
    case kGraph: return call(row, hooked, reinterpret_cast<CUgraphExec>(0x4000), stream);
    default: return launch(hooked, stream);
  }
}

capture::InterposeSource& source() {
  static capture::InterposeSource* const one = [] {
    Rig& rig = bench::rig();
    rig.driver.ctx_get_current = &one_context;
    rig.driver.ctx_get_device = &one_device;
    static capture::ErrorBoard errors;
    return new capture::InterposeSource(
        {*rig.launches, *rig.resolver, *rig.streams, rig.graphs, *rig.devices, nullptr, errors, rig.notices, false},
        rig.driver, *rig.page, false, false);
  }();
  return *one;
}

void launch_all(benchmark::State& state, CUstream stream) {
  Rig& rig = bench::rig();
  std::uint64_t launches = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(launch(true, stream));
    if (++launches % (flight::kRecordsPerChunk * 64) != 0) continue;
    if (capture::ThreadState* const thread = capture::this_thread_state()) rig.give_back(*thread->ring);
  }
  state.counters["misses"] = static_cast<double>(rig.launches->cost().misses.load());
}

#if defined(__x86_64__)
// The same with a driver that uses the first-level caches for itself: ticks of a call and the driver's work behind it, in
// turns with the driver's own function, by the median.
void BM_Cold(benchmark::State& state) {
  static bench::Driver driver;
  const auto row = static_cast<Row>(state.range(0));
  const bool recorded = state.range(1) != 0;
  const auto stream = reinterpret_cast<CUstream>(0x3000);
  std::string problem;
  if (recorded && source().start(problem) != capture::SourceStatus::kOk) return state.SkipWithError(problem.c_str());
  Rig& rig = bench::rig();
  std::vector<std::uint64_t> ticks[2];
  std::uint64_t launches = 0;
  if (recorded) {
    launch(true, stream);
    // As with a board of markers, which this rig has not: before a wait it is looked for what has no mark yet.
    capture::this_thread_state()->marks = row == kWait;
  }
  for (auto _ : state) {
    for (int hooked = 0; hooked < 2; ++hooked) {
      driver.run();
      const std::uint64_t begin = __rdtsc();
      benchmark::DoNotOptimize(call_of(row, hooked != 0, stream));
      driver.run();
      ticks[hooked].push_back(__rdtsc() - begin);
    }
    if (++launches % (flight::kRecordsPerChunk * 64) != 0) continue;
    if (capture::ThreadState* const thread = capture::this_thread_state()) rig.give_back(*thread->ring);
  }
  if (recorded) {
    capture::this_thread_state()->marks = false;
    source().stop(true);
  }
  const auto quantile = [&](int which, double share) {
    auto& all = ticks[which];
    std::sort(all.begin(), all.end());
    return static_cast<double>(all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))]);
  };
  for (const double share : {0.1, 0.25, 0.5}) {
    state.counters["more_q" + std::to_string(static_cast<int>(share * 100))] = quantile(1, share) - quantile(0, share);
  }
  state.counters["bare"] = quantile(0, 0.5);
}
BENCHMARK(BM_Cold)
    ->ArgNames({"call", "recorded"})
    ->Args({kLaunch, 0})
    ->Args({kLaunch, 1})
    ->Args({kWait, 1})
    ->Args({kCopy, 1})
    ->Args({kGraph, 1})
    ->Iterations(60000);
#endif

void BM_Idle(benchmark::State& state) {
  source().stop(true);
  launch_all(state, nullptr);
}
BENCHMARK(BM_Idle);

void BM_Recorded(benchmark::State& state) {
  std::string problem;
  if (source().start(problem) != capture::SourceStatus::kOk) return state.SkipWithError(problem.c_str());
  launch_all(state, state.range(0) != 0 ? reinterpret_cast<CUstream>(0x3000) : nullptr);
  source().stop(true);
}
BENCHMARK(BM_Recorded)->ArgName("own_stream")->Arg(1)->Arg(0);

}  // namespace

extern "C" __attribute__((visibility("default"))) hooks::HookTable* gpuflight_hooks() noexcept { return &g_table; }

BENCHMARK_MAIN();
