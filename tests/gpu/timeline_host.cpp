// Kernels from many threads and streams, replays of a graph, and long kernels measured by events of their own, all
// counted: the load of the check `timeline`. Every stream is used by one thread alone.
//
//   timeline_host [--launches N] [--threads N] [--streams N] [--replays N] [--nodes N] [--spins N] [--simulated]
//
// Result: one JSON line.
#include <sys/resource.h>

#include <thread>

#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;

constexpr int kShortKernels = 4;
constexpr std::uint64_t kSpinNs = 5'000'000;

std::string short_name(long i) { return "timeline_short_" + std::to_string(i % kShortKernels); }

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  must(cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return free;
}

// Each thread goes round its streams and the kernels.
void short_kernels(const Device& device, const Module& module, const Arguments& arguments) {
  const long threads = arguments["threads"], streams_each = arguments["streams"] / threads;
  std::vector<std::thread> workers;
  for (long t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      device.make_current();
      std::vector<CUstream> streams;
      for (long s = 0; s < streams_each; ++s) streams.push_back(new_stream());
      std::vector<CUfunction> kernels;
      for (int k = 0; k < kShortKernels; ++k) kernels.push_back(module.function(short_name(k)));
      const long each = arguments["launches"] / threads;
      for (long i = 0; i < each; ++i) {
        const auto n = static_cast<std::size_t>(i);
        launch(kernels[n % kShortKernels], streams[n % streams.size()]);
      }
      for (CUstream stream : streams) must(cuStreamSynchronize(stream), "short kernels");
    });
  }
  for (std::thread& worker : workers) worker.join();
}

void replays(const Module& module, const Arguments& arguments) {
  constexpr long kStep = 50;  // as a program would: some at a time
  const CUgraphExec exec = chain_of(module.function("timeline_node"), arguments["nodes"]);
  const CUstream stream = new_stream();
  for (long i = 0; i < arguments["replays"]; ++i) {
    must(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    if (i % kStep == kStep - 1) must(cuStreamSynchronize(stream), "replays");
  }
  must(cuStreamSynchronize(stream), "replays");
}

// Sum of what events around each kernel say.
double spin_ms(const Module& module, long count) {
  const CUfunction kernel = module.function("timeline_spin");
  const CUstream stream = new_stream();
  const CUevent begin = new_event(), end = new_event();
  double sum = 0;
  for (long i = 0; i < count; ++i) {
    must(cuEventRecord(begin, stream), "cuEventRecord");
    launch(kernel, stream);
    must(cuEventRecord(end, stream), "cuEventRecord");
    must(cuEventSynchronize(end), "cuEventSynchronize");
    float ms = 0;
    must(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    sum += static_cast<double>(ms);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"launches", 1'000'000}, {"threads", 16}, {"streams", 32},
                                         {"replays", 10'000}, {"nodes", 100}, {"spins", 20}});
  const long threads = arguments["threads"];
  if (threads < 1 || arguments["streams"] % threads != 0 || arguments["launches"] % (threads * kShortKernels) != 0) {
    std::fprintf(stderr, "streams and launches must divide evenly\n");
    return 2;
  }
  const Device device;
  std::vector<KernelSpec> specs = {{"timeline_node"}, {"timeline_spin", 0, kSpinNs}};
  for (int k = 0; k < kShortKernels; ++k) specs.push_back({short_name(k)});
  const Module module(specs, arguments.simulated);
  const std::size_t free_at_start = free_bytes();
  const std::int64_t begin = monotonic_ns();
  short_kernels(device, module, arguments);
  const std::int64_t launched = monotonic_ns();
  replays(module, arguments);
  const std::int64_t replayed = monotonic_ns();
  const double spun_ms = spin_ms(module, arguments["spins"]);
  must(cuCtxSynchronize(), "cuCtxSynchronize");
  const std::int64_t end = monotonic_ns();
  const std::size_t free_at_end = free_bytes();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"begin_ns\":%lld,\"end_ns\":%lld,\"short_ns\":%lld,\"replays_ns\":%lld,\"replays\":%ld,\"nodes\":%ld,"
              "\"spin_event_ms\":%.4f,\"free_at_start\":%zu,\"free_at_end\":%zu,\"peak_rss_kb\":%ld,\"counts\":{"
              "\"timeline_spin\":%ld,\"timeline_node\":%ld",
              static_cast<long long>(begin), static_cast<long long>(end), static_cast<long long>(launched - begin),
              static_cast<long long>(replayed - launched), arguments["replays"], arguments["nodes"], spun_ms,
              free_at_start, free_at_end, usage.ru_maxrss, arguments["spins"],
              arguments["replays"] * arguments["nodes"]);
  for (int k = 0; k < kShortKernels; ++k) {
    std::printf(",\"%s\":%ld", short_name(k).c_str(), arguments["launches"] / kShortKernels);
  }
  std::printf("}}\n");
  return 0;
}
