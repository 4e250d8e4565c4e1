// Flight file and log joined: nothing doubled, nothing forgotten, and a ledger that says where everything went.
#include <gtest/gtest.h>

#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "analysis/flight_log.h"
#include "analysis/recovery.h"
#include "event/timestamp.h"
#include "flight/record_event.h"
#include "flight_fixture.h"
#include "log/decoder.h"
#include "log/encoder.h"

namespace gpuflight::analysis {
namespace {

using flight::FlightWriter;
using flight::RecordPhase;
using flight::Ring;

class RecoveryTest : public flight::FolderTest {
 protected:
  void make(std::uint32_t chunks = 16) {
    w = std::make_unique<FlightWriter>(path("a.flight"), flight::small_capacities(chunks));
    w->set_log(path("a.ndjson"));
    config = w->add_config("_Z4tickPf").value;
    event::StreamInfo stream;
    stream.device = 0;
    stream.stream = w->rows->add_stream(stream);
    one = w->rings->acquire(100, "one");
  }

  static std::string session_line(std::uint32_t segment = 1, std::int64_t t0 = FlightWriter::kT0) {
    event::SessionStart session;
    session.pid = 4242;
    session.t0_unix_ns = t0;
    session.t0_rfc3339 = event::rfc3339(t0);
    log::Buffer out;
    log::append_session_start(out, session, segment);
    return std::string(out.view());
  }
  // The lines of counters [from, to) of slot 1, as the recorder writes them.
  std::string lines(std::uint64_t from, std::uint64_t to) const {
    log::Buffer out;
    log::RenderedConfig unknown = log::render_unknown_config(true);
    event::StreamInfo stream;
    stream.stream = event::StreamId{1};
    const log::RenderedStream rendered = log::render_stream(stream);
    for (std::uint64_t c = from; c < to; ++c) {
      event::KernelLaunch launch;
      launch.seq = event::Seq(1, c);
      launch.launch_ns = static_cast<std::int64_t>(c) * 10;
      launch.call_ns = 5;
      launch.status = 0;
      launch.stream = stream.stream;
      log::append_kernel_event(out, unknown, rendered, "", launch);
    }
    return std::string(out.view());
  }
  static std::string summary_line(std::int64_t to_ns, std::uint64_t count) {
    event::KernelSummary summary;
    summary.seq = event::Seq(0, 99);
    summary.to_ns = to_ns;
    summary.count = count;
    log::Buffer out;
    log::append_kernel_summary(out, log::render_unknown_config(true), summary);
    return std::string(out.view());
  }
  static std::string end_line() {
    event::SessionEnd end;
    end.reason = "exit";
    log::Buffer out;
    log::append_session_end(out, end);
    return std::string(out.view());
  }
  void write_log(const std::string& text, const std::string& name = "a.ndjson") const {
    flight::spill(path(name), text);
  }
  void launch_many(int n, RecordPhase last = RecordPhase::kReturned) {
    for (int i = 0; i < n; ++i) {
      const auto ns = static_cast<std::int64_t>(one->counter()) * 10;
      w->launch(one, ns, config, 1, i + 1 < n ? RecordPhase::kReturned : last);
    }
  }
  // The recorder has dealt with the first `n` records of slot 1.
  void mark_taken(std::uint32_t n) {
    for (std::uint32_t chunk = w->rings->first_chunk(*one); chunk != flight::kNoChunk && n > 0;
         chunk = w->rings->next_chunk(chunk)) {
      const std::uint32_t here = std::min(n, flight::kRecordsPerChunk);
      w->rings->chunk(chunk).header.taken.store(here);
      n -= here;
    }
  }
  std::unique_ptr<Recovery> recover(RecoveryOptions options = {}) const {
    auto recovery = std::make_unique<Recovery>(path("a.flight"), std::move(options));
    recovery->run();
    return recovery;
  }
  // Counters of the kernel events among the recovered lines, in their order; all lines must be good ones.
  std::vector<std::uint64_t> recovered(Recovery& recovery, std::vector<std::string>* types = nullptr) const {
    const std::string file = path("recovered.ndjson");
    std::string text;
    recovery.write_lines([&](std::string_view piece) { text += piece; });
    flight::spill(file, text);
    std::vector<std::uint64_t> counters;
    log::LogReader reader(file);
    EXPECT_EQ(reader.open(), 0);
    for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) {
      if (types != nullptr) types->push_back(std::string(reader.line().substr(9, reader.line().find('"', 9) - 9)));
      const auto* const kernel = std::get_if<log::KernelEventLine>(&event);
      if (kernel != nullptr) counters.push_back(kernel->launch.seq.counter());
    }
    EXPECT_EQ(reader.stats().trouble_total(), 0u);
    return counters;
  }
  static std::vector<std::uint64_t> range(std::uint64_t from, std::uint64_t to) {
    std::vector<std::uint64_t> all;
    for (; from < to; ++from) all.push_back(from);
    return all;
  }

