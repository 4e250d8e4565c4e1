// Our own part of a launch callback, without CUPTI and without a driver: what one record costs at a cache hit.
// A recorder thread's share is not in it; chunks are given back by the bench itself.
#include <benchmark/benchmark.h>

#include <memory>

#include "capture/launch_recorder.h"

namespace {

using namespace gpuflight;

struct Rig {
  capture::DriverApi driver;
  flight::FlightFile file;
  std::unique_ptr<flight::RingSet> rings;
  std::unique_ptr<flight::TableWriter> rows;
  capture::NoticeBoard notices;
  std::unique_ptr<capture::DeviceQuery> devices;
  std::unique_ptr<capture::KernelTable> kernels;
  std::unique_ptr<capture::KernelResolver> resolver;
  std::unique_ptr<capture::StreamTable> streams;
  std::unique_ptr<capture::ScopeTable> scopes;
  capture::HotPage* page = capture::HotPage::create();
  capture::LaunchClock clock{0, *page};
  capture::GraphTable graphs{*page};
  std::unique_ptr<capture::LaunchRecorder> launches;

  Rig() {
    file.create("", {});
    rings = std::make_unique<flight::RingSet>(file);
    rows = std::make_unique<flight::TableWriter>(file);
    devices = std::make_unique<capture::DeviceQuery>(driver);
    kernels = std::make_unique<capture::KernelTable>(*rows, 1024, 1024);
    resolver = std::make_unique<capture::KernelResolver>(driver, *devices, *kernels, notices, *page, true);
    streams = std::make_unique<capture::StreamTable>(driver, *rows, *page, 1024);
    scopes = std::make_unique<capture::ScopeTable>(*rows, 1024);
    page->recording.store(1);
    launches = std::make_unique<capture::LaunchRecorder>(capture::LaunchRecorder::Parts{
        driver, *rings, *resolver, *streams, graphs, *scopes, *devices, nullptr, *page, clock});
    clock.start();
  }
};

Rig& rig() {
  static Rig* const one = new Rig;  // app threads may outlive main's statics, as in real life
  return *one;
}

std::int32_t no_device(void*, const void*) { return 0; }

// `kernels` different launches in turn: how many fit the thread's cache before it starts to miss.
void BM_LaunchHit(benchmark::State& state) {
  Rig& r = rig();
  const auto kernels = static_cast<std::uintptr_t>(state.range(0));
  capture::LaunchCall call;
  call.symbol = "_Z5emptyv";
  call.context_uid = 1;
  call.shape.block = {256, 1, 1};
  static std::uint32_t first = flight::kNoChunk;  // the ring goes on from one benchmark to the next
  std::uint64_t n = 0;
  for (auto _ : state) {
    call.function = reinterpret_cast<const void*>(0x1000 + (n++ % kernels) * 0x140);
    capture::ThreadState* const thread = r.launches->enter();
    r.launches->on_call_begin(*thread);
    r.launches->on_kernel_enter(*thread, call, nullptr, &no_device);
    r.launches->on_return(*r.launches->enter(), 0);
    if (n % (flight::kRecordsPerChunk * 64) == 0) {  // as the recorder thread would
      if (first == flight::kNoChunk) first = r.rings->first_chunk(*thread->ring);
      for (std::uint32_t next; (next = r.rings->next_chunk(first)) != flight::kNoChunk; first = next) {
        r.rings->give_back(first);
      }
    }
  }
  state.counters["misses"] = static_cast<double>(r.launches->cost().misses.load());
}
BENCHMARK(BM_LaunchHit)->Arg(1)->Arg(16)->Arg(128);

void BM_ClockTwice(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(rig().launches->now_ns());
    benchmark::DoNotOptimize(rig().launches->now_ns());
  }
}
BENCHMARK(BM_ClockTwice);

}  // namespace

BENCHMARK_MAIN();
