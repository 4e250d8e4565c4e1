// Records of calls beside launches as lines, with rings as threads fill them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "flight/record_event.h"
#include "flight_fixture.h"
#include "recorder/call_lines.h"

namespace gpuflight::recorder {
namespace {

using event::ApiCall;
using flight::Record;
using flight::RecordPhase;
using nlohmann::json;

class CallLinesTest : public flight::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    writer_ = std::make_unique<flight::FlightWriter>(path("a.flight"));
    page_ = capture::HotPage::create();
    streams_ = std::make_unique<capture::StreamTable>(driver_, *writer_->rows, *page_, 16);
    lines_ = std::make_unique<CallLines>(*writer_->rings, *streams_, notices_);
  }

  static Record* begin(flight::Ring* ring, ApiCall call, std::int64_t ns, std::int64_t call_ns) {
    Record* const record = ring->begin();
    record->kind = static_cast<std::uint8_t>(flight::RecordKind::kApiCall);
    record->flags = 0;
    record->config = static_cast<std::uint32_t>(call);
    record->launch_ns = ns;
    record->call_ns = call_ns;
    record->status = 0;
    record->grid_x = 1;
    record->grid_y = record->grid_z = 0;
    record->stream = record->correlation = record->graph = record->scope = record->bytes_low = 0;
    record->thread = 9;
    record->phase.store(static_cast<std::uint8_t>(RecordPhase::kReturned));
    return record;
  }
  static Record* memory(flight::Ring* ring, ApiCall call, std::int64_t ns, std::uint64_t address,
                        std::uint64_t bytes = 0, std::int64_t call_ns = 1) {
    Record* const record = begin(ring, call, ns, call_ns);
    flight::pack_handle(*record, address);
    flight::pack_bytes(*record, bytes);
    if (!flight::has_owner(call)) flight::pack_device(*record, 0);
    ring->publish();
    return record;
  }

  // A round as Drain makes it: all rings looked at, then each ring's records in turn.
  std::vector<json> round(std::initializer_list<flight::Ring*> rings) {
    log::Buffer out;
    for (flight::Ring* ring : rings) {
      lines_->look_ahead(ring->slot_index(), flight::kNoChunk, 0);
    }
    lines_->settle();
    for (flight::Ring* ring : rings) {
      std::uint64_t& taken = taken_[ring];
      flight::Chunk& chunk = writer_->rings->chunk(writer_->rings->first_chunk(*ring));
      for (; taken < ring->counter(); ++taken) {
        const Record& record = chunk.records[taken];
        const auto phase = static_cast<RecordPhase>(record.phase.load());
        if (phase == RecordPhase::kEntered) break;
        const event::Seq seq(ring->slot_index(), taken);
        lines_->see(record, phase, seq);
        EXPECT_TRUE(lines_->append(out, {}, record, phase, seq, false));
      }
    }
    std::vector<json> lines;
    std::string_view text = out.view();
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      lines.push_back(json::parse(text.substr(0, end)));
      text.remove_prefix(end + 1);
    }
    return lines;
  }

  std::unique_ptr<flight::FlightWriter> writer_;
  capture::DriverApi driver_;
  capture::HotPage* page_ = nullptr;
  capture::NoticeBoard notices_;
  std::unique_ptr<capture::StreamTable> streams_;
  std::unique_ptr<CallLines> lines_;
  std::map<flight::Ring*, std::uint64_t> taken_;
};

TEST_F(CallLinesTest, PackedValuesComeBackWhole) {
  Record record{};
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x1234'5678'9ABC},
                                    flight::kMaxPacked}) {
    for (const ApiCall call : {ApiCall::kMemAllocFromPoolAsync, ApiCall::kMemMap}) {
      record.config = static_cast<std::uint32_t>(call);
      flight::pack_handle(record, ~value);
      flight::pack_bytes(record, value);
      flight::pack_owner(record, value);
      EXPECT_EQ(flight::handle_of(record), ~value);
      EXPECT_EQ(flight::bytes_of(record), value);
      EXPECT_EQ(flight::owner_of(record), value);
    }
  }
  flight::pack_bytes(record, flight::kMaxPacked + 1);  // not known rather than wrong
  EXPECT_EQ(flight::bytes_of(record), 0u);
  flight::pack_owner(record, flight::kMaxPacked + 1);
  EXPECT_EQ(flight::owner_of(record), 0u);
}

