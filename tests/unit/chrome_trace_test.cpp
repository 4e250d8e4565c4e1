// The trace of lines that no recorder writes; what it is of those that one does, tests/inject/cli_export_test.py says.
#include "report/chrome_trace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "analysis/log_summary.h"
#include "log_fixture.h"
#include "report/kernel_report.h"

namespace gpuflight::report {
namespace {

using nlohmann::json;

// Every time there is, of each line that has one: the worst that a hostile log can say.
std::vector<log::LogEvent> hostile() {
  std::vector<log::LogEvent> events;
  const std::int64_t times[] = {INT64_MIN, INT64_MIN + 1, -(std::int64_t{1} << 53), -1, 0, 1, std::int64_t{1} << 53,
                                INT64_MAX};
  std::uint64_t counter = 0;
  for (const std::int64_t a : times) {
    for (const std::int64_t b : times) {
      const event::Seq seq(1, ++counter);
      log::KernelEventLine kernel;
      kernel.launch.seq = seq;
      kernel.launch.launch_ns = a;
      kernel.launch.call_ns = b;
      kernel.launch.start_ns = b;
      kernel.launch.end_ns = a;
      kernel.duration_ns = a;
      kernel.launch.thread = 1;
      events.push_back(kernel);
      log::MemcpyLine copy;
      copy.copy.seq = seq;
      copy.copy.origin.launch_ns = b;
      copy.copy.origin.call_ns = a;
      copy.copy.start_ns = a;
      copy.copy.end_ns = b;
      copy.copy.graph = event::GraphId(7);
      copy.copy.bytes = UINT64_MAX;
      copy.copy.kind = static_cast<event::CopyKind>(counter % event::kCopyKindCount);
      events.push_back(copy);
      log::MemoryLine memory;
      memory.memory.kind = event::kUnknownAllocation;
      memory.memory.time_ns = a;
      memory.memory.call_ns = b;
      memory.memory.total_bytes = memory.memory.peak_bytes = memory.memory.bytes = UINT64_MAX;
      memory.call = "cuMemFree";
      events.push_back(memory);
      for (const auto phase : {event::ScopeEvent::Phase::kBegin, event::ScopeEvent::Phase::kEnd}) {
        log::ScopeLine scope;
        scope.event.phase = phase;
        scope.event.time_ns = phase == event::ScopeEvent::Phase::kBegin ? a : b;
        scope.scope = "s";
        events.push_back(scope);
      }
      log::GraphLaunchLine graph;
      graph.launch.launch_ns = a;
      graph.launch.start_ns = a;
      graph.launch.end_ns = b;
      events.push_back(graph);
      log::KernelTimeLine time;
      time.time.event = seq;
      time.time.launch_ns = a;
      time.time.start_ns = a;
      time.time.end_ns = b;
      events.push_back(time);
      log::KernelPendingLine pending;
      pending.pending.event = seq;
      pending.pending.launch_ns = a;
      pending.pending.time_ns = b;
      events.push_back(pending);
      event::ClockEvent clock;
      clock.time_ns = a;
      clock.drift_ns = b;
      events.push_back(clock);
      event::HangEvent hang;
      hang.since_ns = a;
      hang.time_ns = b;
      events.push_back(hang);
      log::SyncLine call;
      call.name = "cuNothing";
      call.call.time_ns = a;
      call.call.call_ns = b;
      events.push_back(call);
    }
  }
  return events;
}

// Under UBSan this says more than it shows.
TEST(HostileTimes, MakeAValidTraceAndReport) {
  std::string text;
  ChromeTrace trace([&](std::string_view bytes) { text += bytes; }, {});
  analysis::LogSummary summary(analysis::GroupBy::kGraph);
  for (const std::int64_t offset : {std::int64_t{0}, INT64_MAX, INT64_MIN}) {
    trace.begin_log({offset, true}, true);
    summary.begin_log("hostile");
    log::SessionStartLine start;
    start.session.pid = offset;
    start.session.program = std::string("\xff\"\n\0", 4);
    start.session.configuration = {{"timing", "all"}};
    trace.add(start);
    summary.add(start);
    for (const log::LogEvent& event : hostile()) {
      trace.add(event);
      summary.add(event);
    }
    trace.end_log();
    summary.end_log({});
  }
  trace.finish();
  const json parsed = json::parse(text, nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_EQ(parsed["traceEvents"].size(), trace.events());
  for (const json& event : parsed["traceEvents"]) {
    ASSERT_TRUE(event.contains("ph") && event.contains("pid") && event.contains("ts")) << event;
  }
  EXPECT_FALSE(render_text(summary, {}).empty());
  EXPECT_FALSE(json::parse(render_json(summary, {}), nullptr, false).is_discarded());
}

TEST(ChromeTraceTest, NothingIsAValidTraceToo) {
  std::string text;
  ChromeTrace trace([&](std::string_view bytes) { text += bytes; }, {});
  trace.begin_log({}, false);
  trace.end_log();
  trace.finish();
  EXPECT_EQ(json::parse(text)["traceEvents"].size(), 0u);
}

TEST(ChromeTraceTest, WhatIsThrownOnWritingComesOut) {
  ChromeTrace trace([](std::string_view) { throw std::runtime_error("full"); }, {});
  trace.begin_log({}, false);
  EXPECT_THROW(
      {
        for (int i = 0; i < 100'000; ++i) {
          log::SyncLine call;
          call.name = "cuCtxSynchronize";
          trace.add(call);
        }
      },
      std::runtime_error);
}

}  // namespace
}  // namespace gpuflight::report
