// What was recovered, as a segment of a log.
#include <algorithm>
#include <set>

#include "analysis/recovery.h"
#include "event/timestamp.h"
#include "flight/record_event.h"
#include "log/json_text.h"

namespace gpuflight::analysis {
namespace {

constexpr std::size_t kBatchBytes = 256 * 1024;
// Rendered configurations hold their kernel's name; a hostile file can have many long ones.
constexpr std::size_t kCacheBytes = std::size_t{64} << 20;
// As the recorder flags its own lines (docs/FORMAT.md, "Order").
constexpr std::int64_t kOrderWindowNs = 1'000'000'000;

}  // namespace

// Without the log: what the flight file's header knows of the session.
event::SessionStart Recovery::session_of_header() const {
  const flight::FlightHeader& h = flight_.header;
  event::SessionStart session;
  session.program = h.program;
  session.pid = h.pid;
  session.process_start_ticks = h.process_start_ticks;
  session.boot_id = h.boot_id;
  session.host = h.host;
  session.t0_unix_ns = h.t0_unix_ns;
  session.t0_monotonic_ns = h.t0_monotonic_ns;
  session.t0_rfc3339 = event::rfc3339(h.t0_unix_ns);
  session.flight_path = flight_path_;
  session.mode = h.blackbox ? "blackbox" : "stream";
  return session;
}

log::RenderedConfig& Recovery::rendered_config(event::ConfigId id) {
  if (const auto known = configs_.find(id.value); known != configs_.end()) return known->second;
  const auto config = flight_.config(id);
  const auto kernel = config ? flight_.kernel(config->kernel) : std::nullopt;
  if (!kernel) return unknown_config_;
  if (config_bytes_ > kCacheBytes) {
    configs_.clear();
    config_bytes_ = 0;
  }
  const auto device = devices_.find(kernel->device);
  const std::int32_t sm_count = device != devices_.end() ? device->second.device.sm_count : 0;
  log::RenderedConfig rendered = log::render_config(*kernel, *config, id, flight_.header.details, sm_count);
  if (!rendered.valid()) return unknown_config_;
  config_bytes_ += rendered.bytes();
  return configs_.emplace(id.value, std::move(rendered)).first->second;
}

std::string Recovery::rendered_scope(event::ScopeId id) const {
  const auto path = flight_.scope_path(id);
  if (!path) return {};
  log::Buffer text;
  log::append_json_string(text, *path);
  return std::string(text.view());
}

void Recovery::append_record(log::Buffer& out, std::size_t at, event::Seq seq, std::int64_t& newest_ns) {
  const flight::Record& record = flight_.record(at);
  const flight::RecordPhase phase = flight_.phase(at);
  const auto info = flight_.stream(event::StreamId{record.stream});
  const log::RenderedStream stream = info ? log::render_stream(*info) : log::RenderedStream();
  const std::string scope = rendered_scope(event::ScopeId{record.scope});
  switch (static_cast<flight::RecordKind>(record.kind)) {
    case flight::RecordKind::kKernelLaunch: {
      event::KernelLaunch launch = flight::to_kernel_launch(record, phase, seq);
      launch.late = launch.launch_ns + kOrderWindowNs < newest_ns;
      newest_ns = std::max(newest_ns, launch.launch_ns);
      log::append_kernel_event(out, rendered_config(launch.config), stream, scope, launch);
      break;
    }
    case flight::RecordKind::kGraphLaunch:
      log::append_graph_launch_event(out, stream, scope, flight::to_graph_launch(record, phase, seq));
      break;
    case flight::RecordKind::kApiCall: {
      const bool late = record.launch_ns + kOrderWindowNs < newest_ns;
      newest_ns = std::max(newest_ns, record.launch_ns);
      append_call(out, record, phase, seq, info ? &*info : nullptr, scope, late);
      break;
    }
    default:
      log::append_scope_event(out, scope, flight::to_scope_event(record, seq));
      break;
  }
}

// What only the recorder could tell (what a free freed, how much there is) is null.
void Recovery::append_call(log::Buffer& out, const flight::Record& record, flight::RecordPhase phase, event::Seq seq,
                           const event::StreamInfo* stream, std::string_view scope, bool late) {
  switch (flight::kind_of_call(record)) {
    case event::ApiKind::kAlloc:
    case event::ApiKind::kFree: {
      event::MemoryEvent memory = flight::to_memory_event(record, phase, seq, stream);
      memory.late = late;
      log::append_memory_event(out, scope, memory);
      break;
    }
    case event::ApiKind::kEdge: {
      event::StreamEdge edge = flight::to_stream_edge(record, phase, seq);
      edge.late = late;
      log::append_stream_edge(out, scope, edge);
      break;
    }
    default: {
      event::ApiEvent call = flight::to_api_event(record, phase, seq);
      call.late = late;
      log::append_api_event(out, scope, call);
    }
  }
}

event::ExitEvent Recovery::numbered_exit() {
  event::ExitEvent exit = *result_.exit;
  exit.seq = own_seq();
  return exit;
}

void Recovery::write_lines(const Sink& sink) {
  if (chosen_.empty() && !result_.exit) return;
  log::Buffer out;
  log::append_session_start(out, session_ ? session_->session : session_of_header(), last_segment_ + 1);
  for (const auto& [id, line] : devices_) log::append_device_info(out, line.device, line.seq);
  std::set<std::uint32_t> streams;
  for (const Chosen& chosen : chosen_) streams.insert(flight_.record(chosen.record).stream);
  for (const std::uint32_t id : streams) {
    auto info = flight_.stream(event::StreamId{id});
    if (!info) continue;
    const auto told = stream_seqs_.find(id);
    info->seq = told != stream_seqs_.end() ? told->second : own_seq();
    log::append_stream_info(out, *info);
  }
  if (chosen_.empty()) {
    log::append_exit_event(out, numbered_exit());
    return sink(out.view());
  }
  event::Notice notice;
  notice.seq = own_seq();
  notice.time_ns = result_.last_event_ns;
  notice.code = "recovered";
  notice.message = std::to_string(result_.ledger.recovered) + " events that the log does not have";
  if (result_.history > 0) {
    notice.message += " and " + std::to_string(result_.history) + " that it holds in summaries only";
  }
  notice.message += ", recovered from " + flight_path_;
  log::append_notice_event(out, notice);

  std::int64_t newest_ns = newest_log_ns_;
  for (const Chosen& chosen : chosen_) {
    append_record(out, chosen.record, chosen.seq, newest_ns);
    if (out.size() < kBatchBytes) continue;
    sink(out.view());
    out.clear();
  }
  if (const RecoveryLedger& ledger = result_.ledger; ledger.lost_total() > 0) {
    event::LossEvent loss;
    loss.seq = own_seq();
    loss.time_ns = result_.last_event_ns;
    loss.ledger = flight_.ledger;
    loss.ledger.seen = ledger.seen;
    loss.ledger.written = ledger.in_log + ledger.recovered + ledger.rotated_away;
    loss.ledger.summarised = ledger.summarised;
    loss.ledger.pending = ledger.in_motion;
    loss.ledger.rotated_away = ledger.rotated_away;
    loss.ledger.lost = ledger.lost;
    loss.ledger.lost[static_cast<std::size_t>(event::LossCause::kShutdown)] += ledger.unfinished + ledger.unexplained;
    loss.lost = loss.ledger.lost;
    log::append_loss_event(out, loss);
  }
  if (result_.exit) log::append_exit_event(out, numbered_exit());
  sink(out.view());
}

}  // namespace gpuflight::analysis