  std::unique_ptr<FlightWriter> w;
  Ring* one = nullptr;
  std::uint32_t config = 0;
};

TEST_F(RecoveryTest, WhatTheLogLacksComesFromTheFlightFileOnce) {
  make();
  launch_many(300);
  mark_taken(100);
  write_log(session_line() + lines(0, 100));
  auto r = recover();
  const RecoveryLedger& ledger = r->result().ledger;
  EXPECT_EQ(ledger.seen, 300u);
  EXPECT_EQ(ledger.in_log, 100u);
  EXPECT_EQ(ledger.recovered, 200u);
  EXPECT_EQ(ledger.lost_total(), 0u);
  EXPECT_TRUE(ledger.balanced());
  EXPECT_EQ(r->result().verdict, Verdict::kStopped);
  std::vector<std::string> types;
  EXPECT_EQ(recovered(*r, &types), range(100, 300));
  ASSERT_GE(types.size(), 3u);
  EXPECT_EQ(types[0], "session_start");
  EXPECT_EQ(types[1], "stream_info");
  EXPECT_EQ(types[2], "notice_event");
}

// The recorder was killed after its write and before it marked the records as taken.
TEST_F(RecoveryTest, LinesThatWereNotMarkedYetAreNotDoubled) {
  make();
  launch_many(300);
  write_log(session_line() + lines(0, 280));
  auto r = recover();
  EXPECT_EQ(r->result().ledger.recovered, 20u);
  EXPECT_TRUE(r->result().ledger.balanced());
  EXPECT_EQ(recovered(*r), range(280, 300));
}

// A call of the ring may have become a line of another type; what belongs to no ring is none of the flight file's.
TEST_F(RecoveryTest, LinesOfTheTimelineAreKnown) {
  make();
  launch_many(6);
  log::Buffer out;
  event::MemcpyEvent copy;
  copy.seq = event::Seq(1, 1);
  log::append_memcpy_event(out, log::RenderedStream(), {}, copy);
  event::MemsetEvent fill;
  fill.seq = event::Seq(1, 2);
  log::append_memset_event(out, log::RenderedStream(), {}, fill);
  event::MemoryEvent memory;
  memory.call = static_cast<std::uint32_t>(event::ApiCall::kMemAlloc);
  memory.seq = event::Seq(1, 3);
  log::append_memory_event(out, {}, memory);
  event::StreamEdge edge;
  edge.seq = event::Seq(1, 4);
  log::append_stream_edge(out, {}, edge);
  event::KernelLaunch node;
  node.seq = event::Seq(event::kGpuSlot, 0);
  log::RenderedConfig unknown = log::render_unknown_config(true);
  log::append_kernel_event(out, unknown, log::RenderedStream(), {}, node);
  w->file.slots()[event::kGpuSlot].seen.store(1);
  write_log(session_line() + lines(0, 1) + std::string(out.view()));
  auto r = recover();
  const RecoveryLedger& ledger = r->result().ledger;
  EXPECT_EQ(ledger.in_log, 6u);
  EXPECT_EQ(ledger.seen, 7u);
  EXPECT_TRUE(ledger.balanced());
  for (const std::uint64_t count : r->result().flight_troubles) EXPECT_EQ(count, 0u);
  EXPECT_EQ(recovered(*r), range(5, 6));
}

TEST_F(RecoveryTest, TornLineAndRotatedSegments) {
  make();
  launch_many(120);
  mark_taken(120);
  const std::string plain = session_line(1) + lines(0, 40);
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 1));
  write_log(packed, "a.0001.ndjson.zst");
  write_log(session_line(2) + lines(40, 80), "a.0002.ndjson");
  const std::string live = session_line(3) + lines(80, 101);
  write_log(live.substr(0, live.size() - 30));
  auto r = recover();
  EXPECT_EQ(r->result().ledger.in_log, 100u);
  EXPECT_EQ(r->result().log_stats[log::Trouble::kTornLine].count, 1u);
  EXPECT_TRUE(r->result().ledger.balanced());
  EXPECT_EQ(recovered(*r), range(100, 120)) << "the torn one among them";
}

