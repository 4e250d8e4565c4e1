// The flight file, its pool, rings and tables, as the capture side uses them and as a reader of the bytes sees them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "flight/chunk_pool.h"
#include "flight/flight_file.h"
#include "flight/ring.h"
#include "flight/table_writer.h"

namespace gpuflight::flight {
namespace {

class FlightTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/gpuflight-flight-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::system(("rm -rf " + folder_).c_str()); }

  static Capacities small(std::uint32_t chunks) {
    Capacities c;
    c.pool_bytes = std::uint64_t{chunks} * kChunkBytes;
    c.kernels = c.configs = c.streams = c.scopes = 8;
    c.string_bytes = 256;
    return c;
  }
  std::string path(const char* name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(FlightTest, FileIsReservedPrivateAndDescribesItself) {
  FlightFile file;
  const auto result = file.create(path("a.flight"), small(16));
  ASSERT_TRUE(result.mapped);
  ASSERT_TRUE(result.on_disk) << result.problem;
  struct stat info{};
  ASSERT_EQ(stat(result.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), file.bytes());
  EXPECT_GE(static_cast<std::uint64_t>(info.st_blocks) * 512, file.bytes()) << "not reserved";
  // Read as a stranger would, from the bytes.
  std::ifstream in(result.path, std::ios::binary);
  std::vector<char> bytes(kHeaderBytes);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto& header = *reinterpret_cast<const Header*>(bytes.data());
  EXPECT_EQ(std::memcmp(header.magic, kMagic, sizeof kMagic), 0);
  EXPECT_EQ(header.version_major, event::kFlightMajor);
  EXPECT_EQ(header.chunk_count, 16u);
  EXPECT_EQ(header.file_bytes, file.bytes());
  EXPECT_LE(header.chunks_offset + std::uint64_t{header.chunk_count} * kChunkBytes, header.file_bytes);
}

TEST_F(FlightTest, ExistingFilesAndSymlinksAreLeftAlone) {
  std::ofstream(path("a.flight")) << "mine";
  ASSERT_EQ(symlink("/etc/hostname", path("a.2.flight").c_str()), 0);
  FlightFile file;
  const auto result = file.create(path("a.flight"), small(16));
  ASSERT_TRUE(result.on_disk) << result.problem;
  EXPECT_EQ(result.path, path("a.3.flight"));
  std::string text;
  std::ifstream(path("a.flight")) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(FlightTest, WithoutAFileTheRingsAreInPrivateMemoryAndItSaysWhy) {
  FlightFile file;
  const auto result = file.create(path("no/such/folder/a.flight"), small(16));
  EXPECT_TRUE(result.mapped);
  EXPECT_FALSE(result.on_disk);
  EXPECT_NE(result.problem.find("No such file"), std::string::npos) << result.problem;
  FlightFile wanted;
  const auto memory = wanted.create("", small(16));
  EXPECT_TRUE(memory.mapped);
  EXPECT_FALSE(memory.on_disk);
  EXPECT_TRUE(memory.problem.empty());
}

TEST_F(FlightTest, ReleasedBlocksLeaveHeaderAndKeptChunks) {
  FlightFile file;
  const auto result = file.create(path("a.flight"), small(64));
  ASSERT_TRUE(result.on_disk);
  RingSet rings(file);
  Ring* const ring = rings.acquire(1, "t");
  for (int i = 0; i < 300; ++i) {
    Record* const record = ring->begin();
    record->launch_ns = i;
    ring->publish();
  }
  struct stat before{}, after{};
  stat(result.path.c_str(), &before);
  const std::uint32_t kept = rings.next_chunk(rings.first_chunk(*ring));
  file.release_unused(1, 1, [&](std::uint32_t chunk) { return chunk == kept; });
  stat(result.path.c_str(), &after);
  EXPECT_EQ(before.st_size, after.st_size);
  EXPECT_LT(after.st_blocks, before.st_blocks / 2);
  EXPECT_EQ(std::memcmp(file.header().magic, kMagic, sizeof kMagic), 0);
  EXPECT_EQ(rings.chunk(kept).records[0].launch_ns, 255);
  EXPECT_EQ(rings.chunk(rings.first_chunk(*ring)).records[1].launch_ns, 0) << "given back";
}

TEST(ChunkPool, GivesEachChunkOnceNewestFirst) {
  ChunkPool pool(5, Reuse::kNewestFirst);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(pool.try_take(), i);
  EXPECT_EQ(pool.try_take(), kNoChunk);
  EXPECT_TRUE(pool.try_give(3));
  EXPECT_TRUE(pool.try_give(1));
  EXPECT_EQ(pool.free_count(), 2u);
  EXPECT_EQ(pool.try_take(), 1u);
  EXPECT_EQ(pool.try_take(), 3u);
  EXPECT_EQ(pool.try_take(), kNoChunk);
}

TEST(ChunkPool, GivesEachChunkOnceOldestFirst) {
  ChunkPool pool(5, Reuse::kOldestFirst);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(pool.try_take(), i);
  EXPECT_EQ(pool.try_take(), kNoChunk);
  EXPECT_TRUE(pool.try_give(3));
  EXPECT_TRUE(pool.try_give(1));
  EXPECT_EQ(pool.free_count(), 2u);
  EXPECT_EQ(pool.try_take(), 3u);
  EXPECT_EQ(pool.try_take(), 1u);
  EXPECT_EQ(pool.try_take(), kNoChunk);
}

TEST(ChunkPool, SaysWhatIsTakenNext) {
  const auto next = [](const ChunkPool& pool, std::uint32_t most) {
    std::vector<std::uint32_t> chunks;
    pool.each_next(most, [&](std::uint32_t chunk) { chunks.push_back(chunk); });
    return chunks;
  };
  for (const Reuse reuse : {Reuse::kNewestFirst, Reuse::kOldestFirst}) {
    ChunkPool pool(5, reuse);
    EXPECT_EQ(pool.try_take(), 0u);
    EXPECT_EQ(pool.try_take(), 1u);
    EXPECT_EQ(next(pool, 2), (std::vector<std::uint32_t>{2, 3}));
    ASSERT_TRUE(pool.try_give(0));
    EXPECT_EQ(next(pool, 9), reuse == Reuse::kNewestFirst ? (std::vector<std::uint32_t>{0, 2, 3, 4})
                                                          : (std::vector<std::uint32_t>{2, 3, 4, 0}));
    pool.set_reuse(reuse == Reuse::kNewestFirst ? Reuse::kOldestFirst : Reuse::kNewestFirst);
    ASSERT_TRUE(pool.try_give(1));
    for (const std::uint32_t chunk : next(pool, 9)) EXPECT_EQ(pool.try_take(), chunk);
    EXPECT_EQ(pool.try_take(), kNoChunk);
  }
}

TEST_F(FlightTest, WhatIsMadeReadyHasNoPageFault) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory has page faults too";
#endif
  for (const std::string& name : {std::string(), path("ready.flight")}) {
    FlightFile file;
    file.create(name, small(64));
    RingSet rings(file);
    if (!file.populate(0, 1)) GTEST_SKIP() << "the kernel does not populate";
    EXPECT_FALSE(file.populate(64, 1));
    EXPECT_FALSE(file.populate(63, 2));
    Ring* const ring = rings.acquire(77, "worker");
    const auto faults_of = [&](int chunks) {
      rusage before{}, after{};
      getrusage(RUSAGE_THREAD, &before);
      for (std::uint32_t i = 0; i < chunks * kRecordsPerChunk; ++i) {
        ring->begin()->launch_ns = i;
        ring->publish();
      }
      getrusage(RUSAGE_THREAD, &after);
      return after.ru_minflt - before.ru_minflt;
    };
    faults_of(1);
    rings.make_ready(10 * kRecordsPerChunk);  // 20 chunks of four pages
    EXPECT_LT(faults_of(19), 4) << name;
    EXPECT_EQ(rings.seen(), 20u * kRecordsPerChunk);
  }
}

class ChunkPoolReuse : public testing::TestWithParam<Reuse> {};
INSTANTIATE_TEST_SUITE_P(BothOrders, ChunkPoolReuse, testing::Values(Reuse::kNewestFirst, Reuse::kOldestFirst));

TEST_P(ChunkPoolReuse, ManyTakersNeverShareAChunk) {
  constexpr int kThreads = 8, kRounds = 20'000;
  constexpr std::uint32_t kChunks = 7;
  ChunkPool pool(kChunks, GetParam());
  std::vector<std::atomic<int>> holders(kChunks);
  std::vector<std::atomic<int>> returned(kChunks);
  std::atomic<int> shared{0}, taken{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> takers;
  for (int t = 0; t < kThreads; ++t) {
    takers.emplace_back([&] {
      while (!stop.load()) {
        const std::uint32_t chunk = pool.try_take();
        if (chunk == kNoChunk) {
          std::this_thread::yield();
          continue;
        }
        if (holders[chunk].fetch_add(1) != 0) shared.fetch_add(1);
        holders[chunk].fetch_sub(1);
        taken.fetch_add(1);
        returned[chunk].store(1, std::memory_order_release);
      }
    });
  }
  while (taken.load() < kRounds) {  // the one giver
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      if (returned[chunk].exchange(0, std::memory_order_acquire) == 0) continue;
      while (!pool.try_give(chunk)) std::this_thread::yield();
    }
    std::this_thread::yield();
  }
  stop.store(true);
  for (auto& taker : takers) taker.join();
  EXPECT_EQ(shared.load(), 0);
}

TEST_F(FlightTest, RingCountsEveryRecordAlsoThoseWithoutRoom) {
  FlightFile file;
  file.create("", small(16));
  RingSet rings(file);
  Ring* const ring = rings.acquire(77, "worker");
  ASSERT_NE(ring, nullptr);
  const std::uint64_t room = std::uint64_t{file.chunk_count()} * kRecordsPerChunk;
  std::uint64_t stored = 0;
  for (std::uint64_t i = 0; i < room + 100; ++i) {
    if (ring->begin() == nullptr) continue;
    ring->publish();
    ++stored;
  }
  EXPECT_EQ(stored, room);
  EXPECT_EQ(rings.seen(), room + 100);
  EXPECT_EQ(rings.dropped(), 100u);
  EXPECT_EQ(file.slots()[ring->slot_index()].owner_tid.load(), 77u);
  EXPECT_STREQ(file.slots()[ring->slot_index()].name, "worker");

  // A chunk given back is used again, and the gap in the counters is where the losses were.
  const std::uint32_t first = rings.first_chunk(*ring);
  ASSERT_TRUE(rings.give_back(first));
  ASSERT_NE(ring->begin(), nullptr);
  ring->publish();
  EXPECT_EQ(rings.first_counter(first), room + 100);
  EXPECT_EQ(rings.chunk(first).header.committed.load(), 1u);
}

TEST_F(FlightTest, ASlotThatChangesHandsGoesOnCounting) {
  FlightFile file;
  file.create("", small(16));
  RingSet rings(file);
  std::uint64_t expected = 0;
  for (std::uint32_t thread = 1; thread <= 10'000; ++thread) {
    Ring* const ring = rings.acquire(thread, "short");
    ASSERT_NE(ring, nullptr);
    EXPECT_EQ(ring->slot_index(), 1u);
    EXPECT_EQ(ring->counter(), expected);
    if (ring->begin() != nullptr) ring->publish();
    ++expected;
    rings.release(ring);
  }
  EXPECT_EQ(rings.slots_used(), 2u);
  EXPECT_EQ(rings.seen(), 10'000u);
  EXPECT_EQ(file.slots()[1].generation.load(), 10'000u);
}

TEST_F(FlightTest, SlotsRunOutWithoutHarm) {
  FlightFile file;
  file.create("", small(16));
  RingSet rings(file);
  std::vector<Ring*> held;
  for (std::uint32_t i = 1; i < event::kGpuSlot; ++i) held.push_back(rings.acquire(i, ""));
  EXPECT_EQ(std::count(held.begin(), held.end(), nullptr), 0);
  EXPECT_EQ(rings.acquire(99'999, ""), nullptr);
  rings.release(held.back());
  EXPECT_EQ(rings.acquire(99'999, ""), held.back());
}

// One producer, one consumer over a pool that is far too small: what arrives is in order and whole, and what does not
// arrive is counted.
TEST_F(FlightTest, ConsumerSeesWholeRecordsInOrder) {
  FlightFile file;
  file.create("", small(16));
  RingSet rings(file);
  Ring* const ring = rings.acquire(1, "p");
  constexpr std::uint64_t kRecords = 200'000;
  std::atomic<bool> done{false};
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      if (Record* const record = ring->begin()) {
        record->launch_ns = static_cast<std::int64_t>(ring->counter());
        record->call_ns = -record->launch_ns;
        record->config = static_cast<std::uint32_t>(ring->counter()) * 3;
        ring->publish();
      }
      if (i % 1000 == 0) std::this_thread::yield();
    }
    done.store(true, std::memory_order_release);
  });
  std::uint64_t got = 0, wrong = 0;
  std::int64_t last = -1;
  std::uint32_t chunk = kNoChunk, taken = 0;
  for (bool finished = false;;) {
    const bool was_done = done.load(std::memory_order_acquire);
    if (chunk == kNoChunk) chunk = rings.first_chunk(*ring);
    if (chunk != kNoChunk) {
      const Chunk& c = rings.chunk(chunk);
      for (const std::uint32_t n = c.header.committed.load(std::memory_order_acquire); taken < n; ++taken) {
        const Record& r = c.records[taken];
        const auto counter = static_cast<std::int64_t>(rings.first_counter(chunk) + taken);
        wrong += r.launch_ns != counter || r.call_ns != -counter || r.config != static_cast<std::uint32_t>(counter) * 3 ||
                 r.counter_low != static_cast<std::uint32_t>(counter) || counter <= last;
        last = counter;
        ++got;
      }
      if (taken == kRecordsPerChunk) {
        const std::uint32_t next = rings.next_chunk(chunk);
        if (next != kNoChunk) {
          while (!rings.give_back(chunk)) {
          }
          chunk = next;
          taken = 0;
          continue;
        }
      }
    }
    if (finished) break;
    finished = was_done;
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(got + rings.dropped(), kRecords);
  EXPECT_EQ(rings.seen(), kRecords);
}

TEST_F(FlightTest, TablesTakeRowsUntilFullAndKeepWholeNames) {
  FlightFile file;
  file.create("", small(16));
  TableWriter rows(file);
  event::KernelInfo kernel;
  kernel.name = std::string("odd\0name", 8);
  kernel.num_regs = 42;
  const event::KernelId id = rows.add_kernel(kernel);
  EXPECT_EQ(id.value, 1u);
  const KernelEntry& entry = file.kernels()[id.value];
  EXPECT_EQ(entry.state.load(), static_cast<std::uint32_t>(RowState::kReady));
  EXPECT_EQ(entry.num_regs, 42);
  std::uint32_t length = 0;
  std::memcpy(&length, file.strings() + entry.name, sizeof length);
  EXPECT_EQ(std::string(file.strings() + entry.name + sizeof length, length), kernel.name);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(rows.add_kernel(kernel));
  EXPECT_FALSE(rows.add_kernel(kernel)) << "8 rows, the first of which is never used";

  event::KernelConfig config;
  config.kernel = id;
  config.shape.block = {256, 2, 1};
  config.shape.dyn_shared_bytes = 1024;
  config.occupancy.max_active_blocks = 5;
  config.occupancy.limit_blocks[3] = 5;
  const event::ConfigId config_id = rows.add_config(config);
  EXPECT_EQ(file.configs()[config_id.value].block[1], 2u);
  EXPECT_EQ(file.configs()[config_id.value].limit_blocks[3], 5);
  EXPECT_EQ(file.header().configs_used.load(), 2u);

  const std::string too_long(1000, 'x');  // the arena has 256 bytes
  const event::ScopeId scope = rows.add_scope({}, too_long);
  EXPECT_TRUE(scope);
  EXPECT_EQ(file.scopes()[scope.value].name, kNoString);
}

}  // namespace
}  // namespace gpuflight::flight
