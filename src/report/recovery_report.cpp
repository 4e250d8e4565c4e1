#include "report/recovery_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "event/driver_status.h"
#include "report/incident_text.h"
#include "report/kernel_name.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using analysis::LastLaunch;
using analysis::ProcessState;
using analysis::RecoveryLedger;
using analysis::RecoveryResult;
using analysis::Verdict;

// Streams of a program can be thousands; those with the latest launches are worth reading.
constexpr std::size_t kMaxStreamsShown = 32, kMaxOpenShown = 64, kNameWidth = 80;

std::string since_start(std::int64_t ns) { return fmt::format("+{:.6f} s", static_cast<double>(ns) / 1e9); }

std::string dim_text(event::Dim3 d) { return fmt::format("({},{},{})", d.x, d.y, d.z); }

std::string status_text(std::int32_t status) {
  const event::StickyStatus* const sticky = event::sticky_status(status);
  return sticky != nullptr ? fmt::format("error {} ({})", status, sticky->name) : fmt::format("error {}", status);
}

std::string outcome(const LastLaunch& launch, bool running) {
  switch (launch.call) {
    case LastLaunch::Call::kInside: return running ? "still inside the call" : "was inside the call";
    case LastLaunch::Call::kAbandoned: return "left without returning";
    default: break;
  }
  std::string text = launch.status.value_or(0) == 0 ? "returned" : status_text(*launch.status);
  if (launch.call_ns) text += " after " + duration_text(static_cast<double>(*launch.call_ns));
  return text;
}

// With the blank before it; nothing for a graph, which has none.
std::string shape_text(const analysis::Recovery& recovery, const LastLaunch& launch) {
  if (launch.graph_launch) return {};
  const analysis::LaunchWhat what = recovery.describe(launch.config);
  std::string text = " " + dim_text(launch.grid);
  if (what.known) text += " x " + dim_text(what.block);
  if (what.dyn_shared_bytes > 0) text += " + " + bytes_text(what.dyn_shared_bytes);
  return text;
}

std::string launch_name(const analysis::Recovery& recovery, const LastLaunch& launch, KernelNames& names) {
  if (launch.graph_launch) {
    return launch.graph ? fmt::format("graph {}", launch.graph.value) : std::string("a graph");
  }
  const analysis::LaunchWhat what = recovery.describe(launch.config);
  return what.kernel.empty() ? std::string("(unknown kernel)") : names.of(what.kernel);
}

std::string gone_text(ProcessState state) {
  switch (state) {
    case ProcessState::kReplaced: return "the process has replaced itself by another program (exec)";
    case ProcessState::kRebooted: return "the machine has been started anew since";
    default: return "the process is gone";
  }
}

std::string troubles_text(const RecoveryResult& r) {
  std::string text;
  const auto add = [&](std::string_view what, std::uint64_t n) {
    if (n != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, count_text(n));
  };
  for (std::size_t i = 0; i < r.flight_troubles.size(); ++i) {
    add(flight::flight_trouble_name(static_cast<flight::FlightTrouble>(i)), r.flight_troubles[i]);
  }
  std::string all = text.empty() ? "" : "unreadable in the flight file: " + text + "\n";
  text.clear();
  for (std::size_t i = 0; i < r.log_stats.troubles.size(); ++i) {
    if (static_cast<log::Trouble>(i) == log::Trouble::kUnknownKey) continue;
    add(log::trouble_name(static_cast<log::Trouble>(i)), r.log_stats.troubles[i].count);
  }
  if (!text.empty()) all += "unreadable in the log: " + text + "\n";
  return all;
}

std::string ledger_text(const RecoveryLedger& ledger) {
  std::string sum = fmt::format("events seen {} = in the log {} + recovered {}", count_text(ledger.seen),
                                count_text(ledger.in_log), count_text(ledger.recovered));
  const auto add = [&](const char* what, std::uint64_t n) {
    if (n != 0) sum += fmt::format(" + {} {}", what, count_text(n));
  };
  add("in summaries only", ledger.summarised);
  add("rotated away", ledger.rotated_away);
  add("on their way", ledger.in_motion);
  sum += fmt::format(" + lost {}", count_text(ledger.lost_total()));
  if (ledger.lost_total() > 0) {
    std::string causes;
    const auto cause = [&](std::string_view what, std::uint64_t n) {
      if (n != 0) causes += fmt::format("{}{} {}", causes.empty() ? "" : ", ", what, count_text(n));
    };
    for (std::size_t i = 0; i < ledger.lost.size(); ++i) cause(event::kLossCauseNames[i], ledger.lost[i]);
    cause("begun as the program was stopped, before the call:", ledger.unfinished);
    cause("neither in the log nor in any counter:", ledger.unexplained);
    sum += " (" + causes + ")";
  }
  if (!ledger.balanced()) {
    sum += fmt::format("; THE LEDGER DOES NOT BALANCE: {} more events in log and counters than were seen",
                       count_text(ledger.surplus));
  }
  return sum + "\n";
}