TEST_F(RecoveryTest, LossesAreTakenOverAndWritten) {
  make(16);  // the smallest pool: 16 chunks
  const int room = 16 * static_cast<int>(flight::kRecordsPerChunk);
  for (int i = 0; i < room + 25; ++i) w->launch(one, i * 10, config);
  w->file.ledger().lost[static_cast<std::size_t>(event::LossCause::kNoThreadSlot)].store(3);
  write_log(session_line());
  auto r = recover();
  const RecoveryLedger& ledger = r->result().ledger;
  EXPECT_EQ(ledger.seen, room + 28u);
  EXPECT_EQ(ledger.recovered, room + 0u);
  EXPECT_EQ(ledger.lost[static_cast<std::size_t>(event::LossCause::kPoolEmpty)], 25u);
  EXPECT_EQ(ledger.lost_total(), 28u);
  EXPECT_TRUE(ledger.balanced());
  std::vector<std::string> types;
  recovered(*r, &types);
  EXPECT_EQ(types.back(), "loss_event");
}

// Killed between "seen" and "committed": the call had not begun.
TEST_F(RecoveryTest, RecordThatWasBeingWrittenIsNamedAsSuch) {
  make();
  launch_many(10);
  one->slot().seen.store(11);
  write_log(session_line());
  auto r = recover();
  EXPECT_EQ(r->result().ledger.unfinished, 1u);
  EXPECT_EQ(r->result().ledger.unexplained, 0u);
  EXPECT_TRUE(r->result().ledger.balanced());
}

TEST_F(RecoveryTest, WhatIsInNeitherPlaceIsSaid) {
  make();
  launch_many(100);
  mark_taken(100);
  w->rings->chunk(w->rings->first_chunk(*one)).header.slot_plus_one.store(0);  // used by nobody any more
  w->rings->chunk(w->rings->first_chunk(*one)).header.committed.store(0);
  w->file.ledger().rotated_away.store(30);
  w->file.ledger().lost[static_cast<std::size_t>(event::LossCause::kWriteFailed)].store(5);
  write_log(session_line() + lines(50, 100));
  const RecoveryLedger ledger = recover()->result().ledger;
  EXPECT_EQ(ledger.seen, 100u);
  EXPECT_EQ(ledger.rotated_away, 30u);
  EXPECT_EQ(ledger.lost[static_cast<std::size_t>(event::LossCause::kWriteFailed)], 5u);
  EXPECT_EQ(ledger.unexplained, 15u);
  EXPECT_TRUE(ledger.balanced());
  w->file.ledger().rotated_away.store(80);  // more than can be missing
  const RecoveryLedger wrong = recover()->result().ledger;
  EXPECT_EQ(wrong.surplus, 35u);
  EXPECT_FALSE(wrong.balanced());
}

// The disk was full: counted as lost by the recorder, yet still in the flight file.
TEST_F(RecoveryTest, FailedWritesAreRecovered) {
  make();
  launch_many(50);
  mark_taken(50);
  w->file.ledger().lost[static_cast<std::size_t>(event::LossCause::kWriteFailed)].store(20);
  write_log(session_line() + lines(0, 30));
  auto r = recover();
  EXPECT_EQ(r->result().ledger.recovered, 20u);
  EXPECT_EQ(r->result().ledger.lost_total(), 0u);
  EXPECT_TRUE(r->result().ledger.balanced());
  EXPECT_EQ(recovered(*r), range(30, 50));
}

