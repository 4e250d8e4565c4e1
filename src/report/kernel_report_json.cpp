// The two forms of the report that programs read.
#include <array>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/activity_json.h"
#include "report/incident_json.h"
#include "report/kernel_name.h"
#include "report/kernel_report.h"
#include "report/recorder_cost.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::LaunchGroup;
using analysis::LogFacts;
using analysis::LogSummary;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
Json range_json(const analysis::Range<T>& range) {
  if (!range.known) return nullptr;
  return Json{{"min", range.min}, {"max", range.max}};
}

// Occupancies come with six decimals; a mean of them has no more to say.
std::optional<double> rounded(const std::optional<double>& value) {
  return value ? std::optional<double>(std::round(*value * 1e6) / 1e6) : value;
}

std::string dim_json(const event::Dim3& dim) { return fmt::format("({},{},{})", dim.x, dim.y, dim.z); }

Json limiter_json(const LaunchGroup& group) {
  const auto limiter = group.main_limiter();
  return limiter ? Json(event::kLimiterNames[static_cast<std::size_t>(*limiter)]) : Json(nullptr);
}

Json estimate_json(const LaunchGroup& group) {
  const auto estimate = estimate_of(group);
  if (!estimate) return nullptr;
  return Json{{"total_ns", estimate->total_ns},
              {"timed", group.gpu.count},
              {"of", std::max(group.executed(), group.gpu.count)},
              {"by_events", group.event_error.count},
              {"standard_error_ns", or_null(estimate->standard_error_ns)},
              {"too_long_by_at_most_ns", estimate->too_long_ns},
              {"low_ns", or_null(estimate->low_ns)},
              {"high_ns", or_null(estimate->high_ns)}};
}

Json group_json(const LaunchGroup& group, const Shares& shares, std::uint64_t all_launches, bool kernels) {
  Json limited_by = Json::object(), limits = Json::object(), ties = Json::array();
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if (group.limited_by[i] > 0) limited_by[event::kLimiterNames[i]] = group.limited_by[i];
    limits[event::kLimiterNames[i]] = range_json(group.limit_occupancy[i]);
    if ((group.limiters & event::limiter_bit(static_cast<event::Limiter>(i))) != 0) {
      ties.push_back(event::kLimiterNames[i]);
    }
  }
  const bool clusters = group.cluster.count() > 0;
  return Json{
      {"label", group.label},
      {"name", kernels ? Json(demangled(group.label)) : Json(nullptr)},
      {"device", or_null(group.device)},
      {"launches", group.launches},
      {"launch_share", all_launches == 0 ? 0.0
                                         : static_cast<double>(group.launches) / static_cast<double>(all_launches)},
      {"time_share", shares.of_gpu_time ? Json(shares.of(group)) : Json(nullptr)},
      {"failed", group.failed},
      {"captured", group.captured},
      {"configs", group.configs},
      {"num_regs", range_json(group.num_regs)},
      {"static_shared_bytes", range_json(group.static_shared_bytes)},
      {"dyn_shared_bytes", range_json(group.dyn_shared_bytes)},
      {"local_bytes_per_thread", range_json(group.local_bytes_per_thread)},
      {"block", group.block_threads.known && !group.several_blocks ? Json(dim_json(group.block)) : Json(nullptr)},
      {"block_threads", range_json(group.block_threads)},
      {"cluster", clusters ? Json(dim_json(group.cluster)) : Json(nullptr)},
      {"max_active_blocks", range_json(group.max_active_blocks)},
      {"occupancy", or_null(rounded(group.mean_occupancy()))},
      {"occupancy_range", range_json(group.occupancy)},
      {"limiting_resource", limiter_json(group)},
      {"limiting_resources", std::move(ties)},
      {"limited_launches", std::move(limited_by)},
      {"limit_occupancy", std::move(limits)},
      {"call", durations_json(group.call)},
      {"gpu", spread_json(group.gpu)},
      {"queue", durations_json(group.queue)},
      {"estimated_gpu_total_ns", shares.estimated ? or_null(group.estimated_total_ns()) : Json(nullptr)},
      {"gpu_estimate", shares.estimated ? estimate_json(group) : Json(nullptr)},
  };
}

Json ledger_json(const event::Ledger& ledger) {
  Json lost = Json::object();
  for (int i = 0; i < event::kLossCauseCount; ++i) lost[event::kLossCauseNames[i]] = ledger.lost[i];
  return Json{{"seen", ledger.seen},
              {"written", ledger.written},
              {"summarised", ledger.summarised},
              {"pending", ledger.pending},
              {"lost_total", ledger.lost_total()},
              {"lost", std::move(lost)},
              {"rotated_away", ledger.rotated_away},
              {"null_time", ledger.null_time},
              {"table_full", ledger.table_full},
              {"occupancy_mismatch", ledger.occupancy_mismatch}};
}

