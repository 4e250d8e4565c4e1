// Our own part of a launch callback, without CUPTI and without a driver: what one record costs at a cache hit.
// A recorder thread's share is not in it; chunks are given back by the bench itself.
//
// BM_LaunchHit runs in a loop of its own, with everything in the nearest cache. BM_LaunchAfterDriver runs as much other
// code over as much other data between two launches as a driver does, so that ours comes from the second-level cache;
// its figure is the median, less what the two time stamps cost by themselves.
#include <benchmark/benchmark.h>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "capture/launch_hit.h"
#include "capture/nvtx_attach.h"
#include "recorder_rig.h"

namespace {

using namespace gpuflight;
using bench::Rig;
using bench::rig;

std::int32_t no_device(void*, const void*) { return 0; }

// Launches as a source reports them; gives chunks back as the recorder thread would.
class Caller {
 public:
  [[gnu::noinline]] void enter(Rig& r, std::uintptr_t kernel = 0) {
    const auto* const function = reinterpret_cast<const void*>(0x1000 + kernel * 0x140);
    capture::ThreadState* const thread = r.launches->enter();
    auto& stream = thread->streams[capture::ThreadState::stream_slot(geometry_.hStream, 1, 1)];
    if (capture::enter_hit(*r.page, *thread, geometry_, function, stream, 1, 1, 0, 0)) return;
    capture::LaunchCall call;
    call.symbol = "_Z5emptyv";
    call.context_uid = 1;
    call.shape.block = {256, 1, 1};
    call.function = function;
    r.launches->on_call_begin(*thread);
    r.launches->on_kernel_enter(*thread, call, nullptr, &no_device);
  }
  [[gnu::noinline]] void leave(Rig& r) {
    capture::ThreadState* const thread = r.launches->enter();
    if (!capture::return_hit(*r.page, *thread, 0, [](auto&, auto&) {})) r.launches->on_return(*thread, 0);
    if (++launches_ % (flight::kRecordsPerChunk * 64) != 0) return;
    r.give_back(*thread->ring);
  }

