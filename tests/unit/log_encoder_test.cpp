#include "log/encoder.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "log_fixture.h"

namespace gpuflight::log {
namespace {

using nlohmann::json;
using namespace log_fixture;

std::string all_lines() {
  Buffer out;
  append_all(out);
  return std::string(out.view());
}

std::string kernel_line(const KernelInfo& kernel, const KernelConfig& config, bool details = true) {
  Buffer out;
  RenderedConfig rendered = render_config(kernel, config, ConfigId{7}, details, 48);
  EXPECT_TRUE(append_kernel_event(out, rendered, render_stream(stream()), {}, launch()));
  return std::string(out.view());
}

std::string json_string(std::string_view text) {
  Buffer out;
  append_json_string(out, text);
  return std::string(out.view());
}

// GPUFLIGHT_UPDATE_GOLDEN=1 writes the file anew; whoever does so reads the difference.
TEST(LogEncoder, EqualsGoldenLines) {
  const std::string path = GPUFLIGHT_SOURCE_DIR "/tests/golden/log_lines.ndjson";
  const std::string lines = all_lines();
  if (std::getenv("GPUFLIGHT_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << lines;
    GTEST_SKIP() << "written anew";
  }
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  std::istringstream ours(lines);
  std::string want, got;
  for (int n = 1; std::getline(golden, want); ++n) {
    ASSERT_TRUE(std::getline(ours, got)) << "line " << n << " is missing";
    EXPECT_EQ(want, got) << "line " << n;
  }
  EXPECT_FALSE(std::getline(ours, got)) << "one line too many: " << got;
}

// Character for character what people's scripts were written for.
TEST(LogEncoder, SeedArticleKernelEvent) {
  const std::string published =
      R"x({"type":"kernel_event","name":"_Z18block_reduce_naivePKfPfi","occupancy":0.833333,"num_regs":16,)x"
      R"x("static_shared_bytes":16384,"dyn_shared_bytes":0,"block":"(256,1,1)","grid":"(16384,1,1)",)x"
      R"x("max_active_blocks":5,"reg_occupancy":1.0,"smem_occupancy":0.833333,"warp_occupancy":1.0,)x"
      R"x("block_occupancy":1.0,"limiting_resource":"shared_mem",)x";
  EXPECT_EQ(kernel_line(naive_kernel(), naive_config()).substr(0, published.size()), published);
  // With 1 KiB of dynamic shared memory instead, warps limit.
  KernelInfo kernel = naive_kernel();
  kernel.static_shared_bytes = 0;
  KernelConfig config = naive_config();
  config.shape.dyn_shared_bytes = 1024;
  config.occupancy.max_active_blocks = 6;
  config.occupancy.limit_blocks[3] = 48;
  config.occupancy.limiters = limiter_bit(Limiter::kWarps);
  config.occupancy.limiter = Limiter::kWarps;
  const json line = json::parse(kernel_line(kernel, config));
  EXPECT_EQ(line["occupancy"], 1.0);
  EXPECT_EQ(line["smem_occupancy"], 1.0);
  EXPECT_EQ(line["limiting_resource"], "warps");
  EXPECT_EQ(line["dyn_shared_bytes"], 1024);
}

TEST(LogEncoder, WavesFollowTheGridThoughItIsRemembered) {
  RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  for (const std::uint32_t blocks : {240u, 240u, 480u, 1u, 240u}) {
    Buffer out;
    KernelLaunch one = launch();
    one.grid = {blocks, 1, 1};
    append_kernel_event(out, config, RenderedStream(), {}, one);
    const json line = json::parse(out.view());
    EXPECT_NEAR(line["waves"].get<double>(), blocks / 240.0, 1e-6);
    EXPECT_EQ(line["grid"], "(" + std::to_string(blocks) + ",1,1)");
  }
}

TEST(LogEncoder, DetailsOffLeavesOutTheOccupancyPart) {
  const json line = json::parse(kernel_line(naive_kernel(), naive_config(), false));
  for (const char* key : {"occupancy", "num_regs", "static_shared_bytes", "max_active_blocks", "reg_occupancy",
                          "smem_occupancy", "warp_occupancy", "block_occupancy", "barrier_occupancy", "waves",
                          "limiting_resource", "limiting_resources", "limit_blocks", "local_bytes_per_thread"}) {
    EXPECT_FALSE(line.contains(key)) << key;
  }
  for (const char* key : {"name", "grid", "block", "dyn_shared_bytes", "seq", "launch_ns", "config"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
}

TEST(LogEncoder, NotKnownIsNullNeverZero) {
  Buffer out;
  RenderedConfig unknown = render_unknown_config(true);
  append_kernel_event(out, unknown, RenderedStream(), {}, KernelLaunch{});
  const json line = json::parse(out.view());
  for (const auto& [key, value] : line.items()) {
    if (key == "type" || key == "grid" || key == "seq" || key == "launch_ns" || key == "captured") continue;
    if (key == "limit_blocks") {
      for (const auto& limit : value) EXPECT_TRUE(limit.is_null());
    } else {
      EXPECT_TRUE(value.is_null()) << key << " is " << value;
    }
  }
  KernelInfo refused = naive_kernel();
  refused.num_regs = refused.static_shared_bytes = -1;
  const json partly = json::parse(kernel_line(refused, naive_config()));
  EXPECT_TRUE(partly["num_regs"].is_null());
  EXPECT_TRUE(partly["static_shared_bytes"].is_null());
}

// A resource of which the kernel uses none does not limit it, and no number of blocks says so.
TEST(LogEncoder, UnlimitedIsNullBlocksAndAFullShare) {
  KernelConfig config = naive_config();
  config.occupancy.limit_blocks[static_cast<std::size_t>(Limiter::kSharedMem)] = kUnlimitedBlocks;
  config.occupancy.limit_blocks[static_cast<std::size_t>(Limiter::kBarriers)] = kUnlimitedBlocks;
  const json line = json::parse(kernel_line(naive_kernel(), config));
  EXPECT_EQ(line["smem_occupancy"], 1.0);
  EXPECT_EQ(line["barrier_occupancy"], 1.0);
  EXPECT_TRUE(line["limit_blocks"]["shared_mem"].is_null());
  EXPECT_TRUE(line["limit_blocks"]["barriers"].is_null());
  EXPECT_EQ(line["limit_blocks"]["warps"], 6);
}

TEST(LogEncoder, QueueTimeBelowZeroIsKeptAndFlagged) {
  Buffer out;
  RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  append_kernel_event(out, config, RenderedStream(), {}, timed_launch());
  const json line = json::parse(out.view());
  EXPECT_EQ(line["queue_ns"], -890);
  EXPECT_EQ(line["queue_negative"], true);
  EXPECT_EQ(line["duration_ns"], 33'000);
  EXPECT_EQ(line["late"], true);
  EXPECT_FALSE(json::parse(kernel_line(naive_kernel(), naive_config())).contains("late"));
}

// Its launch time is a stand-in: no queue time is made of it.
TEST(LogEncoder, UnlaunchedKernelHasNoQueueTime) {
  Buffer out;
  RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  append_kernel_event(out, config, RenderedStream(), {}, unlaunched_kernel());
  const json line = json::parse(out.view());
  EXPECT_EQ(line["unlaunched"], true);
  EXPECT_EQ(line["launch_ns"], line["start_ns"]);
  EXPECT_TRUE(line["queue_ns"].is_null());
  EXPECT_TRUE(line["thread"].is_null());
  EXPECT_EQ(line["duration_ns"], 2'500);
  EXPECT_FALSE(json::parse(kernel_line(naive_kernel(), naive_config())).contains("unlaunched"));
}

TEST(LogEncoder, ThroughputIsBytesPerSecondOrNull) {
  const auto throughput = [](std::optional<std::int64_t> start, std::optional<std::int64_t> end) {
    MemcpyEvent copy = memcpy_event();
    copy.bytes = 3;
    copy.start_ns = start;
    copy.end_ns = end;
    Buffer out;
    append_memcpy_event(out, RenderedStream(), {}, copy);
    return json::parse(out.view())["bytes_per_second"];
  };
  EXPECT_EQ(throughput(100, 102), 1'500'000'000);
  EXPECT_TRUE(throughput(100, 100).is_null());
  EXPECT_TRUE(throughput(100, std::nullopt).is_null());
}

TEST(LogText, RatiosAreExactAndShort) {
  const auto ratio = [](std::uint64_t a, std::uint64_t b) {
    char text[kMaxRatioChars];
    return std::string(text, write_ratio(text, a, b));
  };
  EXPECT_EQ(ratio(40, 48), "0.833333");
  EXPECT_EQ(ratio(48, 48), "1.0");
  EXPECT_EQ(ratio(24, 48), "0.5");
  EXPECT_EQ(ratio(0, 48), "0.0");
  EXPECT_EQ(ratio(32, 48), "0.666667");
  EXPECT_EQ(ratio(1, 64), "0.015625");
  EXPECT_EQ(ratio(1, 128), "0.007813");  // a tie goes up
  EXPECT_EQ(ratio(9'999'999, 10'000'000), "1.0");
  EXPECT_EQ(ratio(1'999'999'999, 1'000'000'000), "2.0");
  EXPECT_EQ(ratio(~0ull, 1), "18446744073709551615.0");
  EXPECT_EQ(ratio(~0ull, ~0ull - 1), "1.0");
  for (std::uint64_t a = 0; a <= 64; ++a) {  // against the C library
    for (const std::uint64_t b : {7ull, 48ull, 64ull, 1000ull}) {
      EXPECT_NEAR(std::strtod(ratio(a, b).c_str(), nullptr), static_cast<double>(a) / static_cast<double>(b), 5.1e-7);
    }
  }
}

TEST(LogText, EscapesControlCharactersAndQuotes) {
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string(std::string_view("\0\x01\n\t\r\b\f\x1f\x7f", 9)),
            std::string(R"("\u0000\u0001\n\t\r\b\f\u001f)") + "\x7f\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

// One U+FFFD for each maximal invalid part: the examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
TEST(LogText, InvalidUtf8BecomesReplacementCharacters) {
  const auto replaced = [](std::string_view bytes) {
    std::string text = json::parse(json_string(bytes)).get<std::string>();
    for (std::size_t at; (at = text.find("\xEF\xBF\xBD")) != std::string::npos;) text.replace(at, 3, "?");
    return text;
  };
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "????????A");
  EXPECT_EQ(replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "????????A");
  EXPECT_EQ(replaced("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "?????A??B");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "????A");
  EXPECT_EQ(replaced("ok\xE2\x82"), "ok?");
  const char* valid = "h\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x9A\x80";
  EXPECT_EQ(json::parse(json_string(valid)), valid);
}

// Whatever bytes a name holds: strict JSON, and the text that another implementation of the replacement gets.
TEST(LogText, RandomBytesAgreeWithAnotherImplementation) {
  std::mt19937 random(20250720);
  const std::string_view likely("\xC2\xE0\xED\xF0\xF4\x80\x8F\x90\x9F\xA0\xBF\"\\\n\0A", 16);
#ifdef __SANITIZE_ADDRESS__
  constexpr int kRounds = 2'000;  // what is tested against is slow then
#else
  constexpr int kRounds = 20'000;
#endif
  for (int i = 0; i < kRounds; ++i) {
    std::string name(random() % 40, '\0');
    for (char& c : name) c = random() % 2 ? likely[random() % likely.size()] : static_cast<char>(random());
    KernelInfo kernel = naive_kernel();
    kernel.name = name;
    const json line = json::parse(kernel_line(kernel, naive_config()));
    const json expected = json::parse(json(name).dump(-1, ' ', false, json::error_handler_t::replace));
    ASSERT_EQ(line["name"], expected) << i;
  }
}

TEST(LogEncoder, NameOf64KilobytesIsWhole) {
  KernelInfo kernel = naive_kernel();
  kernel.name = "_Z" + std::string(65'536, 'x') + "\"\xff";
  const std::string whole = "_Z" + std::string(65'536, 'x') + "\"\xEF\xBF\xBD";
  EXPECT_EQ(json::parse(kernel_line(kernel, naive_config()))["name"], whole);
}

TEST(LogEncoder, HostLocaleDoesNotMatter) {
  const std::string plain = all_lines();
  const char* found = nullptr;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE"}) {
    if ((found = std::setlocale(LC_ALL, name)) != nullptr) break;
  }
  if (found == nullptr) GTEST_SKIP() << "no locale with a decimal comma here: tools/setup.sh makes one";
  char comma[8];
  std::snprintf(comma, sizeof comma, "%.1f", 0.5);
  EXPECT_STREQ(comma, "0,5");  // or the test would show nothing
  const std::string there = all_lines();
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(plain, there);
}

TEST(LogEncoder, LedgerLinesAreThoseOfRingRecords) {
  std::istringstream lines(all_lines());
  std::string line;
  int ring = 0;
  while (std::getline(lines, line)) {
    const std::string type = json::parse(line)["type"];
    const bool expected = type == "kernel_event" || type == "graph_launch_event" || type == "scope_event" ||
                          type == "sync_event" || type == "api_event" || type == "memcpy_event" ||
                          type == "memset_event" || type == "memory_event" || type == "stream_edge";
    EXPECT_EQ(is_ring_event(line), expected) << type;
    ring += expected;
  }
  EXPECT_EQ(ring, 29);
  EXPECT_FALSE(is_ring_event(""));
  EXPECT_FALSE(is_ring_event(R"({"type":"kernel_eventual"})"));
}

TEST(LogBuffer, LineThatFindsNoMemoryIsDroppedWhole) {
  const std::string line = kernel_line(naive_kernel(), naive_config());
  Buffer out(4096);  // room for one or two
  RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
  int written = 0;
  for (int i = 0; i < 10; ++i) written += append_kernel_event(out, config, render_stream(stream()), {}, launch());
  EXPECT_GT(written, 0);
  EXPECT_LT(written, 10);
  EXPECT_EQ(out.lines(), static_cast<std::uint64_t>(written));
  EXPECT_EQ(out.dropped_lines(), static_cast<std::uint64_t>(10 - written));
  while (append_notice_event(out, notice())) {
  }
  EXPECT_FALSE(append_session_start(out, session_start(), 1));
  std::istringstream lines{std::string(out.view())};
  std::string text;
  std::uint64_t whole = 0;
  while (std::getline(lines, text)) {
    EXPECT_TRUE(json::accept(text));
    ++whole;
  }
  EXPECT_EQ(whole, out.lines());
  EXPECT_EQ(out.view().back(), '\n');
  out.clear();
  EXPECT_TRUE(append_notice_event(out, notice()));  // and it goes on
}

TEST(LogEncoder, ConfigWithoutMemoryDropsItsLines) {
  RenderedConfig none;
  Buffer out;
  EXPECT_FALSE(none.valid());
  EXPECT_FALSE(append_kernel_event(out, none, RenderedStream(), {}, launch()));
  EXPECT_FALSE(append_kernel_summary(out, none, summary()));
  EXPECT_EQ(out.dropped_lines(), 2u);
  EXPECT_TRUE(out.view().empty());
}

}  // namespace
}  // namespace gpuflight::log
