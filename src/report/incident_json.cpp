#include "report/incident_json.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json id_or_null(std::uint32_t id) { return id == 0 ? Json(nullptr) : Json(id); }

Json dim(event::Dim3 d) { return Json::array({d.x, d.y, d.z}); }

Json launch_json(const event::SuspectLaunch& launch) {
  const bool kernel = !launch.graph;
  return Json{{"event", launch.seq.value},
              {"name", text_or_null(launch.name)},
              {"config", id_or_null(launch.config.value)},
              {"grid", kernel ? dim(launch.grid) : Json(nullptr)},
              {"block", kernel ? dim(launch.block) : Json(nullptr)},
              {"dyn_shared_bytes", kernel ? Json(launch.dyn_shared_bytes) : Json(nullptr)},
              {"graph", id_or_null(launch.graph.value)},
              {"launch_ns", launch.launch_ns},
              {"status", launch.status ? Json(*launch.status) : Json(nullptr)}};
}

Json launches_json(const event::StreamInFlight& stream) {
  Json launches = Json::array();
  for (const event::SuspectLaunch& launch : stream.launches) launches.push_back(launch_json(launch));
  return launches;
}

}  // namespace

nlohmann::ordered_json error_json(const event::ErrorEvent& error) {
  Json in_flight = Json::array();
  for (const event::StreamInFlight& stream : error.in_flight) {
    in_flight.push_back(Json{{"stream", stream.stream.value},
                             {"count", stream.count},
                             {"finished_ns", stream.finished_ns == 0 ? Json(nullptr) : Json(stream.finished_ns)},
                             {"launches", launches_json(stream)}});
  }
  return Json{{"time_ns", error.time_ns},
              {"code", error.code},
              {"name", text_or_null(error.name)},
              {"call", text_or_null(error.call)},
              {"thread", id_or_null(error.thread)},
              {"context", id_or_null(error.context.value)},
              {"confidence", error.confidence},
              {"culprit", error.culprit ? launch_json(*error.culprit) : Json(nullptr)},
              {"in_flight", std::move(in_flight)}};
}

nlohmann::ordered_json hang_json(const event::HangEvent& hang) {
  Json blocked = Json::array();
  for (const event::BlockedCall& call : hang.blocked) {
    blocked.push_back(Json{{"thread", call.thread}, {"call", call.call}, {"since_ns", call.since_ns}});
  }
  return Json{{"stream", hang.stream.stream.value},
              {"time_ns", hang.time_ns},
              {"since_ns", hang.since_ns},
              {"count", hang.stream.count},
              {"launches", launches_json(hang.stream)},
              {"blocked", std::move(blocked)}};
}

nlohmann::ordered_json exit_json(const event::ExitEvent& exit) {
  return Json{{"time_ns", exit.time_ns},
              {"exit_code", exit.exit_code ? Json(*exit.exit_code) : Json(nullptr)},
              {"signal", exit.signal ? Json(*exit.signal) : Json(nullptr)},
              {"signal_name", text_or_null(exit.signal_name)},
              {"core_dumped", exit.core_dumped},
              {"oom_kill", exit.oom_kill ? Json(*exit.oom_kill) : Json(nullptr)},
              {"signal_from", text_or_null(exit.signal_from)}};
}

}  // namespace gpuflight::report
