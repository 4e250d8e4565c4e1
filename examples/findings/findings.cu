// One small program for each rule of `gpuflight analyze`: bad shows what the rule finds, good does the same work
// without it. What they record are the pairs of logs that the rules are tested with (tests/analyze/README.md).
//
//   findings sync_in_loop bad
//   findings --list
#include "copies.cuh"
#include "host.cuh"
#include "kernels.cuh"
#include "launches.cuh"
#include "streams.cuh"

namespace {

struct Case {
  const char* name;
  void (*run)(const findings::Bench&);
};

#define CASE(name) Case{#name, findings::name}
constexpr Case kCases[] = {
    CASE(cuda_memcpy_async), CASE(cuda_memcpy_sync),  CASE(cuda_memset_sync),       CASE(small_copies),
    CASE(cuda_api_sync),     CASE(sync_in_loop),      CASE(alloc_in_loop),          CASE(gpu_gaps),
    CASE(gpu_time_util),     CASE(idle_time),         CASE(default_stream_barrier), CASE(stream_never_concurrent),
    CASE(priority_inversion), CASE(missed_overlap),   CASE(copy_direction_wait),    CASE(launch_bound),
    CASE(queue_full),        CASE(graph_candidate),   CASE(tiny_kernels),           CASE(memory_growth),
    CASE(memory_peak),       CASE(low_occupancy),     CASE(spills),                 CASE(partial_wave),
    CASE(slow_burst),
};
#undef CASE

int usage(const char* program, int code) {
  std::fprintf(stderr, "usage: %s CASE bad|good\n       %s --list\n", program, program);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Case& c : kCases) std::printf("%s\n", c.name);
    return 0;
  }
  if (argc != 3) return usage(argv[0], 2);
  const bool bad = std::strcmp(argv[2], "bad") == 0;
  if (!bad && std::strcmp(argv[2], "good") != 0) return usage(argv[0], 2);
  for (const Case& c : kCases) {
    if (std::strcmp(argv[1], c.name) != 0) continue;
    const findings::Bench bench(bad);
    findings::load(findings::spin<0>);
    findings::load(findings::spin<1>);
    findings::load(findings::with_shared_memory);
    findings::load(findings::with_array<true>);
    findings::load(findings::with_array<false>);
    c.run(bench);
    CUDA_CHECK(cudaDeviceSynchronize());
    std::printf("%s %s: done\n", c.name, argv[2]);
    return 0;
  }
  std::fprintf(stderr, "there is no case '%s'\n", argv[1]);
  return usage(argv[0], 2);
}