// Two threads take turns with one address; their rings are read one after the other.
TEST_F(CallLinesTest, ThreadsAreSortedByTime) {
  flight::Ring* const a = writer_->rings->acquire(1, "a");
  flight::Ring* const b = writer_->rings->acquire(2, "b");
  memory(b, ApiCall::kMemAlloc, 10, 0x100, 8);
  memory(b, ApiCall::kMemFree, 20, 0x100);
  memory(a, ApiCall::kMemAlloc, 30, 0x100, 5);  // first ring, later time; lives on
  const auto lines = round({a, b});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["total_bytes"], 5);
  EXPECT_EQ(lines[0]["peak_bytes"], 8);
  EXPECT_EQ(lines[1]["total_bytes"], 8);
  EXPECT_EQ(lines[2]["bytes"], 8);
  EXPECT_EQ(lines[2]["total_bytes"], 0);
  EXPECT_EQ(lines_->memory().live(), 1u);
}

TEST_F(CallLinesTest, WhatReturnsDuringARoundIsCountedOnce) {
  flight::Ring* const a = writer_->rings->acquire(1, "a");
  Record* const open = memory(a, ApiCall::kMemAlloc, 10, 0x100, 8);
  open->phase.store(static_cast<std::uint8_t>(RecordPhase::kEntered));
  EXPECT_TRUE(round({a}).empty());
  open->phase.store(static_cast<std::uint8_t>(RecordPhase::kReturned));
  // Not looked ahead at, as if it had returned in between.
  const event::Seq seq(a->slot_index(), 0);
  log::Buffer out;
  lines_->see(*open, RecordPhase::kReturned, seq);
  ASSERT_TRUE(lines_->append(out, {}, *open, RecordPhase::kReturned, seq, false));
  EXPECT_EQ(json::parse(out.view())["total_bytes"], 8);
  taken_[a] = 1;
  memory(a, ApiCall::kMemAlloc, 20, 0x200, 1);
  EXPECT_EQ(round({a}).at(0)["total_bytes"], 9);
  EXPECT_EQ(lines_->memory().live(), 2u);
}

TEST_F(CallLinesTest, AFreeIsWhenItWasCalledAnAllocationWhenItReturned) {
  flight::Ring* const a = writer_->rings->acquire(1, "a");
  flight::Ring* const b = writer_->rings->acquire(2, "b");
  memory(a, ApiCall::kMemAlloc, 0, 0x100, 4);
  memory(a, ApiCall::kMemFree, 100, 0x100, 0, 1000);      // returns at 1100
  memory(b, ApiCall::kMemAlloc, 50, 0x100, 7, 200);       // begun before the free, given its memory at 250
  const auto lines = round({a, b});
  EXPECT_EQ(lines[1]["bytes"], 4);
  EXPECT_EQ(lines[2]["total_bytes"], 7);
  EXPECT_EQ(lines_->memory().live(), 1u);
}

TEST_F(CallLinesTest, OthersAreWhatTheirKindSays) {
  flight::Ring* const a = writer_->rings->acquire(1, "a");
  begin(a, ApiCall::kStreamSynchronize, 1, 5);
  a->publish();
  begin(a, ApiCall::kMemcpyAsync, 2, 5);
  a->publish();
  begin(a, ApiCall::kMemPrefetchAsync, 3, 5);
  a->publish();
  Record* const edge = begin(a, ApiCall::kStreamWaitEvent, 4, 5);
  flight::pack_handle(*edge, 0x7f00'1234'5678'9ABC);
  edge->flags = flight::kFlagCaptured;
  a->publish();
  Record* const left = begin(a, ApiCall::kMemAlloc, 6, 0);
  left->phase.store(static_cast<std::uint8_t>(RecordPhase::kAbandoned));
  a->publish();
  const auto lines = round({a});
  EXPECT_EQ(lines[0]["type"], "sync_event");
  EXPECT_EQ(lines[1]["type"], "api_event");
  EXPECT_EQ(lines[2]["call"], "cuMemPrefetchAsync");
  EXPECT_EQ(lines[3]["type"], "stream_edge");
  EXPECT_EQ(lines[3]["event"], "0x7f00123456789abc");
  EXPECT_EQ(lines[3]["captured"], true);
  EXPECT_EQ(lines[4]["type"], "memory_event");
  EXPECT_EQ(lines[4]["status"], nullptr);
  EXPECT_EQ(lines_->memory().live(), 0u);
}

}  // namespace
}  // namespace gpuflight::recorder
