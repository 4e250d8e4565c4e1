#include "kernel_line.h"

#include <fmt/format.h>

#include "analysis/log_summary.h"
#include "event/plausible_time.h"
#include "report/activity_text.h"
#include "report/incident_text.h"
#include "report/ledger_text.h"
#include "report/quantity.h"
#include "report/recorder_cost.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kYellow = "\033[33m";
constexpr const char* kRed = "\033[31m";
constexpr const char* kBold = "\033[1m";
constexpr const char* kOff = "\033[0m";
constexpr const char* kUnknown = "-";
constexpr double kLowOccupancy = 0.5;

// time, stream, grid, block, occupancy, limiter, gpu, call, name
constexpr const char* kColumns = "{:>12}  {:>6}  {:>14}  {:>10}  {:>6}  {:<10}  {:>8}  {:>8}  ";
constexpr std::size_t kColumnsWidth = 12 + 6 + 14 + 10 + 6 + 10 + 8 + 8 + 8 * 2;
constexpr std::size_t kLeastNameWidth = 24;

std::string dim_text(const event::Dim3& dim) {
  if (dim.z > 1) return fmt::format("{}x{}x{}", dim.x, dim.y, dim.z);
  return dim.y > 1 ? fmt::format("{}x{}", dim.x, dim.y) : fmt::format("{}", dim.x);
}

std::string seconds_text(std::int64_t ns) { return fmt::format("{:.6f}", static_cast<double>(ns) / 1e9); }

std::string maybe_duration(const event::MaybeNs& ns) {
  return ns ? report::duration_text(static_cast<double>(*ns)) : std::string(kUnknown);
}

std::string stream_text(std::uint32_t stream) { return stream == 0 ? kUnknown : fmt::format("s{}", stream); }

}  // namespace

KernelLine::KernelLine(std::size_t width, bool full_names, bool colour, bool calls)
    : names_(width > kColumnsWidth + kLeastNameWidth ? width - kColumnsWidth : kLeastNameWidth, full_names),
      colour_(colour),
      calls_(calls) {}

std::string KernelLine::painted(const char* colour, std::string text) const {
  return colour_ ? colour + text + kOff : text;
}

std::string KernelLine::heading() const {
  return painted(kBold, fmt::format(kColumns, "seconds", "stream", "grid", "block", "occ", "limiter", "gpu", "call") +
                            "kernel") +
         "\n";
}

std::string KernelLine::render(const log::LogEvent& event) {
  if (const auto* line = std::get_if<log::KernelEventLine>(&event)) return kernel(*line);
  if (const auto* line = std::get_if<log::GraphLaunchLine>(&event)) return graph(*line);
  if (const log::ApiLine* const line = log::api_line(event)) return calls_ ? call(*line) : std::string();
  if (const auto* line = std::get_if<log::KernelPendingLine>(&event)) return pending(*line);
  if (const auto* error = std::get_if<event::ErrorEvent>(&event)) {
    return painted(kRed, fmt::format("{:>12}  error: {}", seconds_text(error->time_ns),
                                     report::error_text(*error, names_))) + "\n";
  }
  if (const auto* hang = std::get_if<event::HangEvent>(&event)) {
    const bool begin = hang->phase == event::HangEvent::Phase::kBegin;
    return painted(begin ? kRed : kYellow, fmt::format("{:>12}  {}: {}", seconds_text(hang->time_ns),
                                                       begin ? "hang" : "hang over",
                                                       report::hang_text(*hang, names_))) + "\n";
  }
  if (const auto* exit = std::get_if<event::ExitEvent>(&event)) {
    return painted(kRed, fmt::format("{:>12}  end: {}", seconds_text(exit->time_ns), report::exit_text(*exit))) + "\n";
  }
  if (const auto* notice = std::get_if<event::Notice>(&event)) {
    if (notice->severity == event::Severity::kInfo) return {};
    const bool error = notice->severity == event::Severity::kError;
    return painted(error ? kRed : kYellow, fmt::format("{:>12}  {}: {}", seconds_text(notice->time_ns),
                                                       error ? "error" : "warning",
                                                       report::printable(notice->message))) + "\n";
  }
  if (const auto* level = std::get_if<event::LevelEvent>(&event)) {
    return painted(kYellow, fmt::format("{:>12}  level: {}", seconds_text(level->time_ns),
                                        report::level_text(*level))) + "\n";
  }
  if (const auto* loss = std::get_if<event::LossEvent>(&event)) {
    return painted(kRed, fmt::format("{:>12}  lost so far: {}", seconds_text(loss->time_ns),
                                     report::loss_text(loss->ledger))) + "\n";
  }
  return calls_ ? activity(event) : std::string();
}

