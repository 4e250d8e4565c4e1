// The lines of calls that wait, errors, hangs, forks and the end of a process.
#include "log/encoder.h"
#include "log/line.h"

namespace gpuflight::log {
namespace {

void launch_members(Members& line, const event::SuspectLaunch& launch) noexcept {
  line.number("event", launch.seq.value);
  line.text_or_null("name", launch.name);
  line.id("config", launch.config.value);
  if (launch.graph) {
    line.null("grid");
    line.null("block");
    line.null("dyn_shared_bytes");
  } else {
    line.dim("grid", launch.grid);
    line.dim("block", launch.block);
    line.number("dyn_shared_bytes", launch.dyn_shared_bytes);
  }
  line.id("graph", launch.graph.value);
  line.number("launch_ns", launch.launch_ns);
  line.maybe("status", launch.status);
}

void launches(Members& line, const std::vector<event::SuspectLaunch>& list) noexcept {
  line.open("launches", '[');
  for (const event::SuspectLaunch& launch : list) {
    line.open_element('{');
    launch_members(line, launch);
    line.close('}');
  }
  line.close(']');
}

}  // namespace

bool append_api_event(Buffer& out, std::string_view scope, const event::ApiEvent& call) noexcept {
  const event::ApiCallFacts& facts = event::facts(static_cast<event::ApiCall>(call.call));
  Line line(out, facts.kind == event::ApiKind::kSync ? "sync_event" : "api_event");
  line.text("call", facts.name);
  line.id("stream", call.stream.value);
  scope.empty() ? line.null("scope") : line.raw("scope", scope);
  line.number("thread", call.thread);
  line.number("seq", call.seq.value);
  line.number("time_ns", call.time_ns);
  line.maybe("call_ns", call.call_ns);
  line.maybe("status", call.status);
  if (call.late) line.boolean("late", true);
  return line.end();
}

bool append_error_event(Buffer& out, const event::ErrorEvent& error) noexcept {
  Line line(out, "error_event");
  line.number("seq", error.seq.value);
  line.number("time_ns", error.time_ns);
  line.number("code", error.code);
  line.text_or_null("name", error.name);
  line.text_or_null("call", error.call);
  line.id("thread", error.thread);
  line.id("context", error.context.value);
  line.text("confidence", error.confidence);
  if (error.culprit) {
    line.open("culprit", '{');
    launch_members(line, *error.culprit);
    line.close('}');
  } else {
    line.null("culprit");
  }
  line.open("in_flight", '[');
  for (const event::StreamInFlight& stream : error.in_flight) {
    line.open_element('{');
    line.number("stream", stream.stream.value);
    line.number("count", stream.count);
    line.id("finished_ns", stream.finished_ns);
    launches(line, stream.launches);
    line.close('}');
  }
  line.close(']');
  return line.end();
}

bool append_hang_event(Buffer& out, const event::HangEvent& hang) noexcept {
  const bool begin = hang.phase == event::HangEvent::Phase::kBegin;
  Line line(out, "hang_event");
  line.number("seq", hang.seq.value);
  line.text("phase", begin ? "begin" : "end");
  line.number("time_ns", hang.time_ns);
  line.number("since_ns", hang.since_ns);
  line.number("hung_ns", hang.time_ns - hang.since_ns);
  line.number("stream", hang.stream.stream.value);
  line.number("count", hang.stream.count);
  launches(line, hang.stream.launches);
  line.open("blocked", '[');
  for (const event::BlockedCall& call : hang.blocked) {
    line.open_element('{');
    line.number("thread", call.thread);
    line.text("call", call.call);
    line.number("since_ns", call.since_ns);
    line.number("for_ns", hang.time_ns - call.since_ns);
    line.close('}');
  }
  line.close(']');
  return line.end();
}

bool append_fork_event(Buffer& out, const event::ForkEvent& fork) noexcept {
  Line line(out, "fork_event");
  line.number("seq", fork.seq.value);
  line.number("time_ns", fork.time_ns);
  line.number("child_pid", fork.child_pid);
  return line.end();
}

bool append_exit_event(Buffer& out, const event::ExitEvent& exit) noexcept {
  Line line(out, "exit_event");
  line.number("seq", exit.seq.value);
  line.number("time_ns", exit.time_ns);
  line.number("pid", exit.pid);
  line.maybe("exit_code", exit.exit_code);
  line.maybe("signal", exit.signal);
  line.text_or_null("signal_name", exit.signal_name);
  line.boolean("core_dumped", exit.core_dumped);
  exit.oom_kill ? line.boolean("oom_kill", *exit.oom_kill) : line.null("oom_kill");
  line.text_or_null("signal_from", exit.signal_from);
  return line.end();
}

}  // namespace gpuflight::log
