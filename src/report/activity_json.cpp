#include "report/activity_json.h"

#include <fmt/format.h>

#include <cmath>

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::LogFacts;
using analysis::LogSummary;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json whole(const std::optional<double>& value) { return value ? Json(std::llround(*value)) : Json(nullptr); }
Json text(const char* name) { return name != nullptr ? Json(name) : Json(nullptr); }
Json memory_kind(event::MemoryKind kind) { return text(event::kMemoryKindNames[static_cast<std::size_t>(kind)]); }

Json busy_json(std::size_t log, const LogFacts::DeviceBusy& device) {
  const analysis::BusyTimes& t = device.times;
  return Json{{"log", log},
              {"device", or_null(device.device)},
              {"first_ns", t.first_ns},
              {"last_ns", t.last_ns},
              {"span_ns", t.span_ns()},
              {"busy_ns", t.busy_ns},
              {"idle_ns", t.idle_ns()},
              {"kernel_busy_ns", t.kernel_ns},
              {"copy_busy_ns", t.copy_ns},
              {"overlapped_ns", t.overlapped_ns},
              {"copy_beside_kernel_ns", t.copy_beside_kernel_ns},
              {"kernels_side_by_side_ns", t.kernels_beside_ns},
              {"kernels", t.kernels},
              {"kernel_total_ns", t.kernel_sum_ns},
              {"copies", t.copies},
              {"copy_total_ns", t.copy_sum_ns},
              {"uncertain_ns", t.uncertain_ns}};
}

void add_transfers(Json& row, const analysis::Transfers& t) {
  row["count"] = t.count;
  row["bytes"] = t.bytes;
  row["bytes_per_second"] = whole(t.bytes_per_second());
  row["gpu"] = spread_json(t.gpu);
  row["call"] = durations_json(t.call);
  row["queue"] = durations_json(t.queue);
}

