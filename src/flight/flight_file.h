// The mapped flight file: made, reserved on disk, laid out. Falls back to private memory of the same layout where a
// file cannot be had or cannot be trusted not to raise SIGBUS in the host.
//
// Threads: made by the recorder thread, which blocks all signals (SIGXFSZ from reserving kills the host otherwise).
// May block (reserving writes to disk). Owns: the mapping, for the life of the process; it is never unmapped, since an
// app thread may be about to write into it.
#pragma once

#include <cstdint>
#include <string>

#include "flight/layout.h"

namespace gpuflight::flight {

struct Capacities {
  std::uint64_t pool_bytes = 32u << 20;
  std::uint32_t kernels = 16384;
  std::uint32_t configs = 65536;
  std::uint32_t streams = 16384;
  std::uint32_t scopes = 16384;
  std::uint64_t string_bytes = 8u << 20;
};

class FlightFile {
 public:
  struct Result {
    bool mapped = false;   // there is memory to record into
    bool on_disk = false;  // and it is a file that outlives the process
    std::string path;      // of the file; empty: none
    std::string problem;   // why there is no file, or why none at all; one line
  };

  // `path` empty: private memory, on purpose. An existing file is never touched: another name is taken (NAME.2.flight).
  Result create(const std::string& path, const Capacities& capacities);

  // Forgets the mapping without touching it: in a forked child, where it is not mapped.
  void abandon() noexcept { base_ = nullptr; }

  Header& header() const noexcept { return *reinterpret_cast<Header*>(base_); }
  LedgerBlock& ledger() const noexcept { return *at<LedgerBlock>(offsets_.ledger); }
  ThreadSlot* slots() const noexcept { return at<ThreadSlot>(offsets_.slots); }
  KernelEntry* kernels() const noexcept { return at<KernelEntry>(offsets_.kernels); }
  ConfigEntry* configs() const noexcept { return at<ConfigEntry>(offsets_.configs); }
  StreamEntry* streams() const noexcept { return at<StreamEntry>(offsets_.streams); }
  ScopeEntry* scopes() const noexcept { return at<ScopeEntry>(offsets_.scopes); }
  char* strings() const noexcept { return at<char>(offsets_.strings); }
  Chunk* chunks() const noexcept { return at<Chunk>(offsets_.chunks); }

  const Capacities& capacities() const noexcept { return capacities_; }
  std::uint32_t chunk_count() const noexcept { return chunk_count_; }
  std::uint64_t bytes() const noexcept { return offsets_.end; }
  bool mapped() const noexcept { return base_ != nullptr; }

 private:
  struct Offsets {
    std::uint64_t ledger = 0, slots = 0, kernels = 0, configs = 0, streams = 0, scopes = 0, strings = 0, chunks = 0,
                  end = 0;
  };

  template <class T>
  T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }
  void plan(const Capacities& capacities);
  bool map_file(const std::string& path, Result& result);
  bool map_private(Result& result);
  void write_header();

  char* base_ = nullptr;
  Offsets offsets_;
  Capacities capacities_;
  std::uint32_t chunk_count_ = 0;
};

}  // namespace gpuflight::flight
