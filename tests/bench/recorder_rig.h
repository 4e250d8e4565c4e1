// What the benchmarks of the launch path have in common: a recorder without a driver and without its thread, and what
// stands for the driver between two launches.
#pragma once

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <sys/mman.h>
#endif

#include "capture/launch_recorder.h"

namespace gpuflight::bench {

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
  capture::GraphTable graphs{*page, nullptr};
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

  // As the recorder thread would, of the one ring that is used: it goes on from one benchmark to the next.
  void give_back(const flight::Ring& ring) {
    static std::uint32_t first = flight::kNoChunk;
    if (first == flight::kNoChunk) first = rings->first_chunk(ring);
    for (std::uint32_t next; (next = rings->next_chunk(first)) != flight::kNoChunk; first = next) {
      rings->give_back(first);
    }
  }
};

inline Rig& rig() {
  static Rig* const one = new Rig;  // app threads may outlive main's statics, as in real life
  return *one;
}

#if defined(__x86_64__)
// Turns the first-level caches over: code of one jump a line, and data.
class Driver {
 public:
  Driver() : data_(kBytes) {
    code_ = static_cast<unsigned char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t at = 0; at < kBytes; at += kLine) {
      const bool last = at + kLine == kBytes;
      const std::int32_t distance = kLine - 5;
      code_[at] = last ? 0xc3 : 0xe9;  // ret, or jmp to the next line
      if (!last) std::memcpy(code_ + at + 1, &distance, sizeof distance);
    }
  }
  void run() {
    reinterpret_cast<void (*)()>(code_)();
    for (std::size_t at = 0; at < kBytes; at += kLine) data_[at] = static_cast<unsigned char>(data_[at] + 1);
    benchmark::ClobberMemory();
  }

 private:
  static constexpr std::size_t kBytes = 128 * 1024, kLine = 64;
  unsigned char* code_;
  std::vector<unsigned char> data_;
};
#endif

}  // namespace gpuflight::bench
