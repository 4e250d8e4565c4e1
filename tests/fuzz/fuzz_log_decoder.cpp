// Any bytes as a log, plain or compressed, read to the end and followed: no crash, no endless loop, every line
// accounted for.
#include <string>

#include "fuzz_target.h"
#include "log/decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using gpuflight::fuzz::demand;
  using gpuflight::log::LogReader;
  const gpuflight::fuzz::MemoryFile file(data, size);
  for (const bool follow : {false, true}) {
    gpuflight::log::ReadOptions options;
    options.follow = follow;
    options.rotated = false;
    options.max_line_bytes = 1 << 16;
    LogReader reader(file.path(), options);
    demand(reader.open() == 0);
    gpuflight::log::LogEvent event;
    std::uint64_t events = 0;
    while (reader.next(event) == LogReader::Status::kEvent) {
      demand(event.index() != 0 && !reader.line().empty());
      ++events;
    }
    const gpuflight::log::ReadStats& stats = reader.stats();
    demand(stats.events == events && stats.filtered == 0);
    demand(stats.lines >= events + stats.blank);
    demand(stats.file_bytes <= size);
  }
  return 0;
}
