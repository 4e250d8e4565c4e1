// Kernels one after the other without a gap, then a very long kernel beside many short ones: what the check `live`
// follows in the log while it runs. The first are quick ones from one thread, slow ones from another, and slow ones
// from the first again: a change of its pace.
//
//   live_host [--fast N] [--slow N] [--spin-seconds N] [--shorts N] [--simulated]      (N slow ones each time)
//
// Result: one JSON line.
#include <unistd.h>

#include <array>
#include <thread>

#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;

constexpr std::uint64_t kFastNs = 1'000'000, kSlowNs = 20'000'000;
constexpr unsigned kPauseUs = 1'500'000;  // everything of a phase has time to be written before the next

// Some are always waiting behind the one that runs, few enough that none waits for long.
void one_after_another(CUfunction kernel, CUstream stream, long count) {
  constexpr std::size_t kAhead = 8;
  std::array<CUevent, kAhead> done{};
  for (CUevent& event : done) event = new_event(CU_EVENT_DISABLE_TIMING);
  for (long i = 0; i < count; ++i) {
    CUevent& event = done[static_cast<std::size_t>(i) % kAhead];
    if (i >= static_cast<long>(kAhead)) must(cuEventSynchronize(event), "cuEventSynchronize");
    launch(kernel, stream);
    must(cuEventRecord(event, stream), "cuEventRecord");
  }
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
  usleep(kPauseUs);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"fast", 2000}, {"slow", 100}, {"spin-seconds", 20}, {"shorts", 100'000}});
  const std::uint64_t spin_ns = static_cast<std::uint64_t>(arguments["spin-seconds"]) * 1'000'000'000;
  const Device device;
  const Module module({{"live_fast", 0, kFastNs}, {"live_slow", 0, kSlowNs}, {"live_slower", 0, kSlowNs},
                       {"live_spin", 0, spin_ns}, {"live_short"}},
                      arguments.simulated);
  // Looked up while nothing runs: a first use may wait for the device.
  const CUfunction spin = module.function("live_spin"), short_kernel = module.function("live_short");
  const CUstream stream = new_stream(), beside = new_stream();
  const CUevent begin = new_event(), end = new_event();
  launch(short_kernel, beside);
  must(cuCtxSynchronize(), "warm up");
  one_after_another(module.function("live_fast"), stream, arguments["fast"]);
  std::thread([&] {
    device.make_current();
    one_after_another(module.function("live_slow"), new_stream(), arguments["slow"]);
  }).join();
  one_after_another(module.function("live_slower"), stream, arguments["slow"]);

  must(cuEventRecord(begin, stream), "cuEventRecord");
  launch(spin, stream);
  must(cuEventRecord(end, stream), "cuEventRecord");
  for (long i = 1; i < arguments["shorts"]; ++i) {  // the warm-up was the first
    launch(short_kernel, beside);
    if (i % 1000 == 0) must(cuStreamSynchronize(beside), "short kernels");
  }
  must(cuStreamSynchronize(beside), "short kernels");
  const bool spinning = cuEventQuery(end) == CUDA_ERROR_NOT_READY;
  must(cuEventSynchronize(end), "cuEventSynchronize");
  float ms = 0;
  must(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
  must(cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf("{\"counts\":{\"live_fast\":%ld,\"live_slow\":%ld,\"live_slower\":%ld,"
              "\"live_spin\":1,\"live_short\":%ld},\"spin_ms\":%.3f,"
              "\"shorts_done_first\":%s}\n",
              arguments["fast"], arguments["slow"], arguments["slow"], arguments["shorts"], static_cast<double>(ms),
              spinning ? "true" : "false");
  return 0;
}
