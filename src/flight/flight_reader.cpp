#include "flight/flight_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace gpuflight::flight {
namespace {

// What a newer minor version could make of the two sizes in the header, and nothing beyond.
constexpr std::uint32_t kMaxRecordBytes = 4096, kMaxChunkBytes = 16u << 20;
constexpr int kChunkTries = 3;

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

}  // namespace

// Where everything is, as the header says; what lies beyond the file is found out at reading.
struct FlightReader::Sections {
  std::uint32_t record_bytes = 0, chunk_bytes = 0, records_per_chunk = 0;
  std::uint32_t slot_count = 0, chunk_count = 0;
  std::uint32_t kernel_capacity = 0, config_capacity = 0, stream_capacity = 0, scope_capacity = 0;
  std::uint64_t ledger = 0, slots = 0, kernels = 0, configs = 0, streams = 0, scopes = 0, strings = 0, chunks = 0;
  std::uint64_t strings_bytes = 0;
};

FlightReader::FlightReader(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a pipe of that name must not hold us up.
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw FlightError(path_ + ": " + std::strerror(errno));
  check_regular();
}

FlightReader::FlightReader(int fd, std::string name) : path_(std::move(name)), fd_(fd) { check_regular(); }

FlightReader::~FlightReader() {
  if (fd_ >= 0) close(fd_);
}

void FlightReader::check_regular() {
  struct stat info{};
  if (fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) return;
  close(fd_);
  fd_ = -1;
  fail("not a regular file");
}

void FlightReader::fail(const std::string& what) const { throw FlightError(path_ + ": " + what); }

bool FlightReader::looks_like_one(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  char magic[sizeof kMagic];
  const bool same = pread(fd, magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) &&
                    std::memcmp(magic, kMagic, sizeof kMagic) == 0;
  close(fd);
  return same;
}

