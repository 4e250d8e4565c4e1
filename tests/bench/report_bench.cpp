// How fast a log is read and summed up, as `gpuflight report` does: steps of a program with kernels, copies, calls and
// scopes (tests/inject/cli_timeline.cpp). The goal: 300 MB of log per second on one core.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../inject/cli_timeline.h"
#include "analysis/log_summary.h"

namespace {

using namespace gpuflight;

constexpr std::uint64_t kSteps = 20'000;  // 101 MB

std::string write_log() {
  const char* const chosen = std::getenv("GPUFLIGHT_BENCH_DIR");
  const std::string path =
      std::string(chosen != nullptr ? chosen : std::filesystem::temp_directory_path().c_str()) + "/report_bench.ndjson";
  std::ofstream file(path, std::ios::binary);
  log::Buffer lines;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    cli_test::append_step(lines, i);
    if (i % 1000 != 999) continue;
    file << lines.view();
    lines.clear();
  }
  return path;
}

void BM_Report(benchmark::State& state) {
  const std::string path = write_log();
  std::uint64_t bytes = 0, lines = 0;
  for (auto _ : state) {
    analysis::LogSummary summary(static_cast<analysis::GroupBy>(state.range(0)));
    log::LogReader reader(path);
    if (reader.open() != 0) state.SkipWithError("cannot open");
    summary.begin_log(path);
    log::LogEvent event;
    while (reader.next(event) == log::LogReader::Status::kEvent) summary.add(event);
    summary.end_log(reader.stats());
    benchmark::DoNotOptimize(summary.totals());
    bytes += reader.stats().bytes;
    lines += reader.stats().lines;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  state.SetItemsProcessed(static_cast<std::int64_t>(lines));
  std::filesystem::remove(path);
}
BENCHMARK(BM_Report)
    ->Arg(static_cast<int>(analysis::GroupBy::kKernel))
    ->Arg(static_cast<int>(analysis::GroupBy::kScope))
    ->ArgName("by")
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
