// Makes the seeds in corpus/flight: what the recorder's own code writes, put into a layout as small as the format
// allows, so that a fuzzer's changes hit something.
//
//   make_flight_seeds FOLDER
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "flight/flight_file.h"
#include "flight/ring.h"
#include "flight/table_writer.h"

namespace {

using namespace gpuflight;
using namespace gpuflight::flight;

constexpr std::uint32_t kSlots = 4, kRows = 3, kRecords = 5, kChunks = 6, kStrings = 128;
constexpr std::uint32_t kSmallChunk = sizeof(ChunkHeader) + kRecords * sizeof(Record);

void add(Ring* ring, std::int64_t ns, RecordKind kind, RecordPhase phase, std::int32_t status = 0) {
  Record* const r = ring->begin();
  r->kind = static_cast<std::uint8_t>(kind);
  r->flags = 0;
  r->config = kind == RecordKind::kKernelLaunch ? 1 : 0;
  r->launch_ns = ns;
  r->call_ns = 2000;
  r->status = status;
  r->grid_x = 16;
  r->grid_y = r->grid_z = 1;
  r->stream = 1;
  r->correlation = 5;
  r->scope = kind == RecordKind::kKernelLaunch ? 2 : 1;
  r->graph = kind == RecordKind::kGraphLaunch ? 1 : 0;
  r->thread = 42;
  r->phase.store(static_cast<std::uint8_t>(phase));
  ring->publish();
}

template <class T>
std::string bytes_of(const T* from, std::size_t count) {
  return {reinterpret_cast<const char*>(from), count * sizeof(T)};
}

// `last`: phase of the last record of slot 1.
std::string make(RecordPhase last, std::int32_t status, SessionState state) {
  FlightFile file;
  Capacities capacities;
  capacities.pool_bytes = 0;
  capacities.kernels = capacities.configs = capacities.streams = capacities.scopes = kRows;
  capacities.string_bytes = kStrings;
  file.create("", capacities);
  TableWriter rows(file);
  event::KernelInfo kernel;
  kernel.name = "_Z4tickPf";
  kernel.num_regs = 16;
  event::KernelConfig config;
  config.kernel = rows.add_kernel(kernel);
  config.shape.block = {256, 1, 1};
  config.occupancy.source = event::OccupancySource::kDriver;
  config.occupancy.max_active_blocks = 8;
  config.occupancy.warps_per_block = 8;
  config.occupancy.max_warps_per_sm = 64;
  config.occupancy.limiters = 1;
  rows.add_config(config);
  event::StreamInfo stream;
  stream.device = 0;
  rows.add_stream(stream);
  rows.add_scope(rows.add_scope({}, "step"), "forward");
  RingSet rings(file);
  Ring* const one = rings.acquire(42, "one");
  Ring* const two = rings.acquire(43, "two");
  add(one, 10, RecordKind::kScopeBegin, RecordPhase::kReturned);
  for (int i = 1; i < 11; ++i) add(one, i * 100, RecordKind::kKernelLaunch, RecordPhase::kReturned, status);
  add(one, 1100, RecordKind::kKernelLaunch, last);
  add(two, 500, RecordKind::kGraphLaunch, RecordPhase::kReturned);
  add(two, 600, RecordKind::kMark, RecordPhase::kReturned);

  Header& h = file.header();
  h.pid = 5'000'000;  // beyond what Linux gives out
  h.t0_unix_ns = 1'700'000'000'000'000'000;
  std::strcpy(h.program, "/bin/train");
  h.state.store(static_cast<std::uint32_t>(state));
  h.details = 1;
  h.slot_count = kSlots;
  h.chunk_count = kChunks;
  h.chunk_bytes = kSmallChunk;
  std::uint64_t at = (sizeof(Header) + 63) / 64 * 64;
  const auto place = [&at](std::uint64_t& offset, std::uint64_t bytes) {
    offset = at;
    at = (at + bytes + 63) / 64 * 64;
  };
  place(h.ledger_offset, sizeof(LedgerBlock));
  place(h.slots_offset, kSlots * sizeof(ThreadSlot));
  place(h.kernels_offset, kRows * sizeof(KernelEntry));
  place(h.configs_offset, kRows * sizeof(ConfigEntry));
  place(h.streams_offset, kRows * sizeof(StreamEntry));
  place(h.scopes_offset, kRows * sizeof(ScopeEntry));
  place(h.strings_offset, kStrings);
  place(h.chunks_offset, kChunks * kSmallChunk);
  h.file_bytes = at;

  std::string out(at, '\0');
  const auto put = [&out](std::uint64_t offset, const std::string& bytes) { out.replace(offset, bytes.size(), bytes); };
  put(0, bytes_of(&h, 1));
  put(h.ledger_offset, bytes_of(&file.ledger(), 1));
  put(h.slots_offset, bytes_of(file.slots(), kSlots));
  put(h.kernels_offset, bytes_of(file.kernels(), kRows));
  put(h.configs_offset, bytes_of(file.configs(), kRows));
  put(h.streams_offset, bytes_of(file.streams(), kRows));
  put(h.scopes_offset, bytes_of(file.scopes(), kRows));
  put(h.strings_offset, bytes_of(file.strings(), kStrings));
  std::uint32_t chunk = 0;
  for (const std::uint32_t slot : {1u, 2u}) {
    const Chunk& whole = rings.chunk(rings.first_chunk(*rings.ring(slot)));
    const std::uint32_t all = whole.header.committed.load();
    for (std::uint32_t first = 0; first < all; first += kRecords, ++chunk) {
      const std::uint32_t count = std::min(kRecords, all - first);
      std::string bytes(sizeof(ChunkHeader), '\0');
      auto& header = *reinterpret_cast<ChunkHeader*>(bytes.data());
      header.slot_plus_one.store(slot + 1);
      header.committed.store(count);
      header.first_counter.store(first);
      header.taken.store(first == 0 ? std::min(3u, count) : 0);
      bytes += bytes_of(&whole.records[first], count);
      put(h.chunks_offset + chunk * kSmallChunk, bytes);
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder(argv[1]);
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  };
  write("killed.flight", make(RecordPhase::kEntered, 0, SessionState::kRecording));
  write("cuda_error.flight", make(RecordPhase::kAbandoned, 700, SessionState::kPaused));
  write("closed.flight", make(RecordPhase::kReturned, 0, SessionState::kClosed));
  return 0;
}
