#include "report/kernel_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/activity_text.h"
#include "report/incident_text.h"
#include "report/kernel_name.h"
#include "report/kernel_table.h"
#include "report/ledger_text.h"
#include "report/quantity.h"
#include "report/recorder_cost.h"

namespace gpuflight::report {
namespace {

using analysis::LaunchGroup;
using analysis::LogFacts;
using analysis::LogSummary;

struct Paint {
  bool on;
  const char* bold() const { return on ? "\033[1m" : ""; }
  const char* warn() const { return on ? "\033[33m" : ""; }
  const char* bad() const { return on ? "\033[31m" : ""; }
  const char* off() const { return on ? "\033[0m" : ""; }
};

std::string program_text(const LogFacts& log) {
  if (!log.start) return log.path;
  std::string text = log.start->program;
  // args[0] is the program as it was called
  for (std::size_t i = 1; i < log.start->args.size(); ++i) text += " " + log.start->args[i];
  return text;
}

void append_log_header(std::string& out, const LogFacts& log, const ReportOptions& options) {
  const std::size_t width = std::max<std::size_t>(options.width, 40) - 11;
  out += fmt::format("program    {}\n", shortened(printable(program_text(log)), width));
  if (log.start) {
    out += fmt::format("process    {} on {}, {}", log.start->pid, printable(log.start->host),
                       utc_text(log.start->t0_unix_ns));
    for (const auto& [name, value] : log.start->rank) out += fmt::format(", {}={}", printable(name), printable(value));
    out += "\n";
  }
  out += fmt::format("log        {}{}\n", printable(log.path),
                     log.duration_ns() > 0 ? ", " + duration_text(static_cast<double>(log.duration_ns())) : "");
}

// What went wrong on the GPU stands above everything else that is known.
void append_incidents(std::string& out, const LogFacts& log, const ReportOptions& options) {
  constexpr std::size_t kMostShown = 5;
  const Paint paint{options.colour};
  KernelNames names(std::max<std::size_t>(options.width, 40) / 2, options.full_names);
  const auto at = [](std::int64_t ns) { return duration_text(static_cast<double>(ns)); };
  for (std::size_t i = 0; i < log.errors.size() && i < kMostShown; ++i) {
    out += fmt::format("{}error      after {}: {}{}\n", paint.bad(), at(log.errors[i].time_ns),
                       error_text(log.errors[i], names), paint.off());
  }
  if (log.errors_total > kMostShown) {
    out += fmt::format("           and {} errors more\n", log.errors_total - kMostShown);
  }
  for (std::size_t i = 0; i < log.hangs.size() && i < kMostShown; ++i) {
    const LogFacts::Hang& hang = log.hangs[i];
    const std::string end = hang.end_ns ? "went on after " + at(*hang.end_ns - hang.begin.since_ns) : "never went on";
    out += fmt::format("{}hang       after {}: {}; {}{}\n", paint.bad(), at(hang.begin.time_ns),
                       hang_text(hang.begin, names), end, paint.off());
  }
  if (log.hangs_total > kMostShown) {
    out += fmt::format("           and {} hangs more\n", log.hangs_total - kMostShown);
  }
}

std::string device_text(const event::DeviceInfo& device) {
  return fmt::format("{}: {} (sm_{}{}, {} SMs)", device.device, printable(device.name), device.compute_major,
                     device.compute_minor, device.sm_count);
}

std::string header(const LogSummary& summary, const ReportOptions& options) {
  constexpr std::size_t kMostLogs = 4;
  std::string out;
  for (std::size_t i = 0; i < summary.logs().size() && i < kMostLogs; ++i) {
    append_log_header(out, summary.logs()[i], options);
  }
  if (summary.logs().size() > kMostLogs)
    out += fmt::format("... and {} logs more\n", summary.logs().size() - kMostLogs);
  std::vector<std::string> devices;
  std::uint64_t launches = 0, graphs = 0, gpu_kernels = 0;
  for (const LogFacts& log : summary.logs()) {
    launches += log.launches;
    graphs += log.graph_launches;
    gpu_kernels += log.gpu_kernels;
    for (const auto& device : log.devices) {
      const std::string text = device_text(device);
      if (std::find(devices.begin(), devices.end(), text) == devices.end()) devices.push_back(text);
    }
  }
  for (std::size_t i = 0; i < devices.size(); ++i) out += (i == 0 ? "device     " : "           ") + devices[i] + "\n";

  const LaunchGroup totals = summary.totals();
  out += fmt::format("launches   {} of {} kernel{} in {} configuration{}", count_text(launches),
                     count_text(summary.kernels()), summary.kernels() == 1 ? "" : "s", count_text(totals.configs),
                     totals.configs == 1 ? "" : "s");
  if (totals.failed > 0) out += fmt::format(", {} failed", count_text(totals.failed));
  if (totals.captured > 0) out += fmt::format("; {} more captured into graphs", count_text(totals.captured));
  if (graphs > 0) out += fmt::format("; {} graph launches", count_text(graphs));
  if (gpu_kernels > 0) out += fmt::format("; {} kernels of graphs", count_text(gpu_kernels));
  out += "\n";
  for (const LogFacts& log : summary.logs()) {
    if (const std::string budget = budget_text(log); !budget.empty()) out += "budget     " + budget + "\n";
  }
  for (const LogFacts& log : summary.logs()) append_incidents(out, log, options);
  return out;
}

std::string trouble_text(const log::ReadStats& read) {
  std::string out;
  for (int i = 0; i < log::kTroubleCount; ++i) {
    const auto trouble = static_cast<log::Trouble>(i);
    const auto& count = read[trouble];
    if (count.count == 0 || trouble == log::Trouble::kUnknownKey) continue;
    if (!out.empty()) out += ", ";
    out += fmt::format("{} {}", log::trouble_name(trouble), count_text(count.count));
    if (count.first_line > 0) out += fmt::format(" (first in line {})", count.first_line);
  }
  return out;
}

void append_notices(std::string& out, const LogFacts& log, const Paint& paint) {
  constexpr std::size_t kMostNotices = 5;
  std::size_t shown = 0, more = 0;
  for (const event::Notice& notice : log.notices) {
    if (notice.severity == event::Severity::kInfo) continue;
    if (++shown > kMostNotices) {
      ++more;
      continue;
    }
    const bool error = notice.severity == event::Severity::kError;
    out += fmt::format("{}{}: {}{}\n", error ? paint.bad() : paint.warn(), error ? "error" : "warning",
                       printable(notice.message), paint.off());
  }
  if (more > 0) out += fmt::format("... and {} warnings more\n", more);
}

void append_footer(std::string& out, const LogSummary& summary, const Paint& paint) {
  for (const LogFacts& log : summary.logs()) append_notices(out, log, paint);
  for (const LogFacts& log : summary.logs()) {
    const std::string of = summary.logs().size() > 1 ? " of " + printable(log.path) : "";
    if (log.broken_lines() > 0) {
      out += fmt::format("{}note: {} line{}{} could not be read: {}{}\n", paint.warn(), count_text(log.broken_lines()),
                         log.broken_lines() == 1 ? "" : "s", of, trouble_text(log.read), paint.off());
    }
    if (const std::uint64_t missing = log.missing_events(); missing > 0) {
      out += fmt::format("{}note: {} event{} that the log{} says it has {} not in it{}\n", paint.bad(),
                         count_text(missing), missing == 1 ? "" : "s", of, missing == 1 ? "is" : "are", paint.off());
    }
    if (log.exit) {
      out += fmt::format("{}note: the log{} has no end: the program {}{}{}\n", paint.warn(), of,
                         log.exit->signal ? "was " : "", exit_text(*log.exit), paint.off());
    } else if (!log.end) {
      out += fmt::format("{}note: the log{} has no end: the program was killed or is still running{}\n", paint.warn(),
                         of, paint.off());
    }
  }
  std::uint64_t unknown_replays = 0;
  for (const LogFacts& log : summary.logs()) unknown_replays += log.unknown_replays;
  if (unknown_replays > 0) {
    out += fmt::format("{}note: {} graph launch{} count{} without kernels: what the graph ran is not known{}\n",
                       paint.warn(), count_text(unknown_replays), unknown_replays == 1 ? "" : "es",
                       unknown_replays == 1 ? "s" : "", paint.off());
  }
  append_time_notes(out, summary, paint.warn(), paint.off());
  if (summary.groups_full()) {
    out += fmt::format("{}note: there are more groups than are kept apart; the last ones are put together{}\n",
                       paint.warn(), paint.off());
  }
  for (const LogFacts& log : summary.logs()) {
    if (!log.ledger) continue;
    const std::string of = summary.logs().size() > 1 ? " in " + printable(log.path) : "";
    const event::Ledger& ledger = *log.ledger;
    if (ledger.occupancy_mismatch > 0) {
      out += fmt::format("{}note: in {} configurations the driver's occupancy differs from the model's{}{}\n",
                         paint.warn(), count_text(ledger.occupancy_mismatch), of, paint.off());
    }
  }
  for (const LogFacts& log : summary.logs()) {
    std::string line = log.ledger ? ledger_line(*log.ledger) : std::string();
    const std::uint64_t missing = log.missing_events();
    if (missing > 0) line = ledger_sum(*log.ledger) + fmt::format("; of the written not there {}", count_text(missing));
    if (line.empty()) continue;
    const std::string of = summary.logs().size() > 1 ? " (" + printable(log.path) + ")" : "";
    out += fmt::format("{}{}{}{}\n", log.lost() + missing > 0 ? paint.bad() : paint.warn(), line, of, paint.off());
  }
}

double shared_of(const LaunchGroup& group) {
  return static_cast<double>(group.static_shared_bytes.max) + static_cast<double>(group.dyn_shared_bytes.max);
}

// At least: launches whose call was not timed took no less than the shortest that was.
double call_ns(const LaunchGroup& group) {
  const std::uint64_t calls = group.launches - std::min(group.replayed, group.launches);
  const std::uint64_t untimed = calls - std::min(calls, group.call.count);
  const double least = group.call.each_ns.known ? static_cast<double>(group.call.each_ns.min) : 0;
  return static_cast<double>(group.call.total_ns) + least * static_cast<double>(untimed);
}

// More is earlier; what is not known comes last.
double rank_value(const LaunchGroup& group, SortBy sort, const Shares& shares) {
  switch (sort) {
    case SortBy::kShare:
      return shares.of(group);
    case SortBy::kCount:
      return static_cast<double>(group.launches);
    case SortBy::kTime:
      return static_cast<double>(group.gpu.total_ns);
    case SortBy::kCall:
      return call_ns(group);
    case SortBy::kOccupancy:
      return group.mean_occupancy() ? -*group.mean_occupancy() : -2;
    case SortBy::kRegisters:
      return group.num_regs.known ? group.num_regs.max : -1;
    case SortBy::kShared:
      return shared_of(group);
    case SortBy::kMean:
      return group.gpu.mean_ns().value_or(-1);
    case SortBy::kMax:
      return group.gpu.each_ns.known ? static_cast<double>(group.gpu.each_ns.max) : -1;
    case SortBy::kQueue:
      return group.queue.mean_ns().value_or(-1e300);
    case SortBy::kName:
      return 0;
  }
  return 0;
}

}  // namespace

std::optional<SortBy> sort_by(std::string_view name) {
  for (std::size_t i = 0; i < kSortByNames.size(); ++i) {
    if (name == kSortByNames[i]) return static_cast<SortBy>(i);
  }
  return std::nullopt;
}

double Shares::of(const LaunchGroup& group) const {
  if (whole <= 0) return 0;
  if (estimated) return group.estimated_total_ns().value_or(0) / whole;
  return static_cast<double>(of_gpu_time ? group.gpu.total_ns : static_cast<std::int64_t>(group.launches)) / whole;
}

Shares shares_of(const LogSummary& summary) {
  const LaunchGroup totals = summary.totals();
  Shares shares;
  shares.estimated = totals.gpu.total_ns > 0 && summary.sampled();
  const std::uint64_t missing = totals.executed() - std::min(totals.executed(), totals.gpu.count);
  shares.of_gpu_time = shares.estimated || (totals.gpu.total_ns > 0 && missing <= totals.executed() / 10);
  if (shares.estimated) {
    for (const LaunchGroup& group : summary.groups()) shares.whole += group.estimated_total_ns().value_or(0);
    return shares;
  }
  shares.whole =
      static_cast<double>(shares.of_gpu_time ? totals.gpu.total_ns : static_cast<std::int64_t>(totals.launches));
  return shares;
}

std::optional<Estimate> estimate_of(const LaunchGroup& group) {
  constexpr double kDeviations = 1.96;
  const auto total = group.estimated_total_ns();
  if (!total) return std::nullopt;
  Estimate estimate;
  estimate.total_ns = *total;
  estimate.too_long_ns = group.most_too_long_ns();
  if (group.extrapolated) estimate.standard_error_ns = group.extrapolated->standard_error_ns();
  if (estimate.standard_error_ns) {
    const double around = kDeviations * *estimate.standard_error_ns;
    estimate.low_ns = std::max(0.0, *total - around - estimate.too_long_ns);
    estimate.high_ns = *total + around;
  }
  return estimate;
}

std::vector<const LaunchGroup*> ranked(const LogSummary& summary, SortBy sort) {
  const Shares shares = shares_of(summary);
  struct Ranked {
    double value;
    const LaunchGroup* group;
  };
  std::vector<Ranked> order;
  for (const LaunchGroup& group : summary.groups()) order.push_back({rank_value(group, sort, shares), &group});
  std::stable_sort(order.begin(), order.end(), [](const Ranked& a, const Ranked& b) {
    return a.value != b.value ? a.value > b.value : a.group->label < b.group->label;
  });
  std::vector<const LaunchGroup*> groups;
  for (const Ranked& entry : order) groups.push_back(entry.group);
  return groups;
}

std::string render_text(const LogSummary& summary, const ReportOptions& options) {
  const Paint paint{options.colour};
  std::vector<const LaunchGroup*> groups = ranked(summary, options.sort);
  const std::size_t all = groups.size();
  if (options.top > 0 && groups.size() > options.top) groups.resize(options.top);
  std::string out = header(summary, options);
  if (groups.empty()) {
    out += "\nno kernel launches\n";
  } else {
    out += "\n" + kernel_table(summary, groups, options).render(paint.bold(), paint.off());
  }
  if (groups.size() < all) out += fmt::format("... and {} more\n", count_text(all - groups.size()));
  if (summary.has_times()) append_activity(out, summary, options);
  std::string footer;
  append_footer(footer, summary, paint);
  if (!footer.empty()) out += "\n" + footer;
  return out;
}

}  // namespace gpuflight::report