Json device_json(const event::DeviceInfo& device) {
  return Json{{"device", device.device},
              {"name", device.name},
              {"uuid", device.uuid.empty() ? Json(nullptr) : Json(device.uuid)},
              {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
              {"sm_count", device.sm_count}};
}

Json read_json(const log::ReadStats& read) {
  Json troubles = Json::object();
  for (int i = 0; i < log::kTroubleCount; ++i) {
    const auto trouble = static_cast<log::Trouble>(i);
    const auto& count = read[trouble];
    if (count.count == 0) continue;
    troubles[log::trouble_name(trouble)] =
        Json{{"count", count.count}, {"file", count.first_file}, {"line", count.first_line},
             {"detail", count.first_detail}};
  }
  return Json{{"lines", read.lines},
              {"bytes", read.bytes},
              {"broken_lines", read.trouble_total()},
              {"troubles", std::move(troubles)}};
}

Json log_json(const LogFacts& log) {
  Json out{{"path", log.path}};
  const auto& start = log.start;
  out["program"] = start ? Json(start->program) : Json(nullptr);
  out["args"] = start ? Json(start->args) : Json(nullptr);
  out["pid"] = start ? Json(start->pid) : Json(nullptr);
  out["host"] = start ? Json(start->host) : Json(nullptr);
  out["t0_unix_ns"] = start ? Json(start->t0_unix_ns) : Json(nullptr);
  Json rank = Json::object();
  if (start) {
    for (const auto& [name, value] : start->rank) rank[name] = value;
  }
  out["rank"] = std::move(rank);
  out["duration_ns"] = log.duration_ns();
  out["ended"] = log.end.has_value();
  out["end_reason"] = log.end ? Json(log.end->reason) : Json(nullptr);
  out["launches"] = log.launches;
  out["gpu_kernels"] = log.gpu_kernels;
  out["replayed_kernels"] = log.replayed_kernels;
  out["unknown_replays"] = log.unknown_replays;
  out["failed"] = log.failed;
  out["captured"] = log.captured;
  out["summarised"] = log.summarised;
  out["graph_launches"] = log.graph_launches;
  out["sync_calls"] = log.sync_calls;
  out["api_calls"] = log.api_calls;
  out["errors_total"] = log.errors_total;
  out["errors"] = Json::array();
  for (const auto& error : log.errors) out["errors"].push_back(error_json(error));
  out["hangs_total"] = log.hangs_total;
  out["hangs"] = Json::array();
  for (const auto& hang : log.hangs) {
    Json json = hang_json(hang.begin);
    json["end_ns"] = or_null(hang.end_ns);
    out["hangs"].push_back(std::move(json));
  }
  out["forks"] = log.forks;
  out["budget"] = budget_json(log);
  out["exit"] = log.exit ? exit_json(*log.exit) : Json(nullptr);
  out["devices"] = Json::array();
  for (const auto& device : log.devices) out["devices"].push_back(device_json(device));
  out["notices"] = Json::array();
  for (const auto& notice : log.notices) {
    constexpr std::array kSeverities = {"info", "warning", "error"};
    out["notices"].push_back(Json{{"time_ns", notice.time_ns},
                                  {"severity", kSeverities[static_cast<std::size_t>(notice.severity)]},
                                  {"code", notice.code},
                                  {"message", notice.message}});
  }
  add_time_facts(out, log);
  out["ledger"] = log.ledger ? ledger_json(*log.ledger) : Json(nullptr);
  out["missing_events"] = log.missing_events();
  out["read"] = read_json(log.read);
  return out;
}

// Quoted where it must be; a name that a spreadsheet would take for a formula stays as it is, programs read this.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

template <class T>
std::string csv_number(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : std::string();
}

std::string csv_whole(const std::optional<double>& value) {
  return value ? fmt::format("{}", std::llround(*value)) : std::string();
}

std::string csv_times(const LaunchGroup& group, const Shares& shares) {
  const auto& gpu = group.gpu;
  const bool known = gpu.each_ns.known;
  return fmt::format("{},{},{},{},{},{},{},{}", gpu.count, known ? fmt::format("{}", gpu.each_ns.min) : "",
                     csv_whole(gpu.quantile_ns(0.5)), csv_whole(gpu.quantile_ns(0.95)),
                     known ? fmt::format("{}", gpu.each_ns.max) : "", csv_whole(gpu.deviation_ns()),
                     csv_whole(group.queue.mean_ns()), shares.estimated ? csv_whole(group.estimated_total_ns()) : "");
}

template <class T>
std::string csv_bounds(const analysis::Range<T>& range) {
  return range.known ? fmt::format("{},{}", range.min, range.max) : ",";
}

}  // namespace

