// The reader of flight files: of what a recorder leaves, of a file that is written to meanwhile, and of files that lie.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "flight/flight_reader.h"
#include "flight_fixture.h"

namespace gpuflight::flight {
namespace {

class FlightReaderTest : public FolderTest {
 protected:
  // Message of the FlightError that reading throws; empty: none.
  static std::string error_of(const std::string& file) {
    try {
      FlightReader(file).read();
    } catch (const FlightError& error) {
      return error.what();
    }
    return "";
  }
  // Two chunks of slot 1 and one of slot 2, a kernel, a stream and nested scopes.
  std::string make_file() const {
    FlightWriter w(path("a.flight"));
    const auto config = w.add_config("_Z4tickPf");
    event::StreamInfo stream;
    stream.kind = event::StreamInfo::Kind::kCreated;
    stream.device = 0;
    stream.priority = -5;
    w.rows->add_stream(stream);
    w.rows->add_scope(w.rows->add_scope({}, "step"), "forward");
    Ring* const one = w.rings->acquire(100, "one");
    Ring* const two = w.rings->acquire(200, "two");
    for (int i = 0; i < 300; ++i) w.launch(one, i * 10, config.value);
    for (int i = 0; i < 7; ++i) w.launch(two, i * 10 + 5, config.value);
    w.rings->chunk(w.rings->first_chunk(*one)).header.taken.store(kRecordsPerChunk);
    return path("a.flight");
  }
};

TEST_F(FlightReaderTest, GivesBackWhatWasWritten) {
  const FlightContents c = FlightReader(make_file()).read();
  EXPECT_EQ(c.trouble_total(), 0u);
  EXPECT_EQ(c.header.pid, 4242);
  EXPECT_EQ(c.header.process_start_ticks, 77u);
  EXPECT_EQ(c.header.t0_unix_ns, FlightWriter::kT0);
  EXPECT_EQ(c.header.program, "/bin/train");
  EXPECT_EQ(c.header.state, SessionState::kRecording);
  ASSERT_EQ(c.slots.size(), 3u);
  EXPECT_EQ(c.slots[1].seen, 300u);
  EXPECT_EQ(c.slots[1].name, "one");
  EXPECT_EQ(c.slots[2].seen, 7u);
  EXPECT_EQ(c.ledger.seen, 307u);

  ASSERT_EQ(c.chunks.size(), 3u);
  EXPECT_EQ(c.chunks[0].slot, 1u);
  EXPECT_EQ(c.chunks[0].count, kRecordsPerChunk);
  EXPECT_EQ(c.chunks[0].taken, kRecordsPerChunk);
  EXPECT_EQ(c.chunks[1].first_counter, kRecordsPerChunk);
  EXPECT_EQ(c.chunks[1].count, 300 - kRecordsPerChunk);
  EXPECT_EQ(c.chunks[1].taken, 0u);
  EXPECT_EQ(c.chunks[2].slot, 2u);
  const auto at = c.find(event::Seq(1, 290));
  ASSERT_TRUE(at);
  EXPECT_TRUE(c.usable(*at));
  EXPECT_EQ(c.record(*at).launch_ns, 2900);
  EXPECT_FALSE(c.find(event::Seq(1, 300)));
  EXPECT_FALSE(c.find(event::Seq(3, 0)));

  const auto config = c.config(event::ConfigId{1});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->shape.block.x, 256u);
  EXPECT_EQ(config->occupancy.max_active_blocks, 5);
  EXPECT_EQ(config->occupancy.limiter, event::Limiter::kSharedMem);
  EXPECT_EQ(c.kernel(config->kernel)->name, "_Z4tickPf");
  EXPECT_EQ(c.kernel(config->kernel)->static_shared_bytes, 16384);
  EXPECT_EQ(c.stream(event::StreamId{1})->priority, -5);
  EXPECT_EQ(c.scope_path(event::ScopeId{2}), "step/forward");
  EXPECT_FALSE(c.config(event::ConfigId{0}));
  EXPECT_FALSE(c.config(event::ConfigId{2}));
  EXPECT_FALSE(c.kernel(event::KernelId{999'999}));
}

// A thread that was killed, or has to wait, between the first two words that it writes.
TEST_F(FlightReaderTest, ChunkHalfTakenIntoUseIsEmptyAndNoTrouble) {
  std::string bytes = slurp(make_file());
  const auto& header = *reinterpret_cast<Header*>(bytes.data());
  auto& chunk = *reinterpret_cast<ChunkHeader*>(bytes.data() + header.chunks_offset);
  ASSERT_EQ(chunk.committed.load(), kRecordsPerChunk);
  ASSERT_EQ(chunk.taken.load(), kRecordsPerChunk);
  chunk.committed.store(0);
  spill(path("b.flight"), bytes);
  const FlightContents c = FlightReader(path("b.flight")).read();
  EXPECT_EQ(c.trouble_total(), 0u);
  EXPECT_EQ(c.record_count(), 307u - kRecordsPerChunk);
}

TEST_F(FlightReaderTest, SaysWhatIsNoFlightFileItCanRead) {
  std::string bytes = slurp(make_file());
  EXPECT_NE(error_of(path("none")).find("No such file"), std::string::npos);
  EXPECT_NE(error_of(folder_).find("not a regular file"), std::string::npos);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of(path("pipe")).find("not a regular file"), std::string::npos);
  spill(path("text"), "hello, I am no flight file at all");
  EXPECT_NE(error_of(path("text")).find("not a flight file"), std::string::npos);
  spill(path("zeros"), std::string(100'000, '\0'));
  EXPECT_NE(error_of(path("zeros")).find("while it was being made"), std::string::npos);
  spill(path("cut"), bytes.substr(0, 1000));
  EXPECT_NE(error_of(path("cut")).find("cut off in its header"), std::string::npos);

  std::string other = bytes;
  std::swap(other[offsetof(Header, endian_mark)], other[offsetof(Header, endian_mark) + 3]);
  std::swap(other[offsetof(Header, endian_mark) + 1], other[offsetof(Header, endian_mark) + 2]);
  spill(path("endian"), other);
  EXPECT_NE(error_of(path("endian")).find("byte order"), std::string::npos);
  other = bytes;
  other[offsetof(Header, version_major)] = 9;
  spill(path("major"), other);
  EXPECT_NE(error_of(path("major")).find("version 9.0; this program reads version 1.x"), std::string::npos);
  other = bytes;
  other[offsetof(Header, version_minor)] = 44;
  spill(path("minor"), other);
  EXPECT_EQ(error_of(path("minor")), "");
  EXPECT_TRUE(FlightReader::looks_like_one(path("major")));
  EXPECT_FALSE(FlightReader::looks_like_one(path("text")));
}

// Wherever the file is cut: no crash, nothing invented, and what is missing is counted.
TEST_F(FlightReaderTest, TruncatedFilesGiveWhatIsThere) {
  const std::string whole = make_file();
  const std::string bytes = slurp(whole);
  const std::uint64_t all = FlightReader(whole).read().record_count();
  std::uint64_t before = 0;
  for (std::size_t size = sizeof(Header); size < bytes.size(); size += size < 600'000 ? 4093 : 509) {
    spill(path("cut"), std::string_view(bytes).substr(0, size));
    const FlightContents c = FlightReader(path("cut")).read();
    EXPECT_GT(c[FlightTrouble::kTruncated], 0u) << size;
    EXPECT_GE(c.record_count(), before) << size;
    before = c.record_count();
    for (const HeldChunk& chunk : c.chunks) {
      for (std::uint32_t i = 0; i < chunk.count; ++i) {
        if (!c.usable(chunk.first_record + i)) continue;
        ASSERT_EQ(c.record(chunk.first_record + i).launch_ns,
                  chunk.slot == 1 ? (chunk.first_counter + i) * 10 : (chunk.first_counter + i) * 10 + 5);
      }
    }
    if (size > 700'000) break;
  }
  EXPECT_LE(before, all);
  EXPECT_GT(before, 0u);
}

TEST_F(FlightReaderTest, ImpossibleChunksAndRecordsAreLeftOutAndCounted) {
  const std::string file = make_file();
  const std::string bytes = slurp(file);
  const auto& header = *reinterpret_cast<const Header*>(bytes.data());
  const std::size_t chunk0 = header.chunks_offset;
  const auto with = [&](std::size_t at, auto value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    spill(path("b.flight"), changed);
    return FlightReader(path("b.flight")).read();
  };
  EXPECT_EQ(with(chunk0 + offsetof(ChunkHeader, committed), 256u)[FlightTrouble::kBadChunk], 1u);
  EXPECT_EQ(with(chunk0 + offsetof(ChunkHeader, slot_plus_one), 8193u + 1)[FlightTrouble::kBadChunk], 1u);
  EXPECT_EQ(with(chunk0 + offsetof(ChunkHeader, slot_plus_one), 1u)[FlightTrouble::kBadChunk], 1u);
  EXPECT_EQ(with(chunk0 + offsetof(ChunkHeader, first_counter), ~std::uint64_t{0} - 10)[FlightTrouble::kBadChunk], 1u);
  EXPECT_EQ(with(chunk0 + offsetof(ChunkHeader, first_counter), std::uint64_t{1000})[FlightTrouble::kStaleRecord],
            kRecordsPerChunk);
  {  // The second chunk of the slot claims the counters of the first: the first one stands.
    const FlightContents c = with(chunk0 + kChunkBytes + offsetof(ChunkHeader, first_counter), std::uint64_t{0});
    EXPECT_EQ(c[FlightTrouble::kOverlap], 300 - kRecordsPerChunk);
    EXPECT_EQ(c.record(*c.find(event::Seq(1, 20))).launch_ns, 200);
  }
  const std::size_t record = chunk0 + sizeof(ChunkHeader) + 10 * sizeof(Record);
  EXPECT_EQ(with(record + offsetof(Record, counter_low), 77u)[FlightTrouble::kStaleRecord], 1u);
  EXPECT_EQ(with(record + offsetof(Record, kind), std::uint8_t{9})[FlightTrouble::kUnknownRecord], 1u);
  EXPECT_EQ(with(record + offsetof(Record, kind), std::uint8_t{0})[FlightTrouble::kBadRecord], 1u);
  EXPECT_EQ(with(record + offsetof(Record, phase), std::uint8_t{7})[FlightTrouble::kBadRecord], 1u);
  EXPECT_EQ(with(record + offsetof(Record, launch_ns), std::int64_t{-1})[FlightTrouble::kBadRecord], 1u);
  const FlightContents c = with(record + offsetof(Record, launch_ns), std::int64_t{1} << 60);
  EXPECT_EQ(c[FlightTrouble::kBadRecord], 1u);
  EXPECT_FALSE(c.usable(*c.find(event::Seq(1, 10))));
  EXPECT_TRUE(c.usable(*c.find(event::Seq(1, 11))));
}

TEST_F(FlightReaderTest, HostileHeadersAndTablesNeitherCrashNorCostMemory) {
  const std::string bytes = slurp(make_file());
  const auto& header = *reinterpret_cast<const Header*>(bytes.data());
  const auto with = [&](std::size_t at, auto value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    spill(path("b.flight"), changed);
    return FlightReader(path("b.flight")).read();
  };
  for (const std::size_t offset : {offsetof(Header, ledger_offset), offsetof(Header, slots_offset),
                                   offsetof(Header, kernels_offset), offsetof(Header, configs_offset),
                                   offsetof(Header, streams_offset), offsetof(Header, scopes_offset),
                                   offsetof(Header, strings_offset), offsetof(Header, strings_bytes),
                                   offsetof(Header, chunks_offset)}) {
    for (const std::uint64_t value : {~std::uint64_t{0}, ~std::uint64_t{0} - 63, std::uint64_t{1} << 63,
                                      std::uint64_t{bytes.size()}, std::uint64_t{bytes.size() - 1}, std::uint64_t{0},
                                      std::uint64_t{64}}) {
      const FlightContents c = with(offset, value);
      // A ledger that is read from somewhere else cannot be told from a true one, nor a small arena from a smaller one.
      const bool can_tell = offset != offsetof(Header, ledger_offset) && value > 64;
      EXPECT_TRUE(!can_tell || c.trouble_total() > 0) << offset << ' ' << value;
    }
  }
  for (const std::size_t offset : {offsetof(Header, slot_count), offsetof(Header, kernel_capacity),
                                   offsetof(Header, config_capacity), offsetof(Header, stream_capacity),
                                   offsetof(Header, scope_capacity), offsetof(Header, chunk_count),
                                   offsetof(Header, record_bytes), offsetof(Header, chunk_bytes)}) {
    EXPECT_GT(with(offset, ~0u).trouble_total(), 0u) << offset;
    with(offset, 0u);
  }
  // Scope 1 as its own parent, and as its child's.
  const std::size_t scope = header.scopes_offset + sizeof(ScopeEntry);
  EXPECT_EQ(with(scope + offsetof(ScopeEntry, parent), 1u)[FlightTrouble::kBadRow], 1u);
  EXPECT_EQ(with(scope + offsetof(ScopeEntry, parent), 2u)[FlightTrouble::kBadRow], 1u);
  const std::size_t config = header.configs_offset + sizeof(ConfigEntry);
  EXPECT_EQ(with(config + offsetof(ConfigEntry, kernel), 9u)[FlightTrouble::kBadRow], 1u);
  EXPECT_EQ(with(config + offsetof(ConfigEntry, limiter), std::uint8_t{200})[FlightTrouble::kBadRow], 1u);
  const FlightContents c = with(header.kernels_offset + sizeof(KernelEntry) + offsetof(KernelEntry, name), 4094u);
  EXPECT_EQ(c[FlightTrouble::kBadString], 1u);
  EXPECT_EQ(c.kernel(event::KernelId{1})->name, "(name not kept)");
}

// A pool of terabytes that is one hole is skipped, not walked.
TEST_F(FlightReaderTest, HugeSparseFilesAreReadInNoTime) {
  const std::string file = make_file();
  std::string bytes = slurp(file);
  auto& header = *reinterpret_cast<Header*>(bytes.data());
  header.chunk_count = 100'000'000;  // 1.6 TB
  spill(path("b.flight"), bytes);
  if (truncate(path("b.flight").c_str(), off_t{1} << 41) != 0) GTEST_SKIP() << "no such large files here";
  const FlightContents c = FlightReader(path("b.flight")).read();
  EXPECT_EQ(c.record_count(), 307u);
}

TEST_F(FlightReaderTest, LimitsHold) {
  const std::string file = make_file();
  ReadLimits limits;
  limits.record_bytes = 260 * sizeof(Record);
  limits.table_rows = 1;
  const FlightContents c = FlightReader(file).read(limits);
  EXPECT_LE(c.record_count(), 260u);
  EXPECT_GT(c[FlightTrouble::kBeyondLimit], 0u);
}

// Chunks are taken into use again all the time while they are read: every record that is handed out is whole and of the
// life that it claims to be of.
TEST_F(FlightReaderTest, ReadsAFileThatIsWrittenToMeanwhile) {
  FlightWriter w(path("a.flight"), small_capacities(16));
  const auto config = w.add_config("_Z4tickPf");
  std::atomic<bool> stop{false};
  constexpr int kThreads = 3;
  std::vector<std::thread> producers;
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&] {
      Ring* const ring = w.rings->acquire(1, "producer");
      for (std::uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
        // launch_ns says the counter once more
        const auto ns = static_cast<std::int64_t>(ring->counter());
        if (w.launch(ring, ns, config.value) == nullptr) std::this_thread::yield();
      }
    });
  }
  std::thread consumer([&] {  // as Drain: chunk after chunk, each given back when it is done
    std::vector<std::uint32_t> at(kThreads + 1, kNoChunk);
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::uint32_t slot = 1; slot < w.rings->slots_used(); ++slot) {
        std::uint32_t& chunk = at[slot];
        if (chunk == kNoChunk) chunk = w.rings->first_chunk(*w.rings->ring(slot));
        if (chunk == kNoChunk) continue;
        const std::uint32_t next = w.rings->next_chunk(chunk);
        if (next == kNoChunk) continue;
        w.rings->chunk(chunk).header.taken.store(kRecordsPerChunk);
        while (!w.rings->give_back(chunk)) std::this_thread::yield();
        chunk = next;
      }
    }
  });
  FlightReader reader(path("a.flight"));
  std::uint64_t records = 0, rounds = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < until) {
    const FlightContents c = reader.read();
    std::set<std::pair<std::uint32_t, std::uint64_t>> all;
    for (const HeldChunk& chunk : c.chunks) {
      for (std::uint32_t i = 0; i < chunk.count; ++i) {
        if (!c.usable(chunk.first_record + i)) continue;
        const std::uint64_t counter = chunk.first_counter + i;
        ASSERT_EQ(c.record(chunk.first_record + i).launch_ns, static_cast<std::int64_t>(counter));
        ASSERT_TRUE(all.emplace(chunk.slot, counter).second) << "twice";
      }
    }
    for (const auto trouble : {FlightTrouble::kBadRecord, FlightTrouble::kBadChunk, FlightTrouble::kStaleRecord,
                               FlightTrouble::kUnknownRecord, FlightTrouble::kBadSlot}) {
      EXPECT_EQ(c[trouble], 0u) << flight_trouble_name(trouble);
    }
    records += all.size();
    ++rounds;
  }
  stop = true;
  for (std::thread& p : producers) p.join();
  consumer.join();
  EXPECT_GT(rounds, 3u);
  EXPECT_GT(records, 100u);
}

}  // namespace
}  // namespace gpuflight::flight
