#include "log/decoder.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <unistd.h>

#include "log_fixture.h"

namespace gpuflight::log {
namespace {

namespace fs = std::filesystem;
using namespace log_fixture;
using Status = LogReader::Status;

std::string compressed(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string notices(int count) {
  Buffer out;
  for (int i = 0; i < count; ++i) append_notice_event(out, notice());
  return std::string(out.view());
}

class LogReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "gpuflight_reader." + std::to_string(getpid()) + "." +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ + "/app.1.ndjson";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void put(const std::string& path, std::string_view bytes, bool append = false) {
    std::ofstream(path, append ? std::ios::app | std::ios::binary : std::ios::binary) << bytes;
  }
  ReadStats read(std::string_view bytes, ReadOptions options = {}) {
    put(path_, bytes);
    return read_files(path_, options);
  }
  ReadStats read_files(const std::string& path, ReadOptions options = {}) {
    LogReader reader(path, options);
    EXPECT_EQ(reader.open(), 0);
    LogEvent event;
    while (reader.next(event) == Status::kEvent) events_.push_back(event);
    return reader.stats();
  }

  std::string folder_, path_;
  std::vector<LogEvent> events_;
};

template <class T>
const T* first(const std::vector<LogEvent>& events) {
  for (const auto& event : events) {
    if (const T* found = std::get_if<T>(&event)) return found;
  }
  return nullptr;
}

// The strongest statement about encoder and decoder: what was read, encoded again, gives the same bytes.
TEST_F(LogReaderTest, EveryGoldenLineSurvivesTheRoundTrip) {
  std::ifstream file(GPUFLIGHT_SOURCE_DIR "/tests/golden/log_lines.ndjson");
  std::stringstream golden;
  golden << file.rdbuf();
  const ReadStats stats = read(golden.str());
  EXPECT_EQ(stats.trouble_total(), 0u);
  EXPECT_EQ(stats[Trouble::kUnknownKey].count, 0u);
  std::string line;
  std::size_t at = 0;
  while (std::getline(golden, line)) {
    ASSERT_LT(at, events_.size());
    Buffer out, scope;
    const auto path = [&](const std::optional<std::string>& text) {
      if (text) append_json_string(scope, *text);
      return scope.view();
    };
    const auto on = [](std::optional<std::int32_t> device, std::optional<std::uint32_t> context, StreamId id) {
      StreamInfo s;
      s.device = device.value_or(-1);
      s.context = ContextId{context.value_or(0)};
      s.stream = id;
      return render_stream(s);
    };
    const auto config = [](const auto& l, ConfigId id, std::int32_t sms) {
      KernelConfig c;
      c.shape = l.shape;
      c.occupancy = l.occupancy;
      return l.config_known ? render_config(l.kernel, c, id, l.details, sms) : render_unknown_config(l.details);
    };
    const auto named = [](const std::string& name) {
      KernelInfo kernel;
      kernel.name = name;
      return name.empty() ? render_unknown_config(true) : render_config(kernel, KernelConfig(), ConfigId{7}, false, 0);
    };
    const LogEvent& e = events_[at];
    if (const auto* l = std::get_if<KernelEventLine>(&e)) {
      const double waves = l->waves.value_or(0);
      const auto per_wave = waves > 0 ? static_cast<double>(l->launch.grid.count()) / waves : 0;
      const auto sms = l->occupancy.max_active_blocks > 0 ? std::lround(per_wave / l->occupancy.max_active_blocks) : 0;
      RenderedConfig rendered = config(*l, l->launch.config, static_cast<std::int32_t>(sms));
      append_kernel_event(out, rendered, on(l->kernel.device, l->context, l->launch.stream), path(l->scope), l->launch);
    } else if (const auto* l = std::get_if<KernelSummaryLine>(&e)) {
      append_kernel_summary(out, config(*l, l->summary.config, 0), l->summary);
    } else if (const auto* l = std::get_if<GraphLaunchLine>(&e)) {
      append_graph_launch_event(out, on(l->device, l->context, l->launch.stream), path(l->scope), l->launch);
    } else if (const auto* l = std::get_if<ScopeLine>(&e)) {
      append_scope_event(out, path(l->scope), l->event);
    } else if (const auto* l = std::get_if<SessionStartLine>(&e)) {
      append_session_start(out, l->session, l->segment);
    } else if (const auto* l = std::get_if<DeviceInfoLine>(&e)) {
      append_device_info(out, l->device, l->seq);
    } else if (const auto* l = std::get_if<StreamInfo>(&e)) {
      append_stream_info(out, *l);
    } else if (const auto* l = std::get_if<Notice>(&e)) {
      append_notice_event(out, *l);
    } else if (const auto* l = std::get_if<LossEvent>(&e)) {
      append_loss_event(out, *l);
    } else if (const auto* l = std::get_if<SessionEnd>(&e)) {
      append_session_end(out, *l);
    } else if (const ApiLine* l = api_line(e)) {
      append_api_event(out, path(l->scope), l->call);
    } else if (const auto* l = std::get_if<ErrorEvent>(&e)) {
      append_error_event(out, *l);
    } else if (const auto* l = std::get_if<HangEvent>(&e)) {
      append_hang_event(out, *l);
    } else if (const auto* l = std::get_if<ForkEvent>(&e)) {
      append_fork_event(out, *l);
    } else if (const auto* l = std::get_if<LevelEvent>(&e)) {
      append_level_event(out, *l);
    } else if (const auto* l = std::get_if<ExitEvent>(&e)) {
      append_exit_event(out, *l);
    } else if (const auto* l = std::get_if<MemcpyLine>(&e)) {
      append_memcpy_event(out, on(l->device, l->context, l->copy.stream), path(l->scope), l->copy);
    } else if (const auto* l = std::get_if<MemsetLine>(&e)) {
      append_memset_event(out, on(l->device, l->context, l->fill.stream), path(l->scope), l->fill);
    } else if (const auto* l = std::get_if<MemoryLine>(&e)) {
      append_memory_event(out, path(l->scope), l->memory);
    } else if (const auto* l = std::get_if<StreamEdgeLine>(&e)) {
      append_stream_edge(out, path(l->scope), l->edge);
    } else if (const auto* l = std::get_if<KernelTimeLine>(&e)) {
      append_kernel_time(out, named(l->name), on(l->device, l->context, l->time.stream), l->time);
    } else if (const auto* l = std::get_if<KernelPendingLine>(&e)) {
      append_kernel_pending(out, named(l->name), on(l->device, l->context, l->pending.stream), l->pending);
    } else if (const auto* l = std::get_if<ClockEvent>(&e)) {
      append_clock_event(out, *l);
    } else if (const auto* l = std::get_if<GraphInfo>(&e)) {
      append_graph_info(out, *l);
    } else if (const auto* l = std::get_if<GraphKernelLine>(&e)) {
      GraphKernelInfo info = l->info;
      info.device = l->kernel.device;
      append_graph_kernel(out, config(*l, l->info.kernel.config, 0), info);
    }
    EXPECT_EQ(out.view(), line + "\n") << "line " << at + 1;
    ++at;
  }
  EXPECT_EQ(at, events_.size());
  for (std::size_t type = 1; type < kLineTypeCount; ++type) {
    EXPECT_TRUE(std::any_of(events_.begin(), events_.end(), [&](const LogEvent& e) { return e.index() == type; }))
        << "no golden line of type " << type;
  }
}

TEST_F(LogReaderTest, KernelEventValues) {
  Buffer out;
  RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  append_kernel_event(out, config, render_stream(stream()), "\"a/b\"", timed_launch());
  read(out.view());
  const auto* line = first<KernelEventLine>(events_);
  ASSERT_NE(line, nullptr);
  EXPECT_EQ(line->kernel.name, "_Z18block_reduce_naivePKfPfi");
  EXPECT_EQ(line->occupancy_ratio, 0.833333);
  EXPECT_EQ(line->limit_occupancy[static_cast<std::size_t>(Limiter::kSharedMem)], 0.833333);
  EXPECT_EQ(line->occupancy.limiter, Limiter::kSharedMem);
  EXPECT_EQ(line->occupancy.limit_blocks[0], 6);
  EXPECT_EQ(line->occupancy.max_warps_per_sm, 48);
  EXPECT_EQ(line->occupancy.warps_per_block, 8);
  EXPECT_EQ(line->launch.grid, (Dim3{2147483647, 65535, 65535}));
  EXPECT_EQ(line->launch.seq, Seq(3, 42));
  EXPECT_EQ(line->scope, "a/b");
  EXPECT_EQ(line->queue_ns, -890);
  EXPECT_TRUE(line->launch.captured);
  EXPECT_EQ(line->kernel.module_hash, 0x0123456789abcdefull);
}

TEST_F(LogReaderTest, IncidentValues) {
  Buffer out;
  append_api_event(out, "\"step\"", sync_call());
  append_error_event(out, error_event());
  append_hang_event(out, hang_event());
  append_fork_event(out, {Seq(0, 15), 1'000, 4711});
  std::string text(out.view());
  text += R"({"type":"sync_event","call":"cuSomethingNew","stream":null,"scope":null,"thread":1,"seq":5,"time_ns":9})"
          "\n";
  text += R"({"type":"error_event","seq":1,"time_ns":1,"code":700,"culprit":{"event":1}})" "\n";  // no launch_ns
  text += R"({"type":"hang_event","seq":1,"phase":"perhaps","time_ns":1,"since_ns":1,"stream":1})" "\n";
  EXPECT_EQ(read(text)[Trouble::kBadValue].count, 2u);
  ASSERT_EQ(events_.size(), 5u);
  const ApiLine* const sync = api_line(events_[0]);
  ASSERT_NE(sync, nullptr);
  EXPECT_EQ(sync->name, "cuStreamSynchronize");
  EXPECT_EQ(static_cast<ApiCall>(sync->call.call), ApiCall::kStreamSynchronize);
  EXPECT_EQ(sync->call.stream, StreamId{2});
  EXPECT_EQ(sync->call.status, 700);
  EXPECT_EQ(sync->scope, "step");
  const auto& error = std::get<ErrorEvent>(events_[1]);
  EXPECT_EQ(error.code, 700);
  ASSERT_TRUE(error.culprit);
  EXPECT_EQ(error.culprit->block, (Dim3{256, 1, 1}));
  EXPECT_EQ(error.culprit->seq, Seq(3, 41));
  ASSERT_EQ(error.in_flight.size(), 2u);
  EXPECT_EQ(error.in_flight[0].finished_ns, 1'234'000'000);
  ASSERT_EQ(error.in_flight[0].launches.size(), 2u);
  EXPECT_EQ(error.in_flight[0].launches[1].graph, GraphId{5});
  EXPECT_EQ(error.in_flight[1].count, 9u);
  const auto& hang = std::get<HangEvent>(events_[2]);
  EXPECT_EQ(hang.phase, HangEvent::Phase::kBegin);
  EXPECT_EQ(hang.stream.launches.size(), 2u);
  ASSERT_EQ(hang.blocked.size(), 1u);
  EXPECT_EQ(hang.blocked[0].call, "cuStreamSynchronize");
  EXPECT_EQ(std::get<ForkEvent>(events_[3]).child_pid, 4711);
  EXPECT_EQ(api_line(events_[4])->name, "cuSomethingNew");
  EXPECT_EQ(api_line(events_[4])->call.call, 0u);
}

TEST_F(LogReaderTest, ActivityValues) {
  Buffer out;
  append_memcpy_event(out, render_stream(stream()), "\"step\"", peer_copy());
  append_memset_event(out, render_stream(stream()), {}, memset_event());
  append_memory_event(out, {}, allocation());
  append_stream_edge(out, {}, edge());
  RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  append_kernel_time(out, config, render_stream(stream()), kernel_time());
  append_clock_event(out, clock_event());
  std::string text(out.view());
  // Words and calls of a later version; a key short; a word of a closed list.
  text += R"({"type":"memcpy_event","kind":"dtox","source":"hbm5","destination":null,"bytes":1,"start_ns":1,"end_ns":2})"
          "\n";
  text += R"({"type":"memory_event","operation":"alloc","kind":"device","call":"cuMemNew","time_ns":1})" "\n";
  text += R"({"type":"memcpy_event","kind":"htod","start_ns":1,"end_ns":2})" "\n";
  text += R"({"type":"stream_edge","operation":"perhaps","time_ns":1})" "\n";
  EXPECT_EQ(read(text)[Trouble::kBadValue].count, 2u);
  ASSERT_EQ(events_.size(), 8u);
  const auto& copy = std::get<MemcpyLine>(events_[0]);
  EXPECT_EQ(copy.copy.kind, CopyKind::kPtoP);
  EXPECT_EQ(copy.copy.source, MemoryKind::kDevice);
  EXPECT_EQ(copy.copy.bytes, 1u << 20);
  EXPECT_EQ(copy.copy.destination_device, 1);
  EXPECT_EQ(copy.copy.end_ns, 1'234'951'000);
  EXPECT_EQ(copy.copy.graph_node, 18u);
  EXPECT_TRUE(copy.copy.async);
  EXPECT_FALSE(copy.copy.origin.call_ns);
  EXPECT_EQ(copy.device, 0);
  EXPECT_EQ(copy.scope, "step");
  EXPECT_EQ(thread_seq(events_[0]), Seq(kGpuSlot, 8));
  EXPECT_EQ(std::get<MemsetLine>(events_[1]).fill.value, 255u);
  const auto& memory = std::get<MemoryLine>(events_[2]).memory;
  EXPECT_EQ(memory.kind, AllocationKind::kPool);
  EXPECT_EQ(static_cast<ApiCall>(memory.call), ApiCall::kMemAllocFromPoolAsync);
  EXPECT_EQ(memory.pool, 0x5581aa00u);
  EXPECT_EQ(memory.peak_bytes, 5u << 20);
  EXPECT_EQ(std::get<StreamEdgeLine>(events_[3]).edge.event, 0x5581bb10u);
  const auto& time = std::get<KernelTimeLine>(events_[4]);
  EXPECT_EQ(time.name, naive_kernel().name);
  EXPECT_EQ(time.time.event, Seq(3, 41));
  EXPECT_EQ(time.time.end_ns, 61'234'570'000);
  EXPECT_EQ(std::get<ClockEvent>(events_[5]).unix_ns, 1'753'000'060'123'456'789);
  EXPECT_EQ(std::get<MemcpyLine>(events_[6]).copy.kind, CopyKind::kUnknown);
  EXPECT_EQ(std::get<MemoryLine>(events_[7]).call, "cuMemNew");
  EXPECT_EQ(std::get<MemoryLine>(events_[7]).memory.call, 0u);
}

// A log of which only the seed's keys are known, as scripts may have written, is read as well.
TEST_F(LogReaderTest, SeedLineAlone) {
  const ReadStats stats = read(R"x({"type":"kernel_event","name":"k","occupancy":0.833333,"num_regs":16,)x"
                               R"x("static_shared_bytes":16384,"dyn_shared_bytes":0,"block":"(256,1,1)",)x"
                               R"x("grid":"(16384,1,1)","max_active_blocks":5,"reg_occupancy":1.0,)x"
                               R"x("smem_occupancy":0.833333,"warp_occupancy":1.0,"block_occupancy":1.0,)x"
                               R"x("limiting_resource":"shared_mem"})x" "\n");
  EXPECT_EQ(stats.trouble_total(), 0u);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(std::get<KernelEventLine>(events_[0]).occupancy.max_active_blocks, 5);
}

TEST_F(LogReaderTest, TroubleIsCountedByKindWithItsFirstLine) {
  const std::string good = notices(1);
  const ReadStats stats = read(good +                                                     // 1
                               "not json\n" +                                             // 2
                               "\n" +                                                     // 3
                               "{\"type\":\"martian_event\",\"x\":1}\n" +                 // 4
                               "{\"type\":\"notice_event\",\"code\":\"\xff\"}\n" +        // 5
                               "[1,2]\n" + "{\"typ\":1}\n" +                              // 6, 7
                               "{\"type\":\"notice_event\",\"code\":17}\n" +              // 8
                               "{\"type\":\"notice_event\"}\n" +                          // 9
                               "{\"type\":\"notice_event\",\"code\":\"c\",\"new\":1}\n" + // 10
                               good + "{\"type\":\"notice_event\",\"co");                 // 11, 12
  EXPECT_EQ(stats.lines, 12u);
  EXPECT_EQ(events_.size(), 3u);
  EXPECT_EQ(stats.blank, 1u);
  const auto check = [&](Trouble trouble, std::uint64_t count, std::uint64_t line, std::string_view detail = {}) {
    EXPECT_EQ(stats[trouble].count, count) << trouble_name(trouble);
    EXPECT_EQ(stats[trouble].first_line, line) << trouble_name(trouble);
    if (!detail.empty()) {
      EXPECT_EQ(stats[trouble].first_detail, detail);
    }
  };
  check(Trouble::kInvalidJson, 1, 2);
  check(Trouble::kUnknownType, 1, 4, "martian_event");
  check(Trouble::kInvalidUtf8, 1, 5);
  check(Trouble::kNotAnEvent, 2, 6);
  check(Trouble::kBadValue, 2, 8, "code");
  check(Trouble::kUnknownKey, 1, 10, "new");
  check(Trouble::kTornLine, 1, 12);
  EXPECT_EQ(stats[Trouble::kInvalidJson].first_file, path_);
  EXPECT_EQ(stats.trouble_total(), 8u);
}

TEST_F(LogReaderTest, WholeLineWithoutLineEndIsRead) {
  std::string text = notices(2);
  text.pop_back();
  EXPECT_EQ(read(text).trouble_total(), 0u);
  EXPECT_EQ(events_.size(), 2u);
}

TEST_F(LogReaderTest, EveryTruncationIsSurvived) {
  Buffer all;
  append_all(all);
  const std::string text(all.view());
  for (std::size_t size = 0; size < text.size(); size += 41) {
    events_.clear();
    const ReadStats stats = read(std::string_view(text).substr(0, size));
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(size);
    const auto whole = static_cast<std::uint64_t>(std::count(text.begin(), end, '\n'));
    ASSERT_GE(stats.events, whole);
    ASSERT_LE(stats.events + stats[Trouble::kTornLine].count, whole + 1);
  }
}

TEST_F(LogReaderTest, FlippedBitsNeverCrash) {
  Buffer all;
  append_all(all);
  const std::string text(all.view()), packed = compressed(text);
  const auto whole = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    std::string bytes = i % 2 ? text : packed;
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    events_.clear();
    const ReadStats stats = read(bytes);
    ASSERT_LE(stats.events, whole + 3);
  }
}

TEST_F(LogReaderTest, LongLineIsSkippedAndCounted) {
  ReadOptions options;
  options.max_line_bytes = 100'000;
  const std::string good = notices(1);
  const ReadStats stats = read(good + std::string(3'000'000, 'x') + "\n" + good, options);
  EXPECT_EQ(events_.size(), 2u);
  EXPECT_EQ(stats[Trouble::kLongLine].count, 1u);
  EXPECT_EQ(stats[Trouble::kLongLine].first_line, 2u);
  events_.clear();
  EXPECT_EQ(read(good + std::string(3'000'000, 'x'), options)[Trouble::kLongLine].count, 1u);
}

TEST_F(LogReaderTest, CompressedWholeTruncatedAndConcatenated) {
  const std::string text = notices(5000);
  put(path_, compressed(text));
  EXPECT_EQ(read_files(path_).events, 5000u);
  put(path_, compressed(text) + compressed(notices(10)));
  EXPECT_EQ(read_files(path_).events, 5010u);
  std::mt19937 random(3);
  std::string noisy;  // so that half of the compressed bytes is half of the lines
  for (int i = 0; i < 5000; ++i) {
    noisy += "{\"type\":\"notice_event\",\"code\":\"" + std::to_string(random()) + std::to_string(random()) + "\"}\n";
  }
  const std::string packed = compressed(noisy);
  put(path_, packed.substr(0, packed.size() / 2));
  const ReadStats half = read_files(path_);
  EXPECT_EQ(half[Trouble::kTruncated].count, 1u);
  EXPECT_LT(half.events, 5000u);
  std::string broken = packed;
  broken[broken.size() / 2] ^= 0x55;
  put(path_, broken + "garbage");
  EXPECT_EQ(read_files(path_)[Trouble::kTruncated].count, 1u);
}

TEST_F(LogReaderTest, FilterSkipsUnparsed) {
  Buffer all;
  append_all(all);
  ReadOptions options;
  options.types = line_type_bit(LineType::kKernel);
  const ReadStats stats = read(std::string(all.view()) + "{\"type\":\"notice_event\",broken}\n", options);
  EXPECT_EQ(events_.size(), 11u);
  EXPECT_EQ(stats.events, 11u);
  EXPECT_EQ(stats.filtered, stats.lines - 11);
  EXPECT_EQ(stats.trouble_total(), 0u);
}

TEST_F(LogReaderTest, RotatedSegmentsInOrder) {
  const auto line = [](int i) { return "{\"type\":\"notice_event\",\"code\":\"" + std::to_string(i) + "\"}\n"; };
  put(folder_ + "/app.1.0002.ndjson", line(2));
  put(folder_ + "/app.1.0001.ndjson.zst", compressed(line(1)));
  put(folder_ + "/app.1.0010.ndjson", line(10));
  put(folder_ + "/app.1.0010.ndjson.zst", compressed(line(10)));  // just compressed: once only
  put(folder_ + "/app.1.10000.ndjson", line(10000));
  put(folder_ + "/app.1.0003.ndjson.zst.part", "half");
  put(folder_ + "/app.11.0001.ndjson", line(-1));
  put(folder_ + "/app.1.x001.ndjson", line(-1));
  put(path_, line(20000));
  read_files(path_);
  std::string order;
  for (const auto& event : events_) order += std::get<Notice>(event).code + " ";
  EXPECT_EQ(order, "1 2 10 10000 20000 ");
  events_.clear();
  ReadOptions alone;
  alone.rotated = false;
  EXPECT_EQ(read_files(path_, alone).events, 1u);
}

TEST_F(LogReaderTest, FollowsThroughTornLinesAndRotation) {
  put(path_, notices(2));
  ReadOptions options;
  options.follow = true;
  LogReader reader(path_, options);
  ASSERT_EQ(reader.open(), 0);
  LogEvent event;
  const auto take = [&] {
    int count = 0;
    while (reader.next(event) == Status::kEvent) ++count;
    return count;
  };
  EXPECT_EQ(take(), 2);
  EXPECT_EQ(reader.next(event), Status::kWait);
  const std::string line = notices(1);
  put(path_, line.substr(0, 20), true);
  EXPECT_EQ(take(), 0);
  put(path_, line.substr(20), true);
  EXPECT_EQ(take(), 1);
  put(path_, line, true);  // written, then rotated before the reader looks again
  fs::rename(path_, folder_ + "/app.1.0001.ndjson");
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(reader.next(event), Status::kWait);  // the new file is not there yet
  Buffer start;
  append_session_start(start, session_start(), 2);
  put(path_, std::string(start.view()) + line);
  EXPECT_EQ(take(), 2);
  fs::rename(path_, folder_ + "/app.1.0002.ndjson");
  start.clear();
  append_session_start(start, session_start(), 4);
  put(path_, start.view());
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(reader.stats()[Trouble::kMissedSegment].count, 1u);
  EXPECT_EQ(reader.stats()[Trouble::kTornLine].count, 0u);
}

TEST_F(LogReaderTest, MissingFileAndFolderAreErrors) {
  EXPECT_EQ(LogReader(folder_ + "/none.ndjson").open(), ENOENT);
  EXPECT_EQ(LogReader(folder_, ReadOptions{.rotated = false}).open(), EISDIR);
  LogReader never_opened(folder_ + "/none.ndjson");
  LogEvent event;
  EXPECT_EQ(never_opened.next(event), Status::kEnd);
  EXPECT_EQ(read("").events, 0u);
}

TEST_F(LogReaderTest, OtherMajorVersionIsSaid) {
  Buffer start;
  append_session_start(start, session_start(), 1);
  std::string text(start.view());
  text.replace(text.find("\"1.2\""), 5, "\"2.0\"");
  EXPECT_EQ(read(text)[Trouble::kOtherMajor].count, 1u);
}

}  // namespace
}  // namespace gpuflight::log
