#include <nlohmann/json.hpp>

#include "event/driver_status.h"
#include "event/timestamp.h"
#include "report/incident_json.h"
#include "report/recovery_report.h"

namespace gpuflight::report {
namespace {

using analysis::LastLaunch;
using analysis::RecoveryResult;
using json = nlohmann::ordered_json;

template <class T>
json maybe(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json dim(event::Dim3 d) { return {d.x, d.y, d.z}; }

const char* call_name(LastLaunch::Call call) {
  switch (call) {
    case LastLaunch::Call::kInside: return "inside";
    case LastLaunch::Call::kAbandoned: return "abandoned";
    default: return "returned";
  }
}

const char* process_name(analysis::ProcessState state) {
  switch (state) {
    case analysis::ProcessState::kRunning: return "running";
    case analysis::ProcessState::kReplaced: return "replaced";
    case analysis::ProcessState::kRebooted: return "rebooted";
    case analysis::ProcessState::kElsewhere: return "elsewhere";
    default: return "gone";
  }
}

json launch_json(const analysis::Recovery& recovery, const LastLaunch& launch) {
  const analysis::LaunchWhat what = recovery.describe(launch.config);
  json j;
  j["seq"] = launch.seq.value;
  j["launch_ns"] = launch.launch_ns;
  j["type"] = launch.graph_launch ? "graph_launch_event" : "kernel_event";
  j["name"] = text_or_null(what.kernel);
  j["graph"] = launch.graph ? json(launch.graph.value) : json(nullptr);
  j["grid"] = launch.graph_launch ? json(nullptr) : dim(launch.grid);
  j["block"] = what.known ? dim(what.block) : json(nullptr);
  j["dyn_shared_bytes"] = what.known ? json(what.dyn_shared_bytes) : json(nullptr);
  j["stream"] = launch.stream ? json(launch.stream.value) : json(nullptr);
  j["thread"] = launch.thread;
  j["call"] = call_name(launch.call);
  j["call_ns"] = maybe(launch.call_ns);
  j["status"] = maybe(launch.status);
  j["captured"] = launch.captured;
  j["recovered"] = launch.recovered;
  return j;
}

json ledger_json(const RecoveryResult& r) {
  const analysis::RecoveryLedger& ledger = r.ledger;
  json j;
  j["seen"] = ledger.seen;
  j["in_log"] = ledger.in_log;
  j["recovered"] = ledger.recovered;
  j["summarised"] = ledger.summarised;
  j["rotated_away"] = ledger.rotated_away;
  j["in_motion"] = ledger.in_motion;
  j["lost"] = ledger.lost_total();
  json causes;
  for (std::size_t i = 0; i < ledger.lost.size(); ++i) causes[event::kLossCauseNames[i]] = ledger.lost[i];
  causes["unfinished"] = ledger.unfinished;
  causes["unexplained"] = ledger.unexplained;
  j["lost_by_cause"] = std::move(causes);
  j["surplus"] = ledger.surplus;
  j["balanced"] = ledger.balanced();
  return j;
}

json streams_json(const analysis::Recovery& recovery) {
  json streams = json::array();
  for (const analysis::StreamTail& tail : recovery.result().streams) {
    json s;
    s["stream"] = tail.stream ? json(tail.stream.value) : json(nullptr);
    s["device"] = tail.info && tail.info->device >= 0 ? json(tail.info->device) : json(nullptr);
    s["completed_up_to"] = tail.completed_up_to ? json(tail.completed_up_to->value) : json(nullptr);
    s["finished_ns"] = tail.finished_ns > 0 ? json(tail.finished_ns) : json(nullptr);
    s["unfinished"] = tail.finished_ns > 0 ? json(tail.unfinished) : json(nullptr);
    s["first_unfinished"] = tail.first_unfinished ? launch_json(recovery, *tail.first_unfinished) : json(nullptr);
    s["last"] = json::array();
    for (const LastLaunch& launch : tail.last) {
      s["last"].push_back(launch_json(recovery, launch));
      s["last"].back()["finished"] = tail.finished(launch) ? json(true) : json(nullptr);
    }
    streams.push_back(std::move(s));
  }
  return streams;
}

}  // namespace

std::string render_recovery_json(const analysis::Recovery& recovery, const RecoveryReportOptions& options) {
  const RecoveryResult& r = recovery.result();
  json j;
  j["recovery_schema"] = kRecoverySchema;
  j["verdict"] = analysis::kVerdictNames[static_cast<std::size_t>(r.verdict)];
  j["verdict_text"] = verdict_text(r);
  j["ended_in_order"] = r.ended_in_order;
  j["end_reason"] = r.end ? json(r.end->reason) : json(nullptr);
  j["process"] = process_name(r.process);
  j["pid"] = r.header.pid;
  j["program"] = text_or_null(r.header.program);
  j["host"] = text_or_null(r.header.host);
  j["t0_rfc3339"] = event::rfc3339(r.header.t0_unix_ns);
  j["mode"] = r.header.blackbox ? "blackbox" : "stream";
  j["flight_path"] = r.flight_path;
  j["log_path"] = text_or_null(r.log_path);
  j["log_problem"] = text_or_null(r.log_problem);
  j["written_to"] = text_or_null(options.written_to);
  j["recovered_path"] = text_or_null(r.recovered_path);
  j["history"] = r.history;
  j["last_event_ns"] = r.last_event_ns;
  j["heartbeat_ns"] = r.header.heartbeat_ns;
  if (r.cuda_error) {
    const event::StickyStatus* const sticky = event::sticky_status(*r.cuda_error->status);
    j["cuda_error"] = {{"status", *r.cuda_error->status},
                       {"name", sticky->name},
                       {"launches", r.cuda_error_launches},
                       {"first", launch_json(recovery, *r.cuda_error)}};
  } else {
    j["cuda_error"] = nullptr;
  }
  j["error"] = r.error ? error_json(*r.error) : json(nullptr);
  j["exit"] = r.exit ? exit_json(*r.exit) : json(nullptr);
  j["hangs"] = json::array();
  for (const auto& [stream, hang] : r.hangs) j["hangs"].push_back(hang_json(hang));
  j["ledger"] = ledger_json(r);
  j["open_calls"] = json::array();
  for (const LastLaunch& launch : r.open_calls) j["open_calls"].push_back(launch_json(recovery, launch));
  j["streams"] = streams_json(recovery);
  json flight_troubles = json::object(), log_troubles = json::object();
  for (std::size_t i = 0; i < r.flight_troubles.size(); ++i) {
    if (r.flight_troubles[i] == 0) continue;
    flight_troubles[flight::flight_trouble_name(static_cast<flight::FlightTrouble>(i))] = r.flight_troubles[i];
  }
  for (std::size_t i = 0; i < r.log_stats.troubles.size(); ++i) {
    if (r.log_stats.troubles[i].count == 0) continue;
    log_troubles[log::trouble_name(static_cast<log::Trouble>(i))] = r.log_stats.troubles[i].count;
  }
  j["flight_troubles"] = std::move(flight_troubles);
  j["log_troubles"] = std::move(log_troubles);
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace gpuflight::report
