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

  // At the end of a recording whose events are all in the log: gives back the disk blocks of what is not needed any
  // more, so that a clean run leaves a few hundred kilobytes behind and not the whole reservation. The file keeps its
  // size and layout; the parts given back read as zeros. `keep_chunk` says which chunks stay.
  template <class Keep>
  void release_unused(std::uint64_t kernels, std::uint64_t configs, Keep&& keep_chunk) noexcept {
    if (!mapped()) return;
    const Header& h = header();
    release(offsets_.kernels + kernels * sizeof(KernelEntry), offsets_.configs);
    release(offsets_.configs + configs * sizeof(ConfigEntry), offsets_.streams);
    release(offsets_.streams + h.streams_used.load() * sizeof(StreamEntry), offsets_.scopes);
    release(offsets_.scopes + h.scopes_used.load() * sizeof(ScopeEntry), offsets_.strings);
    release(offsets_.strings + h.strings_used.load(), offsets_.chunks);
    std::uint32_t from = 0;
    for (std::uint32_t i = 0; i <= chunk_count_; ++i) {
      if (i < chunk_count_ && !keep_chunk(i)) continue;
      release(offsets_.chunks + std::uint64_t{from} * kChunkBytes, offsets_.chunks + std::uint64_t{i} * kChunkBytes);
      from = i + 1;
    }
  }

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

  // Maps the pages of these chunks for writing, so that whoever writes there first finds them; what they hold stays.
  // False: the kernel (before 5.14) or the disk does not let it, and a page is mapped when it is written to.
  bool populate(std::uint32_t first_chunk, std::uint32_t count) noexcept;

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
  void release(std::uint64_t begin, std::uint64_t end) noexcept;
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
