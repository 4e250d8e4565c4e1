// What a flight file held when it was read: plain data, checked, in private memory. Rows and records that made no sense
// are not in here; they are counted in `troubles`.
//
// For tools. Threads: one owner, or many readers. Made by FlightReader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "event/events.h"
#include "flight/layout.h"

namespace gpuflight::flight {

// What could not be read, by kind.
enum class FlightTrouble : std::uint8_t {
  kTruncated,      // rows, slots and chunks that the header tells of and the file does not hold
  kBadSection,     // a section whose place or size makes no sense
  kBadSlot,        // a thread slot that contradicts its own chunks
  kBadRow,         // a table row with impossible values
  kBadString,      // a name that is not in the string arena
  kBadChunk,       // a chunk header with impossible values
  kMovedChunk,     // used again by the recorder while it was being read: its lines are in the log
  kStaleRecord,    // left over from the chunk's life before
  kBadRecord,      // impossible values
  kUnknownRecord,  // of a kind this version does not know
  kOverlap,        // a record whose sequence number another chunk holds as well
  kBeyondLimit,    // more than ReadLimits allows
};
inline constexpr int kFlightTroubleCount = 12;
const char* flight_trouble_name(FlightTrouble trouble);

struct FlightHeader {
  std::uint16_t version_major = 0, version_minor = 0;
  std::int64_t pid = 0;
  std::uint64_t process_start_ticks = 0;
  std::int64_t t0_unix_ns = 0, t0_monotonic_ns = 0;
  std::string boot_id, host, program, log_path;
  SessionState state = SessionState::kEmpty;
  std::uint64_t heartbeat_ns = 0;
  bool blackbox = false;
  bool details = false;
  std::uint32_t chunk_count = 0;
  std::uint64_t file_bytes = 0;  // as the header says
};

struct FlightSlot {
  std::uint32_t owner_tid = 0;
  std::uint32_t generation = 0;
  std::uint64_t seen = 0;
  std::uint64_t dropped = 0;
  std::string name;
};

// Consecutive records of one slot: record i has the sequence number (slot, first_counter + i).
struct HeldChunk {
  std::uint32_t slot = 0;
  std::uint32_t index = 0;  // in the file
  std::uint64_t first_counter = 0;
  std::uint32_t count = 0;
  std::uint32_t room = 0;          // records a chunk of this file can hold
  std::uint32_t taken = 0;         // of them the recorder has dealt with: a line, a summary or a counted loss
  std::size_t first_record = 0;    // index for FlightContents::record
};

// A row or record as copied out of the file. The layout's structs hold atomics and cannot be copied themselves.
template <class T>
class Copied {
 public:
  const T& get() const { return *std::launder(reinterpret_cast<const T*>(bytes_)); }
  T& get() { return *std::launder(reinterpret_cast<T*>(bytes_)); }

 private:
  alignas(T) std::byte bytes_[sizeof(T)] = {};
};

class FlightContents {
 public:
  FlightHeader header;
  event::Ledger ledger;  // as the recorder last published it; seen and pool_empty from the slots; pending: 0
  std::uint64_t drained = 0, log_bytes = 0;
  std::vector<FlightSlot> slots;   // by index, up to the last one ever used
  std::vector<HeldChunk> chunks;   // by slot, then counter; those without records included
  std::array<std::uint64_t, kFlightTroubleCount> troubles{};
  std::uint64_t actual_bytes = 0;  // of the file

  std::uint64_t operator[](FlightTrouble trouble) const { return troubles[static_cast<std::size_t>(trouble)]; }
  std::uint64_t trouble_total() const;

  // Records of all chunks behind one another. One that is not usable must not be looked at.
  std::size_t record_count() const { return records_.size(); }
  const Record& record(std::size_t index) const { return records_[index].get(); }
  bool usable(std::size_t index) const { return usable_[index]; }
  RecordPhase phase(std::size_t index) const { return static_cast<RecordPhase>(record(index).phase.load()); }
  // Index of the record with that sequence number, usable or not.
  std::optional<std::size_t> find(event::Seq seq) const;

  // Rows by id; nullopt: none, never written, or not to be trusted.
  std::optional<event::KernelInfo> kernel(event::KernelId id) const;
  std::optional<event::KernelConfig> config(event::ConfigId id) const;
  std::optional<event::StreamInfo> stream(event::StreamId id) const;
  // Work of the stream whose launch call had returned by then is done; 0: nothing is known.
  std::int64_t finished_ns(event::StreamId id) const;
  std::optional<std::string> scope_path(event::ScopeId id) const;  // outermost first, joined by '/'

  std::uint32_t kernel_rows() const { return static_cast<std::uint32_t>(kernels_.size()); }
  std::uint32_t config_rows() const { return static_cast<std::uint32_t>(configs_.size()); }
  std::uint32_t stream_rows() const { return static_cast<std::uint32_t>(streams_.size()); }
  std::uint32_t scope_rows() const { return static_cast<std::uint32_t>(scopes_.size()); }

 private:
  friend class FlightReader;

  std::optional<std::string_view> string_at(std::uint32_t offset) const;
  void check_rows();
  void check_records();
  void count(FlightTrouble trouble, std::uint64_t n = 1) { troubles[static_cast<std::size_t>(trouble)] += n; }

  std::vector<Copied<KernelEntry>> kernels_;
  std::vector<Copied<ConfigEntry>> configs_;
  std::vector<Copied<StreamEntry>> streams_;
  std::vector<Copied<ScopeEntry>> scopes_;
  std::vector<char> strings_;
  std::vector<Copied<Record>> records_;
  std::vector<bool> usable_;
};

}  // namespace gpuflight::flight
