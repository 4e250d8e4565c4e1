// What one line of the log costs the recorder thread: encoding alone, and encoding with the write to a file.
// The goal: 1,000,000 kernel_event lines per second on one core, the write included (items_per_second).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "log/decoder.h"
#include "log/encoder.h"
#include "log/sink.h"

namespace {

using namespace gpuflight;

constexpr std::size_t kBatchBytes = 1 << 20;

event::KernelInfo kernel() {
  event::KernelInfo k;
  k.name = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
  k.num_regs = 16;
  k.static_shared_bytes = 0;
  k.local_bytes_per_thread = 0;
  k.max_threads_per_block = 1024;
  k.binary_version = 90;
  return k;
}

event::KernelConfig config() {
  event::KernelConfig c;
  c.kernel = event::KernelId{1};
  c.shape.block = {128, 1, 1};
  c.occupancy = {event::OccupancySource::kDriver, 16, 4, 64, {16, 32, 32, 32, -1, -1},
                 event::limiter_bit(event::Limiter::kWarps), event::Limiter::kWarps, false, 16, -1};
  return c;
}

// A program with a few streams whose grids change now and then.
class Launches {
 public:
  Launches() : config_(log::render_config(kernel(), config(), event::ConfigId{7}, true, 132)) {
    log::append_json_string(scope_, "training/step/forward");
    for (std::uint32_t i = 0; i < 4; ++i) {
      event::StreamInfo stream;
      stream.stream = event::StreamId{i + 1};
      stream.context = event::ContextId{1};
      stream.device = 0;
      streams_[i] = log::render_stream(stream);
    }
    launch_.seq = event::Seq(3, 0);
    launch_.thread = 1234567;
    launch_.status = 0;
  }
  void append_next(log::Buffer& out) {
    ++launch_.seq.value;
    ++launch_.correlation.value;
    launch_.launch_ns += 4321;
    launch_.call_ns = 2900 + static_cast<std::int64_t>(launch_.seq.value % 500);
    launch_.grid.x = 1024 + (launch_.seq.value >> 2 & 3);
    log::append_kernel_event(out, config_, streams_[launch_.seq.value & 3], scope_.view(), launch_);
  }

 private:
  log::RenderedConfig config_;
  log::RenderedStream streams_[4];
  log::Buffer scope_;
  event::KernelLaunch launch_;
};

std::string folder() {
  const char* chosen = std::getenv("GPUFLIGHT_BENCH_DIR");
  return std::string(chosen != nullptr ? chosen : std::filesystem::temp_directory_path().c_str()) + "/gpuflight-bench";
}

void BM_EncodeKernelEvent(benchmark::State& state) {
  Launches launches;
  log::Buffer out;
  std::uint64_t bytes = 0, lines = 0;
  for (auto _ : state) {
    launches.append_next(out);
    if (out.size() >= kBatchBytes) {
      bytes += out.size();
      lines += out.lines();
      out.clear();
    }
  }
  state.SetItemsProcessed(state.iterations());
  if (lines != 0) state.counters["bytes_per_line"] = static_cast<double>(bytes) / static_cast<double>(lines);
}
BENCHMARK(BM_EncodeKernelEvent);

// As the recorder does it: batches of 1 MiB; segments of 64 MiB, of which 512 MiB are kept. Argument: compressed in
// the background or not (the compressing thread is not in the figure; it is nice and takes another core if it can).
void BM_EncodeAndWrite(benchmark::State& state) {
  std::filesystem::remove_all(folder());
  Launches launches;
  log::Buffer out;
  log::SinkOptions options;
  options.path = folder() + "/encode_bench.ndjson";
  options.max_bytes = 512 << 20;
  options.compress = state.range(0) != 0;
  log::LogSink sink;
  if (sink.open(options, nullptr) != 0) {
    state.SkipWithError("cannot write to GPUFLIGHT_BENCH_DIR");
    return;
  }
  for (auto _ : state) {
    launches.append_next(out);
    if (out.size() < kBatchBytes) continue;
    if (sink.write(out.view(), out.lines(), 0).error != 0) {
      state.SkipWithError("write failed");
      break;
    }
    out.clear();
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(sink.bytes_written()));
  sink.close(0);
  std::filesystem::remove_all(folder());
}
BENCHMARK(BM_EncodeAndWrite)->Arg(0)->Arg(1)->ArgName("compress")->MinTime(3);

void BM_Read(benchmark::State& state) {
  std::filesystem::remove_all(folder());
  Launches launches;
  log::Buffer out;
  log::SinkOptions options;
  options.path = folder() + "/read_bench.ndjson";
  options.segment_bytes = 0;
  log::LogSink sink;
  if (sink.open(options, nullptr) != 0) {
    state.SkipWithError("cannot write to GPUFLIGHT_BENCH_DIR");
    return;
  }
  constexpr std::int64_t kLines = 200'000;
  for (std::int64_t i = 0; i < kLines; ++i) launches.append_next(out);
  sink.write(out.view(), out.lines(), 0);
  const std::string path = sink.path();
  sink.close(0);
  for (auto _ : state) {
    log::LogReader reader(path);
    if (reader.open() != 0) state.SkipWithError("cannot open");
    log::LogEvent event;
    while (reader.next(event) == log::LogReader::Status::kEvent) benchmark::DoNotOptimize(event);
  }
  state.SetItemsProcessed(state.iterations() * kLines);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(out.size()));
  std::filesystem::remove_all(folder());
}
BENCHMARK(BM_Read)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