TEST_F(RecoveryTest, EventsOfSummariesAreHistoryAndNotCountedTwice) {
  make();
  launch_many(100);
  mark_taken(90);
  w->file.ledger().summarised.store(80);
  // The last summary line reaches to 75: what was dealt with after it stands in no line.
  write_log(session_line() + lines(0, 10) + summary_line(750, 65));
  auto r = recover();
  EXPECT_EQ(recovered(*r), range(76, 100));
  EXPECT_EQ(r->result().ledger.recovered, 24u);
  EXPECT_EQ(r->result().ledger.summarised, 66u);
  EXPECT_TRUE(r->result().ledger.balanced());
  RecoveryOptions options;
  options.history = true;
  auto all = recover(options);
  EXPECT_EQ(recovered(*all), range(10, 100));
  EXPECT_EQ(all->result().history, 66u);
  EXPECT_TRUE(all->result().ledger.balanced());
}

// As many as a dump by the recorder itself would write, the latest; what no summary tells of is always there.
TEST_F(RecoveryTest, HistoryOfABlackBoxIsLimited) {
  make();
  w->file.header().mode = 1;
  launch_many(100);
  mark_taken(90);
  w->file.ledger().summarised.store(80);
  write_log(session_line() + summary_line(750, 75));
  RecoveryOptions options;
  options.history_events = 20;
  auto r = recover(options);
  EXPECT_EQ(recovered(*r), range(56, 100));
  EXPECT_EQ(r->result().history, 20u);
  EXPECT_EQ(r->result().ledger.recovered, 24u);
  EXPECT_TRUE(r->result().ledger.balanced());
  options.history_events = 0;
  EXPECT_EQ(recovered(*recover(options)), range(76, 100));
}

