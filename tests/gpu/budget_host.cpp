// Launches one after another for some seconds, without a pause but to wait for the device now and then, then none for
// some seconds, then a few: what the check `budget` records under budgets.
//
//   budget_host [--seconds N] [--idle-seconds N] [--simulated]
//
// Result: one JSON line; the time of a launch by seconds.
#include <unistd.h>

#include <vector>

#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;

constexpr int kBetweenSyncs = 500, kLast = 200;
constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"seconds", 8}, {"idle-seconds", 10}});
  const Device device;
  const Module module({{"budget_kernel"}}, arguments.simulated);
  const CUfunction kernel = module.function("budget_kernel");
  const CUstream stream = new_stream();
  launch(kernel, stream);
  must(cuStreamSynchronize(stream), "warm up");
  long launches = 1;
  std::vector<double> ns_by_second;
  for (long second = 0; second < arguments["seconds"]; ++second) {
    std::int64_t in_launches = 0;
    long made = 0;
    for (const std::int64_t begin = monotonic_ns(); monotonic_ns() - begin < kSecond;) {
      const std::int64_t before = monotonic_ns();
      for (int i = 0; i < kBetweenSyncs; ++i) launch(kernel, stream);
      in_launches += monotonic_ns() - before;
      made += kBetweenSyncs;
      must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    launches += made;
    ns_by_second.push_back(static_cast<double>(in_launches) / static_cast<double>(made));
  }
  usleep(static_cast<useconds_t>(arguments["idle-seconds"] * 1'000'000));
  for (int i = 0; i < kLast; ++i) launch(kernel, stream);
  must(cuStreamSynchronize(stream), "the last");
  launches += kLast;
  std::printf("{\"launches\":%ld,\"ns_by_second\":[", launches);
  for (std::size_t i = 0; i < ns_by_second.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : ",", ns_by_second[i]);
  std::printf("]}\n");
  return 0;
}