std::string KernelLine::kernel(const log::KernelEventLine& line) {
  const event::KernelLaunch& launch = line.launch;
  const bool known_limiter = line.details && line.occupancy.source != event::OccupancySource::kNone;
  std::string text = fmt::format(
      kColumns, seconds_text(launch.launch_ns), stream_text(launch.stream.value), dim_text(launch.grid),
      line.config_known ? dim_text(line.shape.block) : kUnknown,
      line.occupancy_ratio ? report::percent_text(*line.occupancy_ratio, 1) : kUnknown,
      known_limiter ? event::kLimiterNames[static_cast<std::size_t>(line.occupancy.limiter)] : kUnknown,
      maybe_duration(line.duration_ns), maybe_duration(launch.call_ns));
  text += line.kernel.name.empty() ? std::string(analysis::kUnknownKernel) : names_.of(line.kernel.name);
  if (launch.captured) text += "  [captured]";
  if (launch.late) text += "  [late]";
  const bool failed = launch.status.value_or(0) != 0;
  if (failed) text += fmt::format("  [failed: {}]", *launch.status);
  if (failed) return painted(kRed, std::move(text)) + "\n";
  const bool low = line.occupancy_ratio && *line.occupancy_ratio < kLowOccupancy;
  return (low ? painted(kYellow, std::move(text)) : text) + "\n";
}

std::string KernelLine::graph(const log::GraphLaunchLine& line) const {
  const event::GraphLaunch& launch = line.launch;
  std::string text = fmt::format(kColumns, seconds_text(launch.launch_ns), stream_text(launch.stream.value), kUnknown,
                                 kUnknown, kUnknown, kUnknown, kUnknown, maybe_duration(launch.call_ns));
  text += fmt::format("(graph {})", launch.graph.value);
  if (launch.captured) text += "  [captured]";
  if (launch.status.value_or(0) == 0) return text + "\n";
  return painted(kRed, text + fmt::format("  [failed: {}]", *launch.status)) + "\n";
}

std::string KernelLine::call(const log::ApiLine& line) const {
  const event::ApiEvent& call = line.call;
  return other(call.time_ns, call.stream, std::nullopt, call.call_ns, call.status, report::printable(line.name));
}

std::string KernelLine::activity(const log::LogEvent& event) const {
  const auto duration = [](const auto& work) -> event::MaybeNs {
    return event::elapsed(work.start_ns, work.end_ns);
  };
  const auto time = [](const auto& work) { return work.origin.launch_ns.value_or(work.start_ns.value_or(0)); };
  if (const auto* line = std::get_if<log::MemcpyLine>(&event)) {
    const event::MemcpyEvent& copy = line->copy;
    const std::string what = report::copy_label({false, copy.kind, copy.source, copy.destination, copy.async,
                                                 copy.source_device, copy.destination_device});
    return other(time(copy), copy.stream, duration(copy), copy.origin.call_ns, copy.origin.status,
                 fmt::format("copy {}, {}", what, report::bytes_text(copy.bytes)));
  }
  if (const auto* line = std::get_if<log::MemsetLine>(&event)) {
    const event::MemsetEvent& fill = line->fill;
    return other(time(fill), fill.stream, duration(fill), fill.origin.call_ns, fill.origin.status,
                 fmt::format("fill{}, {}", fill.async ? " async" : "", report::bytes_text(fill.bytes)));
  }
  if (const auto* line = std::get_if<log::MemoryLine>(&event)) {
    const event::MemoryEvent& memory = line->memory;
    std::string what = report::printable(line->call);
    if (memory.bytes) what += " " + report::bytes_text(*memory.bytes);
    if (memory.total_bytes) what += fmt::format(", then {}", report::bytes_text(*memory.total_bytes));
    return other(memory.time_ns, memory.stream, std::nullopt, memory.call_ns, memory.status, std::move(what));
  }
  if (const auto* line = std::get_if<log::StreamEdgeLine>(&event)) {
    const event::StreamEdge& edge = line->edge;
    const bool wait = edge.operation == event::StreamEdge::Operation::kWait;
    return other(edge.time_ns, edge.stream, std::nullopt, edge.call_ns, edge.status,
                 fmt::format("{} {:#x}", wait ? "cuStreamWaitEvent" : "cuEventRecord", edge.event));
  }
  return {};
}

std::string KernelLine::pending(const log::KernelPendingLine& line) {
  const event::KernelPending& p = line.pending;
  const std::string name = line.name.empty() ? std::string(analysis::kUnknownKernel) : names_.of(line.name);
  return painted(kYellow, fmt::format("{:>12}  pending: {} in {}, launched at {}, has not ended after {}; {} launches "
                                      "behind it",
                                      seconds_text(p.time_ns), name, stream_text(p.stream.value),
                                      seconds_text(p.launch_ns),
                                      maybe_duration(event::elapsed(p.launch_ns, p.time_ns)),
                                      report::count_text(p.behind))) + "\n";
}

// A row that is no kernel's.
std::string KernelLine::other(std::int64_t time_ns, event::StreamId stream, const event::MaybeNs& gpu_ns,
                              const event::MaybeNs& call_ns, const event::MaybeStatus& status,
                              std::string what) const {
  std::string text = fmt::format(kColumns, seconds_text(time_ns), stream_text(stream.value), kUnknown, kUnknown,
                                 kUnknown, kUnknown, maybe_duration(gpu_ns), maybe_duration(call_ns));
  text += what;
  if (status.value_or(0) == 0) return text + "\n";
  return painted(kRed, text + fmt::format("  [failed: {}]", *status)) + "\n";
}

}  // namespace gpuflight::cli