 private:
  struct Geometry {  // the driver's names
    unsigned gridDimX = 1, gridDimY = 1, gridDimZ = 1, blockDimX = 256, blockDimY = 1, blockDimZ = 1;
    unsigned sharedMemBytes = 0;
    const void* hStream = nullptr;
  };
  const Geometry geometry_;
  std::uint64_t launches_ = 0;
};

// `kernels` different launches in turn: how many fit the thread's cache before it starts to miss.
void BM_LaunchHit(benchmark::State& state) {
  Rig& r = rig();
  const auto kernels = static_cast<std::uintptr_t>(state.range(0));
  Caller caller;
  std::uint64_t n = 0;
  for (auto _ : state) {
    caller.enter(r, n++ % kernels);
    caller.leave(r);
  }
  state.counters["misses"] = static_cast<double>(r.launches->cost().misses.load());
}
BENCHMARK(BM_LaunchHit)->Arg(1)->Arg(16)->Arg(128);

#if defined(__x86_64__)
using bench::Driver;

std::uint64_t ticks() {
  _mm_lfence();
  const std::uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

double ns_per_tick() {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t from = ticks();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(50)) {
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(ticks() - from);
}

double median(std::vector<std::uint64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

void BM_LaunchAfterDriver(benchmark::State& state) {
  Rig& r = rig();
  Driver driver;
  Caller caller;
  std::vector<std::uint64_t> enters, returns, nothing;
  for (auto _ : state) {
    driver.run();
    const std::uint64_t a = ticks();
    caller.enter(r);
    const std::uint64_t b = ticks();
    driver.run();
    const std::uint64_t c = ticks();
    caller.leave(r);
    const std::uint64_t d = ticks();
    driver.run();
    const std::uint64_t e = ticks();
    benchmark::ClobberMemory();
    const std::uint64_t f = ticks();
    enters.push_back(b - a);
    returns.push_back(d - c);
    nothing.push_back(f - e);
  }
  const double ns = ns_per_tick(), none = median(nothing);
  state.counters["enter_ns"] = (median(enters) - none) * ns;
  state.counters["return_ns"] = (median(returns) - none) * ns;
}
BENCHMARK(BM_LaunchAfterDriver)->Iterations(100'000);
#endif

// NVTX as a program's own header holds it: a table of function pointers, filled by us.
class NvtxClient {
 public:
  NvtxClient() {
    for (std::size_t i = 1; i < functions_.size(); ++i) entries_[i] = &functions_[i];
    g_client = this;
    capture::send_nvtx_to(rig().launches.get());
    capture::attach_nvtx(reinterpret_cast<void*>(&export_table));
  }
  template <class Type>
  Type function(unsigned id) const {
    return reinterpret_cast<Type>(functions_[id]);
  }

 private:
  static int module_functions(NvtxCallbackModule module, NvtxFunctionTable* table, unsigned* size) {
    if (module != NVTX_CB_MODULE_CORE) return 0;
    *table = g_client->entries_.data();
    *size = NVTX_CBID_CORE_SIZE;
    return 1;
  }
  static const void* export_table(std::uint32_t id) {
    static const NvtxExportTableCallbacks callbacks{sizeof callbacks, &module_functions};
    return id == NVTX_ETID_CALLBACKS ? &callbacks : nullptr;
  }

  static inline NvtxClient* g_client = nullptr;
  std::array<NvtxFunctionPointer, NVTX_CBID_CORE_SIZE> functions_{};
  std::array<NvtxFunctionPointer*, NVTX_CBID_CORE_SIZE> entries_{};
};

// Gives chunks back as the recorder thread would; of the calling thread, from where its slot stands now.
class ChunkReturner {
 public:
  explicit ChunkReturner(Rig& r) : rig_(r), thread_(*r.launches->enter()) {
    if (const std::uint32_t at = thread_.ring->slot().current_chunk.load(); at != 0) first_ = at - 1;
  }
  void give_back() {
    if (first_ == flight::kNoChunk) first_ = rig_.rings->first_chunk(*thread_.ring);
    for (std::uint32_t next; (next = rig_.rings->next_chunk(first_)) != flight::kNoChunk; first_ = next) {
      rig_.rings->give_back(first_);
    }
  }

 private:
  Rig& rig_;
  capture::ThreadState& thread_;
  std::uint32_t first_ = flight::kNoChunk;
};

// One range of a name that the thread has seen before, pushed and popped: two records. With `range(0)` names in turn.
void BM_NvtxPushPop(benchmark::State& state) {
  NvtxClient client;
  const auto push = client.function<nvtxRangePushA_impl_fntype>(NVTX_CBID_CORE_RangePushA);
  const auto pop = client.function<nvtxRangePop_impl_fntype>(NVTX_CBID_CORE_RangePop);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < state.range(0); ++i) names.push_back("aten::operation number " + std::to_string(i));
  std::uint64_t n = 0;
  std::thread([&] {  // a ring of its own
    ChunkReturner chunks(rig());
    for (auto _ : state) {
      push(names[n % names.size()].c_str());
      pop();
      if (++n % (flight::kRecordsPerChunk * 32) == 0) chunks.give_back();
    }
  }).join();
}
BENCHMARK(BM_NvtxPushPop)->Arg(1)->Arg(16)->Arg(1000)->UseRealTime();

// Before there is a recorder, or in a program without CUDA.
void BM_NvtxPushPopEarly(benchmark::State& state) {
  NvtxClient client;
  capture::send_nvtx_to(nullptr);
  const auto push = client.function<nvtxRangePushA_impl_fntype>(NVTX_CBID_CORE_RangePushA);
  const auto pop = client.function<nvtxRangePop_impl_fntype>(NVTX_CBID_CORE_RangePop);
  for (auto _ : state) {
    push("aten::operation");
    pop();
  }
}
BENCHMARK(BM_NvtxPushPopEarly);

// An event record and its return, beside what CUPTI's callback costs.
void BM_EdgeCall(benchmark::State& state) {
  Rig& r = rig();
  capture::DriverCall call;
  call.call = event::ApiCall::kEventRecord;
  call.has_stream = true;
  call.context_uid = 1;
  call.event = 0x7f0012345678;
  std::uint64_t n = 0;
  std::thread([&] {
    ChunkReturner chunks(r);
    for (auto _ : state) {
      capture::ThreadState* const thread = r.launches->enter();
      r.launches->on_call_begin(*thread);
      r.launches->on_call_enter(*thread, call, nullptr, &no_device);
      r.launches->on_edge_return(*thread, call, nullptr, &no_device);
      r.launches->on_return(*thread, 0);
      if (++n % (flight::kRecordsPerChunk * 64) == 0) chunks.give_back();
    }
  }).join();
}
BENCHMARK(BM_EdgeCall)->UseRealTime();

void BM_ClockTwice(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(rig().launches->now_ns());
    benchmark::DoNotOptimize(rig().launches->now_ns());
  }
}
BENCHMARK(BM_ClockTwice);

}  // namespace

BENCHMARK_MAIN();