Json copies_json(const LogSummary& summary) {
  Json rows = Json::array();
  for (const auto& [key, transfers] : summary.activity().copies()) {
    Json row{{"others", key.others},
             {"kind", text(event::kCopyKindNames[static_cast<std::size_t>(key.kind)])},
             {"source", memory_kind(key.source)},
             {"destination", memory_kind(key.destination)},
             {"async", key.async},
             {"source_device", or_null(key.source_device)},
             {"destination_device", or_null(key.destination_device)}};
    add_transfers(row, transfers);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json fills_json(const LogSummary& summary) {
  Json rows = Json::array();
  for (const auto& [key, transfers] : summary.activity().fills()) {
    Json row{{"memory", memory_kind(key.memory)}, {"async", key.async}};
    add_transfers(row, transfers);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json calls_json(const LogSummary& summary) {
  Json rows = Json::array();
  for (const auto& [name, call] : summary.activity().calls()) {
    rows.push_back(Json{{"call", name},
                        {"kind", analysis::kCallKindNames[static_cast<std::size_t>(call.kind)]},
                        {"may_wait", call.may_wait},
                        {"count", call.count},
                        {"failed", call.failed},
                        {"host", spread_json(call.host)}});
  }
  return rows;
}

Json memory_json(const LogSummary& summary) {
  Json rows = Json::array();
  for (const auto& [key, row] : summary.activity().memory()) {
    const auto& [log, memory] = key;
    rows.push_back(Json{{"log", log},
                        {"device", memory.device >= 0 ? Json(memory.device) : Json(nullptr)},
                        {"kind", text(event::allocation_name(memory.kind))},
                        {"pool", memory.pool != 0 ? Json(fmt::format("0x{:016x}", memory.pool)) : Json(nullptr)},
                        {"allocs", row.allocs},
                        {"frees", row.frees},
                        {"failed", row.failed},
                        {"allocated_bytes", row.allocated_bytes},
                        {"freed_bytes", row.freed_bytes},
                        {"unseen_frees", row.unseen_frees},
                        {"live_bytes", or_null(row.live_bytes)},
                        {"peak_bytes", or_null(row.peak_bytes)}});
  }
  return rows;
}

Json graphs_json(const LogSummary& summary) {
  Json rows = Json::array();
  for (const auto& [key, row] : summary.activity().graphs()) {
    rows.push_back(Json{{"log", key.first},
                        {"graph", key.second != 0 ? Json(key.second) : Json(nullptr)},
                        {"launches", row.launches},
                        {"failed", row.failed},
                        {"call", durations_json(row.call)},
                        {"gpu", spread_json(row.gpu)},
                        {"kernels", row.kernels},
                        {"kernel_total_ns", row.kernel_time.total_ns},
                        {"copies", row.transfers},
                        {"copy_total_ns", row.transfer_time.total_ns}});
  }
  return rows;
}

}  // namespace

Json durations_json(const analysis::Durations& durations) {
  if (durations.count == 0) return nullptr;
  return Json{{"count", durations.count},
              {"total_ns", durations.total_ns},
              {"mean_ns", *durations.mean_ns()},
              {"min_ns", durations.each_ns.known ? Json(durations.each_ns.min) : Json(nullptr)},
              {"max_ns", durations.each_ns.known ? Json(durations.each_ns.max) : Json(nullptr)}};
}

Json spread_json(const analysis::SpreadDurations& durations) {
  Json json = durations_json(durations);
  if (json.is_null()) return json;
  json["median_ns"] = whole(durations.quantile_ns(0.5));
  json["p95_ns"] = whole(durations.quantile_ns(0.95));
  json["stddev_ns"] = or_null(durations.deviation_ns());
  json["spread_count"] = durations.sketch.count();
  json["quantile_error"] = std::round(durations.sketch.error() * 1e6) / 1e6;
  return json;
}

void add_activity(Json& report, const LogSummary& summary) {
  report["device_times"] = Json::array();
  for (std::size_t i = 0; i < summary.logs().size(); ++i) {
    for (const auto& device : summary.logs()[i].busy) report["device_times"].push_back(busy_json(i, device));
  }
  report["copies"] = copies_json(summary);
  report["fills"] = fills_json(summary);
  report["calls"] = calls_json(summary);
  report["memory"] = memory_json(summary);
  report["graphs"] = graphs_json(summary);
  report["activity_left_out"] = summary.activity().left_out();
}

void add_time_facts(Json& log, const LogFacts& facts) {
  log["timing"] = facts.timing().empty() ? Json(nullptr) : Json(std::string(facts.timing()));
  log["event_times"] = facts.event_times().empty() ? Json(nullptr) : Json(std::string(facts.event_times()));
  const auto asked = facts.end ? facts.end->event_times : std::nullopt;
  log["event_every"] = asked ? Json(asked->every) : Json(nullptr);
  log["event_timed"] = facts.event_timed;
  log["timed_kernels"] = facts.timed_kernels;
  log["untimed_kernels"] = facts.untimed_kernels;
  log["late_times"] = facts.late_times;
  log["unplaced_times"] = facts.unplaced_times;
  log["copies"] = facts.copies;
  log["fills"] = facts.fills;
  log["memory_calls"] = facts.memory_calls;
  log["stream_edges"] = facts.stream_edges;
  log["pending_total"] = facts.pending_total;
  log["pending"] = Json::array();
  for (const auto& [seq, line] : facts.pending) {
    log["pending"].push_back(Json{{"event", seq},
                                  {"name", line.name.empty() ? Json(nullptr) : Json(line.name)},
                                  {"stream", line.pending.stream.value},
                                  {"launch_ns", line.pending.launch_ns},
                                  {"time_ns", line.pending.time_ns},
                                  {"behind", line.pending.behind}});
  }
  log["clock"] = facts.clock ? Json{{"time_ns", facts.clock->time_ns},
                                    {"unix_ns", facts.clock->unix_ns},
                                    {"error_ns", facts.clock->error_ns},
                                    {"drift_ns", facts.clock->drift_ns}}
                             : Json(nullptr);
}

}  // namespace gpuflight::report
