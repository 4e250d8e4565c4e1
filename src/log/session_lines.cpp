// The lines that say what was recorded, on what, and what is missing.
#include <utility>
#include <vector>

#include "event/schema_version.h"
#include "log/encoder.h"
#include "log/line.h"

namespace gpuflight::log {
namespace {

void text_pairs(Line& line, std::string_view name,
                const std::vector<std::pair<std::string, std::string>>& pairs) noexcept {
  line.open(name, '{');
  for (const auto& [key, value] : pairs) line.text_pair(key, value);
  line.close('}');
}

void losses(Line& line, std::string_view name,
            const std::array<std::uint64_t, event::kLossCauseCount>& lost) noexcept {
  line.open(name, '{');
  for (std::size_t i = 0; i < lost.size(); ++i) line.number(event::kLossCauseNames[i], lost[i]);
  line.close('}');
}

void ledger(Line& line, const event::Ledger& ledger) noexcept {
  line.number("seen", ledger.seen);
  line.number("written", ledger.written);
  line.number("summarised", ledger.summarised);
  line.number("pending", ledger.pending);
  line.number("lost", ledger.lost_total());
  losses(line, "lost_by_cause", ledger.lost);
  line.number("rotated_away", ledger.rotated_away);
  line.number("null_time", ledger.null_time);
  line.number("table_full", ledger.table_full);
  line.number("occupancy_mismatch", ledger.occupancy_mismatch);
}

// With 6 decimals, as ratios are; not below 0, at most a million.
void percent(Line& line, std::string_view name, double value) noexcept {
  constexpr double kMost = 1e6;
  constexpr std::uint64_t kParts = 1'000'000;
  const double kept = value > 0 ? value < kMost ? value : kMost : 0;
  char digits[kMaxRatioChars];
  const char* const end =
      write_ratio(digits, static_cast<std::uint64_t>(kept * static_cast<double>(kParts) + 0.5), kParts);
  line.raw(name, {digits, static_cast<std::size_t>(end - digits)});
}

}  // namespace

bool append_session_start(Buffer& out, const event::SessionStart& s, std::uint32_t segment) noexcept {
  Line line(out, "session_start");
  char schema[2 * kMaxIntChars + 1];
  char* end = write_int(schema, event::kLogSchemaMajor);
  *end++ = '.';
  end = write_int(end, event::kLogSchemaMinor);
  line.text("schema", {schema, static_cast<std::size_t>(end - schema)});
  line.number("segment", segment);
  line.number("seq", s.seq.value);
  line.text("library_version", s.library_version);
  line.text_or_null("program", s.program);
  line.open("args", '[');
  for (const auto& arg : s.args) line.element(arg);
  line.close(']');
  line.boolean("args_masked", s.args_masked);
  line.text_or_null("cwd", s.cwd);
  line.number("pid", s.pid);
  line.number("ppid", s.ppid);
  line.id("process_start_ticks", s.process_start_ticks);
  line.text_or_null("boot_id", s.boot_id);
  line.text_or_null("host", s.host);
  line.text_or_null("user", s.user);
  line.number("t0_unix_ns", s.t0_unix_ns);
  line.number("t0_monotonic_ns", s.t0_monotonic_ns);
  line.text("t0_rfc3339", s.t0_rfc3339);
  text_pairs(line, "rank", s.rank);
  text_pairs(line, "configuration", s.configuration);
  line.maybe("driver_version", s.driver_version);
  line.text_or_null("libcuda_path", s.libcuda_path);
  line.maybe("cupti_version", s.cupti_version);
  line.text_or_null("cupti_path", s.cupti_path);
  line.text_or_null("cupti_reason", s.cupti_reason);
  line.text_or_null("capture", s.capture);
  line.text_or_null("capture_reason", s.capture_reason);
  line.text_or_null("flight_path", s.flight_path);
  line.text_or_null("mode", s.mode);
  return line.end();
}

bool append_device_info(Buffer& out, const event::DeviceInfo& d, event::Seq seq) noexcept {
  Line line(out, "device_info");
  line.number("seq", seq.value);
  line.number("device", d.device);
  line.text_or_null("name", d.name);
  line.text_or_null("uuid", d.uuid);
  line.text_or_null("pci_bus_id", d.pci_bus_id);
  line.number("compute_major", d.compute_major);
  line.number("compute_minor", d.compute_minor);
  line.id("sm_count", d.sm_count);
  line.id("warp_size", d.warp_size);
  line.id("max_threads_per_block", d.max_threads_per_block);
  line.id("max_threads_per_sm", d.max_threads_per_sm);
  line.id("max_warps_per_sm", d.max_warps_per_sm());
  line.id("max_blocks_per_sm", d.max_blocks_per_sm);
  line.id("regs_per_block", d.regs_per_block);
  line.id("regs_per_sm", d.regs_per_sm);
  line.id("shared_bytes_per_block", d.shared_bytes_per_block);
  line.id("shared_bytes_per_block_optin", d.shared_bytes_per_block_optin);
  line.id("shared_bytes_per_sm", d.shared_bytes_per_sm);
  line.number("reserved_shared_bytes_per_block", d.reserved_shared_bytes_per_block);
  line.id("l2_bytes", d.l2_bytes);
  line.id("global_bytes", d.global_bytes);
  line.id("sm_clock_khz", d.sm_clock_khz);
  line.id("memory_clock_khz", d.memory_clock_khz);
  line.id("memory_bus_bits", d.memory_bus_bits);
  line.number("copy_engines", d.copy_engines);
  line.boolean("cooperative_launch", d.cooperative_launch);
  line.boolean("cluster_launch", d.cluster_launch);
  line.boolean("ecc", d.ecc);
  line.boolean("integrated", d.integrated);
  line.boolean("managed_memory", d.managed_memory);
  line.boolean("memory_pools", d.memory_pools);
  return line.end();
}

bool append_stream_info(Buffer& out, const event::StreamInfo& s) noexcept {
  Line line(out, "stream_info");
  line.number("stream", s.stream.value);
  line.id("context", s.context.value);
  line.known("device", s.device);
  switch (s.kind) {
    case event::StreamInfo::Kind::kLegacyDefault: line.text("kind", "legacy_default"); break;
    case event::StreamInfo::Kind::kPerThreadDefault: line.text("kind", "per_thread_default"); break;
    default: line.text("kind", "created");
  }
  line.hex("handle", "0x", s.handle, 16);
  line.maybe("priority", s.priority);
  line.maybe("flags", s.flags);
  line.id("thread", s.thread);
  line.number("seq", s.seq.value);
  return line.end();
}

bool append_notice_event(Buffer& out, const event::Notice& n) noexcept {
  Line line(out, "notice_event");
  switch (n.severity) {
    case event::Severity::kInfo: line.text("severity", "info"); break;
    case event::Severity::kWarning: line.text("severity", "warning"); break;
    default: line.text("severity", "error");
  }
  line.text("code", n.code);
  line.text("message", n.message);
  line.number("seq", n.seq.value);
  line.number("time_ns", n.time_ns);
  return line.end();
}

bool append_loss_event(Buffer& out, const event::LossEvent& loss) noexcept {
  Line line(out, "loss_event");
  line.number("seq", loss.seq.value);
  line.number("time_ns", loss.time_ns);
  losses(line, "lost_since_last", loss.lost);
  ledger(line, loss.ledger);
  return line.end();
}

bool append_level_event(Buffer& out, const event::LevelEvent& level) noexcept {
  Line line(out, "level_event");
  line.number("seq", level.seq.value);
  line.number("time_ns", level.time_ns);
  line.text("from", event::kRecordLevelNames[static_cast<std::size_t>(level.from)]);
  line.text("to", event::kRecordLevelNames[static_cast<std::size_t>(level.to)]);
  line.text("reason", event::kLevelReasonNames[static_cast<std::size_t>(level.reason)]);
  percent(line, "budget_percent", level.budget_percent);
  percent(line, "share_percent", level.share_percent());
  percent(line, "app_percent", level.app_percent);
  percent(line, "recorder_percent", level.recorder_percent);
  percent(line, "floor_percent", level.floor_percent);
  return line.end();
}

bool append_session_end(Buffer& out, const event::SessionEnd& e) noexcept {
  Line line(out, "session_end");
  line.number("seq", e.seq.value);
  line.number("time_ns", e.time_ns);
  line.text("reason", e.reason);
  ledger(line, e.ledger);
  line.number("bytes_written", e.bytes_written);
  line.number("recorder_cpu_ns", e.recorder_cpu_ns);
  line.maybe("added_ns_per_launch", e.added_ns_per_launch);
  line.number("launches", e.launches);
  line.number("graph_launches", e.graph_launches);
  line.number("captured", e.captured);
  line.number("failed", e.failed);
  line.number("kernels", e.kernels);
  line.number("configs", e.configs);
  line.number("graph_kernels", e.graph_kernels);
  line.number("replayed_kernels", e.replayed_kernels);
  line.number("unlaunched", e.unlaunched);
  if (e.event_times) {
    line.number("event_every", e.event_times->every);
    line.number("event_timed", e.event_times->timed);
    line.number("event_cost_ns", e.event_times->cost_ns);
  }
  return line.end();
}

}  // namespace gpuflight::log