// As many bytes as there are; a file may be cut shorter at any time.
std::uint64_t FlightReader::pread_some(void* to, std::uint64_t bytes, std::uint64_t offset) const {
  std::uint64_t done = 0;
  while (done < bytes && offset + done < size_) {
    const std::uint64_t want = std::min<std::uint64_t>(bytes - done, 1u << 30);
    const ssize_t n = pread(fd_, static_cast<char*>(to) + done, want, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::uint64_t>(n);
  }
  return done;
}

FlightContents FlightReader::read(const ReadLimits& limits) {
  struct stat info{};
  if (fstat(fd_, &info) != 0) fail(std::strerror(errno));
  size_ = static_cast<std::uint64_t>(info.st_size);
  FlightContents contents;
  contents.actual_bytes = size_;
  const Sections sections = read_header(contents);
  // Slots before chunks: what a slot says was seen is in a chunk by then, or in the log.
  read_slots(sections, contents);
  read_chunks(sections, limits.record_bytes / sizeof(Record), contents);
  // Tables after chunks: a record's rows were there before it.
  read_table(sections.kernels, sections.kernel_capacity, limits.table_rows, contents.kernels_, contents);
  read_table(sections.configs, sections.config_capacity, limits.table_rows, contents.configs_, contents);
  read_table(sections.streams, sections.stream_capacity, limits.table_rows, contents.streams_, contents);
  read_table(sections.scopes, sections.scope_capacity, limits.table_rows, contents.scopes_, contents);
  read_strings(sections, limits.string_bytes, contents);
  read_ledger(sections, contents);
  contents.check_rows();
  contents.check_records();
  return contents;
}

FlightReader::Sections FlightReader::read_header(FlightContents& contents) {
  Copied<Header> copy;
  Header& h = copy.get();
  const std::uint64_t got = pread_some(&h, sizeof h, 0);
  if (got < sizeof h.magic || std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) {
    const char* const zero = static_cast<const char*>(static_cast<const void*>(&h));
    const bool unfinished =
        got >= sizeof h.magic && std::all_of(zero, zero + sizeof h.magic, [](char c) { return c == 0; });
    fail(unfinished ? "not a flight file, or its recorder ended while it was being made" : "not a flight file");
  }
  if (got < offsetof(Header, record_bytes)) fail("a flight file cut off in its header");
  if (h.endian_mark != kEndianMark) fail("a flight file of a machine with another byte order");
  if (h.version_major != event::kFlightMajor) {
    fail("flight file version " + std::to_string(h.version_major) + "." + std::to_string(h.version_minor) +
         "; this program reads version " + std::to_string(event::kFlightMajor) + ".x");
  }
  if (got < sizeof h) fail("a flight file cut off in its header");

  FlightHeader& out = contents.header;
  out.version_major = h.version_major;
  out.version_minor = h.version_minor;
  out.pid = h.pid;
  out.process_start_ticks = h.process_start_ticks;
  out.t0_unix_ns = h.t0_unix_ns;
  out.t0_monotonic_ns = h.t0_monotonic_ns;
  out.boot_id = text_of(h.boot_id);
  out.host = text_of(h.host);
  out.program = text_of(h.program);
  out.log_path = text_of(h.log_path);
  const std::uint32_t state = h.state.load();
  out.state = state <= static_cast<std::uint32_t>(SessionState::kDisabled) ? static_cast<SessionState>(state)
                                                                           : SessionState::kEmpty;
  if (static_cast<std::uint32_t>(out.state) != state) contents.count(FlightTrouble::kBadSection);
  out.heartbeat_ns = h.heartbeat_ns.load();
  out.blackbox = h.mode == 1;
  out.details = h.details != 0;
  out.chunk_count = h.chunk_count;
  out.file_bytes = h.file_bytes;

  Sections s;
  s.record_bytes = h.record_bytes;
  s.chunk_bytes = h.chunk_bytes;
  const bool sizes_make_sense = s.record_bytes >= kRecordBytes && s.record_bytes <= kMaxRecordBytes &&
                                s.chunk_bytes <= kMaxChunkBytes &&
                                s.chunk_bytes >= sizeof(ChunkHeader) + std::uint64_t{s.record_bytes};
  if (sizes_make_sense) {
    s.records_per_chunk = static_cast<std::uint32_t>((s.chunk_bytes - sizeof(ChunkHeader)) / s.record_bytes);
    s.chunk_count = h.chunk_count;
  } else {
    contents.count(FlightTrouble::kBadSection);
  }
  s.slot_count = h.slot_count;
  if (s.slot_count > event::kMaxThreadSlots) {
    contents.count(FlightTrouble::kBadSection);
    s.slot_count = event::kMaxThreadSlots;
  }
  s.kernel_capacity = h.kernel_capacity;
  s.config_capacity = h.config_capacity;
  s.stream_capacity = h.stream_capacity;
  s.scope_capacity = h.scope_capacity;
  s.ledger = h.ledger_offset;
  s.slots = h.slots_offset;
  s.kernels = h.kernels_offset;
  s.configs = h.configs_offset;
  s.streams = h.streams_offset;
  s.scopes = h.scopes_offset;
  s.strings = h.strings_offset;
  s.strings_bytes = h.strings_bytes;
  s.chunks = h.chunks_offset;
  return s;
}

void FlightReader::read_slots(const Sections& sections, FlightContents& contents) {
  std::vector<Copied<ThreadSlot>> rows;
  read_table(sections.slots, sections.slot_count, event::kMaxThreadSlots, rows, contents);
  for (const auto& copy : rows) {
    const ThreadSlot& row = copy.get();
    FlightSlot slot;
    slot.owner_tid = row.owner_tid.load();
    slot.generation = row.generation.load();
    slot.seen = row.seen.load();
    slot.dropped = row.dropped.load();
    slot.name = text_of(row.name);
    // A counter has 40 bits, and at most all that was seen was dropped. (On its way a drop is in `seen` first.)
    if (slot.seen >> event::kSeqCounterBits != 0 || slot.dropped > slot.seen) {
      contents.count(FlightTrouble::kBadSlot);
      slot.seen = slot.dropped = 0;
    }
    contents.slots.push_back(std::move(slot));
  }
  while (!contents.slots.empty() && contents.slots.back().generation == 0 && contents.slots.back().seen == 0) {
    contents.slots.pop_back();
  }
}

void FlightReader::read_ledger(const Sections& sections, FlightContents& contents) {
  Copied<LedgerBlock> copy;
  LedgerBlock& block = copy.get();
  if (pread_some(&block, sizeof block, sections.ledger) < sizeof block) {
    contents.count(FlightTrouble::kTruncated);
    std::memset(static_cast<void*>(&block), 0, sizeof block);
  }
  event::Ledger& ledger = contents.ledger;
  ledger.written = block.written.load();
  ledger.summarised = block.summarised.load();
  ledger.rotated_away = block.rotated_away.load();
  ledger.null_time = block.null_time.load();
  ledger.table_full = block.table_full.load();
  ledger.occupancy_mismatch = block.occupancy_mismatch.load();
  for (std::size_t i = 0; i < ledger.lost.size(); ++i) ledger.lost[i] = block.lost[i].load();
  ledger.seen = ledger.lost[static_cast<std::size_t>(event::LossCause::kNoThreadSlot)];
  std::uint64_t dropped = 0;
  for (const FlightSlot& slot : contents.slots) {
    ledger.seen += slot.seen;
    dropped += slot.dropped;
  }
  ledger.lost[static_cast<std::size_t>(event::LossCause::kPoolEmpty)] = dropped;
  contents.drained = block.drained.load();
  contents.log_bytes = block.bytes.load();
}

template <class Row>
void FlightReader::read_table(std::uint64_t offset, std::uint32_t capacity, std::uint32_t most,
                              std::vector<Copied<Row>>& rows, FlightContents& contents) {
  static_assert(sizeof(Copied<Row>) == sizeof(Row));
  if (capacity == 0) return;
  if (offset < sizeof(Header)) return contents.count(FlightTrouble::kBadSection);
  if (capacity > most) {
    contents.count(FlightTrouble::kBeyondLimit, capacity - most);
    capacity = most;
  }
  const std::uint64_t there = offset < size_ ? (size_ - offset) / sizeof(Row) : 0;
  rows.resize(static_cast<std::size_t>(std::min<std::uint64_t>(capacity, there)));
  const std::uint64_t got = pread_some(rows.data(), rows.size() * sizeof(Row), offset) / sizeof(Row);
  rows.resize(static_cast<std::size_t>(got));
  if (got < capacity) contents.count(FlightTrouble::kTruncated, capacity - got);
}

void FlightReader::read_strings(const Sections& sections, std::uint64_t most, FlightContents& contents) {
  std::uint64_t bytes = sections.strings_bytes;
  if (bytes == 0) return;
  if (sections.strings < sizeof(Header)) return contents.count(FlightTrouble::kBadSection);
  if (bytes > most) {
    contents.count(FlightTrouble::kBeyondLimit);
    bytes = most;
  }
  const std::uint64_t there = sections.strings < size_ ? size_ - sections.strings : 0;
  if (there < bytes) contents.count(FlightTrouble::kTruncated);
  contents.strings_.resize(static_cast<std::size_t>(std::min(bytes, there)));
  contents.strings_.resize(
      static_cast<std::size_t>(pread_some(contents.strings_.data(), contents.strings_.size(), sections.strings)));
}

void FlightReader::read_chunks(const Sections& sections, std::uint64_t most_records, FlightContents& contents) {
  std::uint32_t count = sections.chunk_count;
  if (count == 0) return;
  if (sections.chunks < sizeof(Header)) return contents.count(FlightTrouble::kBadSection);
  // A chunk of which only the first records are there still counts as there.
  const std::uint64_t bytes = sections.chunks < size_ ? size_ - sections.chunks : 0;
  const bool part = bytes % sections.chunk_bytes >= sizeof(ChunkHeader);
  const std::uint64_t there = bytes / sections.chunk_bytes + (part ? 1 : 0);
  if (there < count) {
    contents.count(FlightTrouble::kTruncated, count - there);
    count = static_cast<std::uint32_t>(there);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    i = next_with_data(sections, i);
    if (i >= count) break;
    read_chunk(sections, i, most_records, contents);
  }
}

// A file of terabytes may be one big hole: skips what was never written. `index` itself where the system cannot tell.
std::uint32_t FlightReader::next_with_data(const Sections& sections, std::uint32_t index) const {
  constexpr std::uint32_t kStride = 64;  // not for each chunk: it is a system call
  if (index % kStride != 0) return index;
  const std::uint64_t here = sections.chunks + std::uint64_t{index} * sections.chunk_bytes;
  const off_t data = lseek(fd_, static_cast<off_t>(here), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? ~0u : index;
  if (static_cast<std::uint64_t>(data) <= here) return index;
  const std::uint64_t next = (static_cast<std::uint64_t>(data) - sections.chunks) / sections.chunk_bytes;
  return next > ~0u ? ~0u : static_cast<std::uint32_t>(next);
}

void FlightReader::read_chunk(const Sections& sections, std::uint32_t index, std::uint64_t most_records,
                              FlightContents& contents) {
  const std::uint64_t offset = sections.chunks + std::uint64_t{index} * sections.chunk_bytes;
  std::vector<Copied<Record>>& records = contents.records_;
  const std::size_t first_record = records.size();
  for (int attempt = 0; attempt < kChunkTries; ++attempt) {
    records.resize(first_record);
    Copied<ChunkHeader> before, after;
    if (pread_some(&before.get(), sizeof(ChunkHeader), offset) < sizeof(ChunkHeader)) {
      return contents.count(FlightTrouble::kTruncated);
    }
    const std::uint32_t slot_plus_one = before.get().slot_plus_one.load();
    const std::uint32_t committed = before.get().committed.load();
    const std::uint64_t first_counter = before.get().first_counter.load();
    if (slot_plus_one == 0 && committed == 0) return;
    // Slot 0 is the recorder's own and has no ring.
    if (slot_plus_one <= 1 || slot_plus_one > sections.slot_count || committed > sections.records_per_chunk ||
        before.get().taken.load() > committed || first_counter >> event::kSeqCounterBits != 0) {
      // Torn while its thread takes it into use: the next look finds it whole, or, if that thread has lost the processor
      // or its life in between, still empty.
      if (attempt + 1 < kChunkTries) continue;
      if (committed == 0) return;
      return contents.count(FlightTrouble::kBadChunk);
    }
    if (first_record + committed > most_records) return contents.count(FlightTrouble::kBeyondLimit);
    records.resize(first_record + committed);
    std::uint32_t got = committed;
    if (sections.record_bytes == sizeof(Record)) {
      const std::uint64_t bytes = pread_some(records.data() + first_record, std::uint64_t{committed} * sizeof(Record),
                                             offset + sizeof(ChunkHeader));
      got = static_cast<std::uint32_t>(bytes / sizeof(Record));
    } else {
      for (std::uint32_t i = 0; i < committed && got == committed; ++i) {
        const std::uint64_t at = offset + sizeof(ChunkHeader) + std::uint64_t{i} * sections.record_bytes;
        if (pread_some(&records[first_record + i], sizeof(Record), at) < sizeof(Record)) got = i;
      }
    }
    if (pread_some(&after.get(), sizeof(ChunkHeader), offset) < sizeof(ChunkHeader)) got = 0;
    // The same life of the chunk as before: what was committed then is whole now.
    if (got == committed && (after.get().slot_plus_one.load() != slot_plus_one ||
                             after.get().first_counter.load() != first_counter ||
                             after.get().committed.load() < committed)) {
      continue;
    }
    if (got < committed) contents.count(FlightTrouble::kTruncated, committed - got);
    records.resize(first_record + got);
    HeldChunk chunk;
    chunk.slot = slot_plus_one - 1;
    chunk.index = index;
    chunk.first_counter = first_counter;
    chunk.count = got;
    chunk.room = sections.records_per_chunk;
    chunk.taken = std::min(before.get().taken.load(), got);
    chunk.first_record = first_record;
    contents.chunks.push_back(chunk);
    return;
  }
  records.resize(first_record);
  contents.count(FlightTrouble::kMovedChunk);
}

}  // namespace gpuflight::flight
