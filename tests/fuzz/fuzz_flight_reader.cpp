// Any bytes as a flight file: read, every row and record looked at, joined with a log that is not there and written out
// as lines, which the log reader must find good.
#include <set>
#include <string>
#include <utility>

#include "analysis/recovery.h"
#include "flight/flight_reader.h"
#include "fuzz_target.h"
#include "log/decoder.h"

namespace {

using namespace gpuflight;
using fuzz::demand;

void look_at_everything(const flight::FlightContents& c) {
  for (std::uint32_t i = 0; i <= c.config_rows(); ++i) {
    if (const auto config = c.config(event::ConfigId{i})) demand(c.kernel(config->kernel).has_value());
  }
  for (std::uint32_t i = 0; i <= c.kernel_rows(); ++i) c.kernel(event::KernelId{i});
  for (std::uint32_t i = 0; i <= c.stream_rows(); ++i) c.stream(event::StreamId{i});
  for (std::uint32_t i = 0; i <= c.scope_rows(); ++i) c.scope_path(event::ScopeId{i});
  std::set<std::pair<std::uint32_t, std::uint64_t>> usable;
  for (const flight::HeldChunk& chunk : c.chunks) {
    for (std::uint32_t i = 0; i < chunk.count; ++i) {
      const std::size_t at = chunk.first_record + i;
      demand(at < c.record_count());
      if (c.usable(at)) demand(usable.emplace(chunk.slot, chunk.first_counter + i).second);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  try {
    flight::FlightReader reader(file.path());
    look_at_everything(reader.read());
  } catch (const flight::FlightError&) {
    return 0;
  }
  analysis::RecoveryOptions options;
  options.history = true;
  analysis::Recovery recovery(file.path(), options);
  recovery.run();
  std::string lines;
  recovery.write_lines([&](std::string_view piece) { lines += piece; });
  const analysis::RecoveryResult& result = recovery.result();
  demand(lines.empty() == (result.to_write() == 0));
  const fuzz::MemoryFile log_file(reinterpret_cast<const std::uint8_t*>(lines.data()), lines.size());
  log::ReadOptions reading;
  reading.rotated = false;
  log::LogReader log(log_file.path(), reading);
  demand(log.open() == 0);
  log::LogEvent event;
  std::uint64_t ring_events = 0;
  while (log.next(event) == log::LogReader::Status::kEvent) {
    ring_events += std::holds_alternative<log::KernelEventLine>(event) ||
                   std::holds_alternative<log::GraphLaunchLine>(event) ||
                   std::holds_alternative<log::ScopeLine>(event) || log::api_line(event) != nullptr;
  }
  if (log.stats().trouble_total() != 0) std::fputs(lines.c_str(), stderr);  // to see which line
  demand(log.stats().trouble_total() == 0);
  demand(ring_events == result.to_write());
  return 0;
}