// The streams with the latest launches, by id.
std::vector<const analysis::StreamTail*> streams_to_show(const RecoveryResult& r) {
  std::vector<const analysis::StreamTail*> tails;
  for (const analysis::StreamTail& tail : r.streams) {
    if (!tail.last.empty()) tails.push_back(&tail);
  }
  if (tails.size() > kMaxStreamsShown) {
    std::nth_element(tails.begin(), tails.begin() + kMaxStreamsShown, tails.end(), [](const auto* a, const auto* b) {
      return a->last.back().launch_ns > b->last.back().launch_ns;
    });
    tails.resize(kMaxStreamsShown);
    std::sort(tails.begin(), tails.end(), [](const auto* a, const auto* b) { return a->stream < b->stream; });
  }
  return tails;
}

std::string stream_title(const analysis::StreamTail& tail) {
  if (!tail.stream) return "stream not known";
  std::string text = fmt::format("stream {}", tail.stream.value);
  if (!tail.info) return text;
  using Kind = event::StreamInfo::Kind;
  switch (tail.info->kind) {
    case Kind::kLegacyDefault: text += " (default)"; break;
    case Kind::kPerThreadDefault: text += fmt::format(" (default of thread {})", tail.info->thread); break;
    default: break;
  }
  if (tail.info->device >= 0) text += fmt::format(", device {}", tail.info->device);
  return text;
}

std::string error_verdict(const RecoveryResult& r) {
  KernelNames names(kNameWidth);
  std::string text = fmt::format("CUDA error at {}: {}", since_start(r.error->time_ns), error_text(*r.error, names));
  if (r.cuda_error) text += fmt::format("; {} launches returned it", count_text(r.cuda_error_launches));
  return text;
}

std::string verdict_alone(const RecoveryResult& r) {
  switch (r.verdict) {
    case Verdict::kClean:
      return r.end ? fmt::format("clean: the recording ended in order ({})", printable(r.end->reason))
                   : std::string("clean: the recording ended in order, only its log lacks the last line");
    case Verdict::kCudaError: {
      if (r.error) return error_verdict(r);
      const std::int32_t status = *r.cuda_error->status;
      const event::StickyStatus* const sticky = event::sticky_status(status);
      return fmt::format("CUDA error: {} ({}, {}); from {} on {} launches returned it",
                         sticky->words, sticky->name, status, since_start(r.cuda_error->launch_ns),
                         count_text(r.cuda_error_launches));
    }
    case Verdict::kRunning:
      return fmt::format("still running: process {} records{}", r.header.pid,
                         r.header.state == flight::SessionState::kPaused ? " (paused)" : "");
    case Verdict::kUnknown:
      return fmt::format("not known: recorded on {}, whose processes cannot be seen from here",
                         printable(r.header.host));
    default: break;
  }
  if (r.exit && r.exit->signal) return "stopped: " + exit_text(*r.exit);
  if (r.exit) {
    return fmt::format("stopped: {} without ending its recording (_exit, or exec of another program)",
                       exit_text(*r.exit));
  }
  if (r.process == ProcessState::kReplaced) {
    return fmt::format("stopped: {}, and its recording did not end in order", gone_text(r.process));
  }
  return fmt::format("stopped, cause unknown: {}, and its recording did not end in order", gone_text(r.process));
}

}  // namespace

std::string verdict_text(const RecoveryResult& r) {
  std::string text = verdict_alone(r);
  const bool told = r.verdict == Verdict::kStopped;
  if (r.exit && !told && (r.exit->signal || r.exit->exit_code.value_or(0) != 0)) text += "; " + exit_text(*r.exit);
  if (r.hangs.empty()) return text;
  KernelNames names(kNameWidth);
  text += "; " + hang_text(r.hangs.begin()->second, names);
  if (r.hangs.size() > 1) text += fmt::format("; {} more streams hang", r.hangs.size() - 1);
  return text;
}