std::string render_json(const LogSummary& summary, const ReportOptions& options) {
  const Shares shares = shares_of(summary);
  const LaunchGroup totals = summary.totals();
  const bool kernels = summary.by() == analysis::GroupBy::kKernel || summary.by() == analysis::GroupBy::kConfig;
  const auto groups = ranked(summary, options.sort);
  Json out{{"report_schema", kReportSchema},
           {"by", analysis::kGroupByNames[static_cast<std::size_t>(summary.by())]},
           {"sort", kSortByNames[static_cast<std::size_t>(options.sort)]}};
  out["logs"] = Json::array();
  for (const LogFacts& log : summary.logs()) out["logs"].push_back(log_json(log));
  std::uint64_t launches = 0, gpu_kernels = 0;
  for (const LogFacts& log : summary.logs()) {
    launches += log.launches;
    gpu_kernels += log.gpu_kernels;
  }
  out["totals"] = Json{{"launches", launches},          {"gpu_kernels", gpu_kernels},
                         {"failed", totals.failed}, {"captured", totals.captured},
                       {"kernels", summary.kernels()},  {"configs", totals.configs},
                       {"limiting_resource", limiter_json(totals)},
                       {"call", durations_json(totals.call)}, {"gpu", spread_json(totals.gpu)},
                       {"queue", durations_json(totals.queue)},
                       {"gpu_estimate", shares.estimated ? estimate_json(totals) : Json(nullptr)}};
  out["share_of"] = shares.estimated ? "estimated_gpu_time" : shares.of_gpu_time ? "gpu_time" : "launches";
  out["groups_total"] = groups.size();
  out["groups_complete"] = !summary.groups_full();
  out["groups"] = Json::array();
  for (const LaunchGroup* group : groups) {
    if (options.top > 0 && out["groups"].size() >= options.top) break;
    out["groups"].push_back(group_json(*group, shares, totals.launches, kernels));
  }
  add_activity(out, summary);
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string render_csv(const LogSummary& summary, const ReportOptions& options) {
  const Shares shares = shares_of(summary);
  const LaunchGroup totals = summary.totals();
  const bool kernels = summary.by() == analysis::GroupBy::kKernel || summary.by() == analysis::GroupBy::kConfig;
  std::string out =
      "label,name,launches,launch_share,time_share,failed,captured,configs,num_regs_min,num_regs_max,"
      "static_shared_bytes_min,static_shared_bytes_max,dyn_shared_bytes_min,dyn_shared_bytes_max,block,"
      "block_threads_min,block_threads_max,occupancy,occupancy_min,occupancy_max,limiting_resource,call_mean_ns,"
      "call_total_ns,gpu_mean_ns,gpu_total_ns,gpu_count,gpu_min_ns,gpu_median_ns,gpu_p95_ns,gpu_max_ns,gpu_stddev_ns,"
      "queue_mean_ns,gpu_estimated_total_ns\n";
  std::size_t rows = 0;
  for (const LaunchGroup* group : ranked(summary, options.sort)) {
    if (options.top > 0 && rows++ >= options.top) break;
    const double share = totals.launches == 0 ? 0 : static_cast<double>(group->launches) /
                                                        static_cast<double>(totals.launches);
    const auto limiter = group->main_limiter();
    const bool gpu = group->gpu.count > 0, call = group->call.count > 0;
    out += fmt::format(
        "{},{},{},{:.6f},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(group->label),
        csv_field(kernels ? demangled(group->label) : ""), group->launches, share,
        shares.of_gpu_time ? fmt::format("{:.6f}", shares.of(*group)) : "", group->failed, group->captured,
        group->configs, csv_bounds(group->num_regs), csv_bounds(group->static_shared_bytes),
        csv_bounds(group->dyn_shared_bytes),
        group->block_threads.known && !group->several_blocks ? csv_field(dim_json(group->block)) : "",
        csv_bounds(group->block_threads), csv_number(rounded(group->mean_occupancy())), csv_bounds(group->occupancy),
        limiter ? event::kLimiterNames[static_cast<std::size_t>(*limiter)] : "", csv_number(group->call.mean_ns()),
        call ? fmt::format("{}", group->call.total_ns) : "", csv_number(group->gpu.mean_ns()),
        gpu ? fmt::format("{}", group->gpu.total_ns) : "", csv_times(*group, shares));
  }
  return out;
}

}  // namespace gpuflight::report
