// For check event_times: kernels of known length, and what timing launches by events costs a program that launches.
//
//   event_times_cost [--launches N] [--rounds N] [--batch N] [--simulated]
//
// Times: kernels of 20 us, 200 us and 2 ms, each one after the other without a pause ("busy_...") and with the stream idle
// before each ("idle_..."); the program's own two events are around each stretch. Effect: batches of an empty kernel and
// of one of 10 us, in turns into a stream that may be timed and into one that may not, since it has had a programmatic
// launch; wall time of each batch until its last kernel has ended, paired. Result: one JSON line for each kernel, one for
// the effect.
#include <algorithm>
#include <chrono>

#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double, std::nano>(Clock::now() - begin).count(); }

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

struct Length {
  const char* name;
  std::uint64_t ns;
};
constexpr Length kLengths[] = {{"20us", 20'000}, {"200us", 200'000}, {"2ms", 2'000'000}};

std::vector<KernelSpec> kernels() {
  std::vector<KernelSpec> all = {{"empty"}, {"work_10us", 0, 10'000}};
  for (const Length& length : kLengths) {
    all.push_back({std::string("busy_") + length.name, 0, length.ns});
    all.push_back({std::string("idle_") + length.name, 0, length.ns});
  }
  return all;
}

// The mean of kernels that follow each other at once is their length, and the gap between two.
void time_kernels(const Module& module, long launches) {
  const CUstream stream = new_stream();
  const CUevent begin = new_event(), end = new_event();
  for (const Length& length : kLengths) {
    for (const bool busy : {true, false}) {
      const std::string name = (busy ? "busy_" : "idle_") + std::string(length.name);
      const CUfunction kernel = module.function(name);
      launch(kernel, stream);
      must(cuStreamSynchronize(stream), "cuStreamSynchronize");
      must(cuEventRecord(begin, stream), "cuEventRecord");
      for (long i = 0; i < launches; ++i) {
        launch(kernel, stream);
        if (!busy) must(cuStreamSynchronize(stream), "cuStreamSynchronize");
      }
      must(cuEventRecord(end, stream), "cuEventRecord");
      must(cuStreamSynchronize(stream), "cuStreamSynchronize");
      float ms = 0;
      must(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
      std::printf("{\"kernel\":\"%s\",\"length_ns\":%llu,\"launches\":%ld,\"own_mean_ns\":%.1f}\n", name.c_str(),
                  static_cast<unsigned long long>(length.ns), launches + 1,
                  1e6 * static_cast<double>(ms) / static_cast<double>(launches));
    }
  }
}

void launch_programmatic(CUfunction kernel, CUstream stream) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  must(cuLaunchKernelEx(&config, kernel, nullptr, nullptr), "cuLaunchKernelEx");
}

double batch_ns(CUfunction kernel, CUstream stream, long launches) {
  const auto begin = Clock::now();
  for (long i = 0; i < launches; ++i) launch(kernel, stream);
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
  return since(begin) / static_cast<double>(launches);
}

// In % of the untimed batch beside it.
void print_effect(const char* name, CUfunction kernel, CUstream timed, CUstream never, long rounds, long batch) {
  std::vector<double> plain_ns, percent;
  batch_ns(kernel, timed, batch);
  batch_ns(kernel, never, batch);
  for (long round = 0; round < rounds; ++round) {
    const bool first = round % 2 == 0;
    const double a = batch_ns(kernel, first ? timed : never, batch);
    const double b = batch_ns(kernel, first ? never : timed, batch);
    plain_ns.push_back(first ? b : a);
    percent.push_back(100 * ((first ? a : b) / (first ? b : a) - 1));
  }
  std::printf("\"%s_ns\":%.1f,\"%s_percent\":{\"median\":%.4f,\"q1\":%.4f,\"q3\":%.4f},", name, quantile(plain_ns, 0.5),
              name, quantile(percent, 0.5), quantile(percent, 0.25), quantile(percent, 0.75));
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"launches", 100}, {"rounds", 60}, {"batch", 10'000}});
  const Device device;
  const Module module(kernels(), arguments.simulated);
  if (arguments["launches"] > 0) time_kernels(module, arguments["launches"]);
  if (arguments["rounds"] == 0) return 0;
  const CUstream timed = new_stream(), never = new_stream();
  launch_programmatic(module.function("empty"), never);
  launch_programmatic(module.function("work_10us"), never);
  std::printf("{");
  print_effect("empty", module.function("empty"), timed, never, arguments["rounds"], arguments["batch"]);
  print_effect("work_10us", module.function("work_10us"), timed, never, arguments["rounds"], arguments["batch"] / 4);
  std::printf("\"rounds\":%ld,\"batch\":%ld}\n", arguments["rounds"], arguments["batch"]);
  return 0;
}