std::vector<std::string> render_recovery_brief(const analysis::Recovery& recovery, std::size_t width) {
  constexpr std::size_t kMostStreams = 4, kFixed = 70;
  const RecoveryResult& r = recovery.result();
  KernelNames names(width > kFixed + 20 ? width - kFixed : 20);
  std::vector<std::string> lines = {"verdict: " + verdict_text(r)};
  std::vector<const analysis::StreamTail*> tails = streams_to_show(r);
  const auto latest = [](const auto* a, const auto* b) { return a->last.back().launch_ns > b->last.back().launch_ns; };
  std::sort(tails.begin(), tails.end(), latest);
  const std::size_t shown = std::min(tails.size(), kMostStreams);
  for (std::size_t i = 0; i < shown; ++i) {
    const analysis::StreamTail& tail = *tails[i];
    const LastLaunch& last = tail.last.back();
    lines.push_back(fmt::format("{}: last {}{} at {}, {}{}", stream_title(tail), launch_name(recovery, last, names),
                                shape_text(recovery, last), since_start(last.launch_ns), outcome(last, false),
                                tail.finished(last) ? ", finished" : ""));
    if (!tail.first_unfinished) continue;
    const LastLaunch& first = *tail.first_unfinished;
    lines.back() += fmt::format("; {} not known to have finished, first {} at {}", count_text(tail.unfinished),
                                launch_name(recovery, first, names), since_start(first.launch_ns));
  }
  if (shown < r.streams.size()) lines.push_back(fmt::format("and {} more streams", r.streams.size() - shown));
  return lines;
}

std::string render_recovery_text(const analysis::Recovery& recovery, const RecoveryReportOptions& options) {
  const RecoveryResult& r = recovery.result();
  const bool running = r.verdict == Verdict::kRunning;
  std::string out = fmt::format("{}, process {} on {}, recorded from {}\n", printable(r.header.program), r.header.pid,
                                r.header.host.empty() ? "?" : printable(r.header.host), utc_text(r.header.t0_unix_ns));
  out += r.log_path.empty() ? fmt::format("log: none, {}\n", printable(r.log_problem))
                            : fmt::format("log: {}\n", printable(r.log_path));
  if (r.to_write() > 0) {
    out += fmt::format("recovered: {} events that the log does not have", count_text(r.ledger.recovered));
    if (r.history > 0) out += fmt::format(", and {} that it holds in summaries only", count_text(r.history));
    if (!options.written_to.empty()) out += ", written to " + printable(options.written_to);
    if (options.written_to.empty() && !r.recovered_path.empty()) {
      out += ", written before to " + printable(r.recovered_path);
    }
    out += "\n";
  } else {
    out += "recovered: nothing, every event that is left is in the log\n";
  }

  const std::size_t fixed = 62;
  KernelNames names(options.width > fixed + 20 ? options.width - fixed : 20, options.full_names);
  if (!r.open_calls.empty()) {
    out += running ? "\nlaunch calls under way\n" : "\nlaunch calls that had not returned\n";
    const std::size_t shown = std::min(r.open_calls.size(), kMaxOpenShown);
    for (std::size_t i = 0; i < shown; ++i) {
      const LastLaunch& launch = r.open_calls[i];
      out += fmt::format("  {:>16}  thread {}, stream {}: {}{}\n", since_start(launch.launch_ns), launch.thread,
                         launch.stream.value, launch_name(recovery, launch, names), shape_text(recovery, launch));
    }
    if (shown < r.open_calls.size()) out += fmt::format("  and {} more\n", r.open_calls.size() - shown);
  }
  const auto tails = streams_to_show(r);
  if (!tails.empty()) {
    out += "\nlast launches by stream; that a call returned does not say that its kernel finished\n";
    for (const analysis::StreamTail* const tail : tails) {
      out += "  " + stream_title(*tail);
      if (tail->finished_ns > 0) out += ", finished what was launched before " + since_start(tail->finished_ns);
      out += "\n";
      if (tail->first_unfinished) {
        const LastLaunch& first = *tail->first_unfinished;
        out += fmt::format("    not known to have finished: {}, first {}{} at {}\n", count_text(tail->unfinished),
                           launch_name(recovery, first, names), shape_text(recovery, first),
                           since_start(first.launch_ns));
      }
      for (const LastLaunch& launch : tail->last) {
        out += fmt::format("    {:>16}  {}{}{}, {}\n", since_start(launch.launch_ns), launch.recovered ? "*" : " ",
                           launch_name(recovery, launch, names), shape_text(recovery, launch),
                           outcome(launch, running) + (tail->finished(launch) ? ", finished" : ""));
      }
    }
    if (tails.size() < r.streams.size()) out += fmt::format("  and {} more streams\n", r.streams.size() - tails.size());
    if (r.to_write() > 0) out += "  (* recovered)\n";
  }

  out += "\n" + troubles_text(r);
  if (r.verdict != Verdict::kClean) {
    out += fmt::format("last event {}, last heartbeat of the recorder {}", since_start(r.last_event_ns),
                       since_start(static_cast<std::int64_t>(r.header.heartbeat_ns)));
    if (running && r.silent_ns) out += fmt::format(", {} ago", duration_text(static_cast<double>(*r.silent_ns)));
    out += "\n";
  }
  return out + "verdict: " + verdict_text(r) + "\n" + ledger_text(r.ledger);
}

}  // namespace gpuflight::report