// What the parent saw is written with the events, and found there by whoever looks later.
TEST_F(RecoveryTest, HowTheProcessEnded) {
  make();
  w->file.header().process_start_ticks = 77;
  launch_many(60);
  write_log(session_line() + lines(0, 45));
  RecoveryOptions options;
  options.exit.emplace();
  options.exit->pid = 4242;
  options.exit->signal = 11;
  options.exit_monotonic_ns = w->file.header().t0_monotonic_ns + 5'000;
  options.exit_start_ticks = 78;
  EXPECT_FALSE(recover(options)->result().exit) << "another process that had the number";
  options.exit_start_ticks = 77;
  options.replaced = true;
  EXPECT_FALSE(recover(options)->result().exit) << "another program of the same process";
  options.replaced = false;
  options.exit->pid = 4243;
  EXPECT_FALSE(recover(options)->result().exit);
  options.exit->pid = 4242;
  auto r = recover(options);
  ASSERT_TRUE(r->result().exit);
  EXPECT_EQ(r->result().exit->time_ns, 5'000);
  EXPECT_EQ(r->result().verdict, Verdict::kStopped);
  EXPECT_EQ(r->result().recovered_path, "");

  std::string text;
  r->write_lines([&](std::string_view piece) { text += piece; });
  EXPECT_NE(text.rfind("\n{\"type\":\"exit_event\","), std::string::npos);
  EXPECT_EQ(text.find('\n', text.find("exit_event")), text.size() - 1) << "the last line";
  write_log(text, "a.recovered.ndjson");
  auto later = recover();
  ASSERT_TRUE(later->result().exit);
  EXPECT_EQ(later->result().exit->signal, 11);
  EXPECT_EQ(later->result().recovered_path, path("a.recovered.ndjson"));
  EXPECT_EQ(later->result().ledger.recovered, 15u);

  // One that lacks an event does not do, nor does that of another recording.
  const std::size_t event = text.find("{\"type\":\"kernel_event\"");
  write_log(text.substr(0, event) + text.substr(text.find('\n', event) + 1), "a.recovered.ndjson");
  EXPECT_EQ(recover()->result().recovered_path, "");
  EXPECT_TRUE(recover()->result().exit);
  write_log(session_line(1, FlightWriter::kT0 + 1) + text.substr(text.find('\n') + 1), "a.recovered.ndjson");
  EXPECT_FALSE(recover()->result().exit);
  EXPECT_EQ(recover()->result().recovered_path, "");
}

TEST_F(RecoveryTest, CallsThatHadNotReturned) {
  make();
  launch_many(10, RecordPhase::kEntered);
  write_log(session_line() + lines(0, 5));
  auto r = recover({.log = "", .last = 3, .history = false});
  ASSERT_EQ(r->result().open_calls.size(), 1u);
  EXPECT_EQ(r->result().open_calls[0].seq.counter(), 9u);
  EXPECT_FALSE(r->result().open_calls[0].status);
  ASSERT_EQ(r->result().streams.size(), 1u);
  const StreamTail& tail = r->result().streams[0];
  ASSERT_EQ(tail.last.size(), 3u);
  EXPECT_EQ(tail.last[2].call, LastLaunch::Call::kInside);
  EXPECT_EQ(tail.last[1].call, LastLaunch::Call::kReturned);
  EXPECT_FALSE(tail.completed_up_to) << "nothing proves it";
  EXPECT_EQ(r->describe(tail.last[2].config).kernel, "_Z4tickPf");
}

TEST_F(RecoveryTest, StickyStatusIsACudaError) {
  make();
  launch_many(3);
  w->launch(one, 30, config, 1, RecordPhase::kReturned, 1);  // refused, harmless
  write_log(session_line());
  EXPECT_EQ(recover()->result().verdict, Verdict::kStopped);
  w->launch(one, 40, config, 1, RecordPhase::kReturned, 700);
  w->launch(one, 50, config, 1, RecordPhase::kReturned, 700);
  auto r = recover();
  EXPECT_EQ(r->result().verdict, Verdict::kCudaError);
  EXPECT_EQ(r->result().cuda_error->launch_ns, 40);
  EXPECT_EQ(r->result().cuda_error_launches, 2u);
}

// A call that a thread may wait in, as CallRecorder writes it.
void add_call(FlightWriter& w, Ring* ring, std::int64_t ns, event::ApiCall call, std::int32_t status = 0) {
  const auto number = static_cast<std::uint32_t>(call);
  flight::Record* const record = w.launch(ring, ns, number, 1, RecordPhase::kReturned, status);
  record->kind = static_cast<std::uint8_t>(flight::RecordKind::kApiCall);
}

TEST_F(RecoveryTest, CallsThatWaitAreRecoveredAsTheirLines) {
  make();
  launch_many(2);
  add_call(*w, one, 20, event::ApiCall::kStreamSynchronize);
  add_call(*w, one, 30, event::ApiCall::kMemcpyDtoH);
  write_log(session_line());
  auto r = recover();
  EXPECT_EQ(r->result().ledger.recovered, 4u);
  EXPECT_EQ(r->result().flight_troubles, (std::array<std::uint64_t, flight::kFlightTroubleCount>{}));
  std::vector<std::string> types;
  recovered(*r, &types);
  EXPECT_EQ(std::count(types.begin(), types.end(), "sync_event"), 1);
  EXPECT_EQ(std::count(types.begin(), types.end(), "api_event"), 1);
  // Written to the log they are there, and not recovered again.
  std::string calls;
  r->write_lines([&](std::string_view piece) { calls += piece; });
  write_log(calls);
  EXPECT_EQ(recover()->result().ledger.in_log, 4u);
  EXPECT_TRUE(recover()->result().ledger.balanced());
  // A call that this version does not know is of an unknown kind.
  add_call(*w, one, 40, static_cast<event::ApiCall>(event::kApiCallCount));
  EXPECT_EQ(recover()->result().flight_troubles[static_cast<std::size_t>(flight::FlightTrouble::kUnknownRecord)], 1u);
}

TEST_F(RecoveryTest, WhatAStreamIsKnownToHaveFinished) {
  make();
  launch_many(10);  // at 0, 10, ... 90; each call takes 1500 ns
  w->file.streams()[1].finished_ns.store(1540);
  write_log(session_line());
  auto r = recover();
  ASSERT_EQ(r->result().streams.size(), 1u);
  const StreamTail& tail = r->result().streams[0];
  EXPECT_EQ(tail.finished_ns, 1540);
  ASSERT_TRUE(tail.completed_up_to);
  EXPECT_EQ(tail.completed_up_to->counter(), 4u);
  EXPECT_EQ(tail.unfinished, 5u);
  ASSERT_TRUE(tail.first_unfinished);
  EXPECT_EQ(tail.first_unfinished->seq.counter(), 5u);
  EXPECT_FALSE(tail.finished(tail.last.back()));
  w->file.streams()[1].finished_ns.store(-5);  // damaged
  EXPECT_EQ(recover()->result().streams[0].finished_ns, 0);
}

TEST_F(RecoveryTest, AReturnThatWasNotTimedIsDoneBehindAMark) {
  make();
  for (int i = 0; i < 10; ++i) {
    flight::Record* const record = w->launch(one, i * 10, config);
    record->flags |= flight::kFlagCallUntimed;
    record->call_ns = 0;
  }
  w->file.streams()[1].finished_ns.store(45);
  write_log(session_line());
  auto r = recover();
  const StreamTail& tail = r->result().streams.at(0);
  EXPECT_EQ(tail.last.back().call_ns, std::nullopt);
  ASSERT_TRUE(tail.completed_up_to);
  EXPECT_EQ(tail.completed_up_to->counter(), 4u);
  ASSERT_TRUE(tail.first_unfinished);
  EXPECT_EQ(tail.first_unfinished->seq.counter(), 5u);
}

TEST_F(RecoveryTest, ALaunchThatSharesATimeIsDoneWhenItMustHaveComeBack) {
  make();
  for (int i = 0; i < 10; ++i) {
    const bool shared = i % 5 != 0;  // read at 0 and 50
    flight::Record* const record = w->launch(one, shared ? i / 5 * 50 : i * 10, config);
    record->flags |= flight::kFlagCallUntimed | (shared ? flight::kFlagTimeShared : 0);
    record->call_ns = shared ? flight::kTimeNotKnown : 0;
  }
  w->file.streams()[1].finished_ns.store(45);  // by their likely times 1 to 4 had begun
  write_log(session_line());
  auto r = recover();
  EXPECT_EQ(r->result().streams.at(0).completed_up_to->counter(), 0u);
  w->file.streams()[1].finished_ns.store(1000);
  r = recover();
  const StreamTail& tail = r->result().streams.at(0);
  EXPECT_EQ(tail.completed_up_to->counter(), 5u);  // of the last ones nobody knows
  EXPECT_EQ(tail.unfinished, 4u);
}

TEST_F(RecoveryTest, StickyErrorOfACallIsACudaErrorAndTheLogKnowsMore) {
  make();
  launch_many(2);
  add_call(*w, one, 20, event::ApiCall::kStreamSynchronize, 1);  // harmless
  write_log(session_line());
  EXPECT_EQ(recover()->result().verdict, Verdict::kStopped);
  add_call(*w, one, 30, event::ApiCall::kStreamSynchronize, 700);
  auto r = recover();
  EXPECT_EQ(r->result().verdict, Verdict::kCudaError);
  ASSERT_TRUE(r->result().error);
  EXPECT_EQ(r->result().error->call, "cuStreamSynchronize");
  EXPECT_EQ(r->result().error->time_ns, 30 + 1500);
  event::ErrorEvent error;
  error.time_ns = 5000;
  error.code = 719;
  error.culprit.emplace();
  log::Buffer line;
  log::append_error_event(line, error);
  write_log(session_line() + std::string(line.view()));
  EXPECT_EQ(recover()->result().error->code, 719) << "the recorder's own account comes first";
}

TEST_F(RecoveryTest, HangsThatAreNotOver) {
  make();
  launch_many(2);
  const auto hang_line = [](event::HangEvent::Phase phase, std::uint32_t stream) {
    event::HangEvent hang;
    hang.phase = phase;
    hang.time_ns = 31'000'000'000;
    hang.stream.stream = event::StreamId{stream};
    log::Buffer out;
    log::append_hang_event(out, hang);
    return std::string(out.view());
  };
  using Phase = event::HangEvent::Phase;
  write_log(session_line() + hang_line(Phase::kBegin, 1) + hang_line(Phase::kBegin, 2) + hang_line(Phase::kEnd, 1));
  auto r = recover();
  EXPECT_EQ(r->result().verdict, Verdict::kStopped);
  ASSERT_EQ(r->result().hangs.size(), 1u);
  EXPECT_EQ(r->result().hangs.begin()->first, 2u);
  EXPECT_EQ(r->result().last_event_ns, 31'000'000'000);
}

TEST_F(RecoveryTest, CleanEndAndRunningProcess) {
  make();
  launch_many(20);
  mark_taken(20);
  write_log(session_line() + lines(0, 20) + end_line());
  auto clean = recover();
  EXPECT_EQ(clean->result().verdict, Verdict::kClean);
  EXPECT_EQ(clean->result().to_write(), 0u);
  clean->write_lines([](std::string_view) { FAIL() << "nothing to write"; });

  write_log(session_line() + lines(0, 20));
  EXPECT_EQ(recover()->result().verdict, Verdict::kStopped);
  EXPECT_EQ(recover()->result().process, ProcessState::kRebooted);
  // This process: it maps the file.
  flight::Header& h = w->file.header();
  h.pid = getpid();
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  boot.getline(h.boot_id, sizeof h.boot_id);
  char host[64] = {};
  gethostname(host, sizeof host - 1);
  w->set_host(host);
  std::ifstream stat("/proc/self/stat");
  std::string field;
  for (int i = 0; i < 22; ++i) stat >> field;  // the name of a test has no blanks
  h.process_start_ticks = std::stoull(field);
  EXPECT_EQ(look_for_process({h.pid, h.process_start_ticks, h.boot_id, h.host, path("a.flight")}),
            ProcessState::kRunning);
  EXPECT_EQ(look_for_process({h.pid, h.process_start_ticks + 1, h.boot_id, h.host, ""}), ProcessState::kGone);
  EXPECT_EQ(look_for_process({h.pid, h.process_start_ticks, "other", h.host, ""}), ProcessState::kRebooted);
  EXPECT_EQ(look_for_process({h.pid, h.process_start_ticks, "other", "elsewhere", ""}), ProcessState::kElsewhere);
  flight::spill(path("copy.flight"), flight::slurp(path("a.flight")));
  EXPECT_EQ(look_for_process({h.pid, h.process_start_ticks, h.boot_id, h.host, path("copy.flight")}),
            ProcessState::kReplaced);
}

TEST_F(RecoveryTest, LogOfAnotherRecordingIsNotJoined) {
  make();
  launch_many(20);
  write_log(session_line(1, 12345) + lines(0, 20));
  auto r = recover();
  EXPECT_EQ(r->result().log_path, "");
  EXPECT_NE(r->result().log_problem.find("another recording"), std::string::npos);
  EXPECT_EQ(r->result().ledger.recovered, 20u);
  EXPECT_TRUE(r->result().ledger.balanced());
  EXPECT_THROW(recover({.log = path("a.ndjson"), .last = 1, .history = false}), std::runtime_error);
  EXPECT_THROW(recover({.log = path("none.ndjson"), .last = 1, .history = false}), std::runtime_error);
}

TEST_F(RecoveryTest, WithoutALogTheHeaderTellsTheSession) {
  make();
  launch_many(20);
  auto r = recover();
  EXPECT_NE(r->result().log_problem.find("is not there"), std::string::npos);
  std::vector<std::string> types;
  EXPECT_EQ(recovered(*r, &types), range(0, 20));
  EXPECT_EQ(types[0], "session_start");
  // Moved together, it is found beside the flight file.
  std::filesystem::create_directory(path("moved"));
  std::filesystem::rename(path("a.flight"), path("moved/a.flight"));
  write_log(session_line() + lines(0, 15), "moved/a.ndjson");
  Recovery moved(path("moved/a.flight"), {});
  moved.run();
  EXPECT_EQ(moved.result().ledger.recovered, 5u);
}

TEST_F(RecoveryTest, DamagedSlotCountersDoNotHideEvents) {
  make();
  launch_many(20);
  one->slot().seen.store(0);
  write_log(session_line() + lines(0, 5));
  auto r = recover();
  EXPECT_EQ(recovered(*r), range(5, 20));
  EXPECT_EQ(r->result().ledger.seen, 20u);
  EXPECT_TRUE(r->result().ledger.balanced());
  EXPECT_EQ(r->result().flight_troubles[static_cast<std::size_t>(flight::FlightTrouble::kBadSlot)], 1u);
}

TEST_F(RecoveryTest, FlightFileAndLogAsOneStreamOfEvents) {
  make();
  launch_many(60);
  write_log(session_line() + lines(0, 45));
  FlightLog both(path("a.flight"));
  log::LogReader reader(both.files(), {});
  ASSERT_EQ(reader.open(), 0);
  std::vector<std::uint64_t> counters;
  for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) {
    const auto* const kernel = std::get_if<log::KernelEventLine>(&event);
    if (kernel != nullptr) counters.push_back(kernel->launch.seq.counter());
  }
  EXPECT_EQ(counters, range(0, 60));
  EXPECT_EQ(reader.stats().trouble_total(), 0u);
}

}  // namespace
}  // namespace gpuflight::analysis
