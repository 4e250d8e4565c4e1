#include "report/activity_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "event/plausible_time.h"
#include "report/kernel_name.h"
#include "report/quantity.h"
#include "report/text_table.h"

namespace gpuflight::report {
namespace {

using analysis::CallRow;
using analysis::LogFacts;
using analysis::LogSummary;

constexpr const char* kUnknown = "-";
constexpr std::size_t kMostRows = 12;  // of calls, memory and graphs: the table of kernels is what was asked for
constexpr std::size_t kMostPending = 5;

std::string ns_text(std::int64_t ns) { return duration_text(static_cast<double>(ns)); }
std::string ns_text(const std::optional<double>& ns) { return ns ? duration_text(*ns) : std::string(kUnknown); }

const char* word(const char* name) { return name != nullptr ? name : "unknown"; }
const char* memory_word(event::MemoryKind kind) { return word(event::kMemoryKindNames[static_cast<std::size_t>(kind)]); }

std::string of_log(const LogSummary& summary, std::size_t log) {
  if (summary.logs().size() < 2) return {};
  const LogFacts& facts = summary.logs()[log];
  return facts.start ? fmt::format(" of process {}", facts.start->pid) : fmt::format(" of log {}", log + 1);
}

class Section {
 public:
  Section(std::string& out, const ReportOptions& options) : out_(out), colour_(options.colour) {}
  void column(const char* heading, Align align = Align::kRight) { table_.add_column(heading, align); }
  void row(std::vector<std::string> cells) {
    if (++rows_ <= kMostRows) table_.add_row(std::move(cells));
  }
  ~Section() {
    if (rows_ == 0) return;
    out_ += "\n" + table_.render(colour_ ? "\033[1m" : "", colour_ ? "\033[0m" : "");
    if (rows_ > kMostRows) out_ += fmt::format("... and {} more\n", count_text(rows_ - kMostRows));
  }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  std::string& out_;
  const bool colour_;
  TextTable table_;
  std::size_t rows_ = 0;
};

void devices(std::string& out, const LogSummary& summary, const ReportOptions& options) {
  Section section(out, options);
  for (const char* heading : {"busy", "time", "idle", "kernels", "copies", "copies beside kernels",
                              "kernels side by side"}) {
    section.column(heading);
  }
  section.column("device", Align::kLeft);
  for (std::size_t i = 0; i < summary.logs().size(); ++i) {
    for (const LogFacts::DeviceBusy& device : summary.logs()[i].busy) {
      const analysis::BusyTimes& t = device.times;
      const double span = static_cast<double>(t.span_ns());
      const std::string beside =
          t.copy_ns > 0 ? fmt::format("{} ({} of copies)", ns_text(t.copy_beside_kernel_ns),
                                      percent_text(static_cast<double>(t.copy_beside_kernel_ns) /
                                                   static_cast<double>(t.copy_ns), 0))
                        : std::string(kUnknown);
      section.row({span > 0 ? percent_text(static_cast<double>(t.busy_ns) / span, 1) : kUnknown, ns_text(t.busy_ns),
                   ns_text(t.idle_ns()), ns_text(t.kernel_ns), ns_text(t.copy_ns), beside,
                   ns_text(t.kernels_beside_ns),
                   (device.device ? fmt::format("device {}", *device.device) : "unknown device") + of_log(summary, i)});
    }
  }
}

std::vector<std::string> transfer_cells(const analysis::Transfers& t, std::string label) {
  const auto rate = t.bytes_per_second();
  return {t.gpu.count > 0 ? ns_text(t.gpu.total_ns) : kUnknown,
          count_text(t.count),
          bytes_text(t.bytes),
          ns_text(t.gpu.mean_ns()),
          ns_text(t.gpu.quantile_ns(0.95)),
          t.gpu.each_ns.known ? ns_text(t.gpu.each_ns.max) : kUnknown,
          rate ? rate_text(*rate) : kUnknown,
          ns_text(t.queue.mean_ns()),
          std::move(label)};
}

void transfers(std::string& out, const LogSummary& summary, const ReportOptions& options) {
  struct Row {
    const analysis::Transfers* transfers;
    std::string label;
  };
  std::vector<Row> rows;
  for (const auto& [key, row] : summary.activity().copies()) rows.push_back({&row, copy_label(key)});
  for (const auto& [key, row] : summary.activity().fills()) {
    rows.push_back({&row, fmt::format("fill of {}{}", memory_word(key.memory), key.async ? ", async" : "")});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.transfers->gpu.total_ns > b.transfers->gpu.total_ns;
  });
  Section section(out, options);
  for (const char* heading : {"total", "count", "bytes", "mean", "p95", "max", "rate", "queue"}) section.column(heading);
  section.column("copy", Align::kLeft);
  for (Row& row : rows) section.row(transfer_cells(*row.transfers, std::move(row.label)));
}

// Of all calls. The slow ones have all been timed; those that have not are taken for as long as the median.
double host_ns(const CallRow& row) {
  const std::uint64_t untimed = row.count - std::min(row.count, row.host.count);
  return static_cast<double>(row.host.total_ns) + row.host.quantile_ns(0.5).value_or(0) * static_cast<double>(untimed);
}

void calls(std::string& out, const LogSummary& summary, const ReportOptions& options) {
  using Entry = std::pair<const std::string, CallRow>;
  std::vector<const Entry*> rows;
  bool failed = false;
  for (const Entry& entry : summary.activity().calls()) {
    rows.push_back(&entry);
    failed = failed || entry.second.failed > 0;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Entry* a, const Entry* b) {
    return host_ns(a->second) > host_ns(b->second);
  });
  Section section(out, options);
  for (const char* heading : {"host time", "count"}) section.column(heading);
  if (failed) section.column("failed");
  for (const char* heading : {"mean", "p95", "max"}) section.column(heading);
  section.column("may wait", Align::kLeft);
  section.column("call", Align::kLeft);
  for (const Entry* entry : rows) {
    const CallRow& row = entry->second;
    const bool some = row.host.count > 0 && row.host.count < row.count;
    std::vector<std::string> cells = {some ? "~" + ns_text(host_ns(row)) : ns_text(row.host.total_ns),
                                      count_text(row.count)};
    if (failed) cells.push_back(count_text(row.failed));
    for (std::string cell : {ns_text(row.host.mean_ns()), ns_text(row.host.quantile_ns(0.95)),
                             row.host.each_ns.known ? ns_text(row.host.each_ns.max) : std::string(kUnknown),
                             std::string(row.may_wait ? "yes" : ""), printable(entry->first)}) {
      cells.push_back(std::move(cell));
    }
    section.row(std::move(cells));
  }
}

void memory(std::string& out, const LogSummary& summary, const ReportOptions& options) {
  const auto known = [](const std::optional<std::uint64_t>& bytes) {
    return bytes ? bytes_text(*bytes) : std::string(kUnknown);
  };
  Section section(out, options);
  for (const char* heading : {"peak", "left", "allocated", "allocs", "frees"}) section.column(heading);
  section.column("memory", Align::kLeft);
  for (const auto& [key, row] : summary.activity().memory()) {
    section.row({known(row.peak_bytes), known(row.live_bytes), bytes_text(row.allocated_bytes), count_text(row.allocs),
                 count_text(row.frees), memory_label(key.second) + of_log(summary, key.first)});
  }
}

void graphs(std::string& out, const LogSummary& summary, const ReportOptions& options) {
  Section section(out, options);
  for (const char* heading : {"launches", "kernels", "kernel time", "copies", "copy time", "as a whole", "mean",
                              "call mean"}) {
    section.column(heading);
  }
  section.column("graph", Align::kLeft);
  for (const auto& [key, row] : summary.activity().graphs()) {
    section.row({count_text(row.launches), count_text(row.kernels), ns_text(row.kernel_time.total_ns),
                 count_text(row.transfers), ns_text(row.transfer_time.total_ns), row.gpu.count > 0 ? ns_text(row.gpu.total_ns) : kUnknown,
                 ns_text(row.gpu.mean_ns()), ns_text(row.call.mean_ns()),
                 (key.second != 0 ? fmt::format("graph {}", key.second) : "unknown graph") +
                     of_log(summary, key.first)});
  }
}

}  // namespace

std::string copy_label(const analysis::CopyKey& key) {
  if (key.others) return "(other copies)";
  std::string text = fmt::format("{} {} > {}", word(event::kCopyKindNames[static_cast<std::size_t>(key.kind)]),
                                 memory_word(key.source), memory_word(key.destination));
  if (key.source_device && key.destination_device) {
    text += fmt::format(", device {} > {}", *key.source_device, *key.destination_device);
  }
  if (key.async) text += ", async";
  return text;
}

std::string memory_label(const analysis::MemoryKey& key) {
  const char* const kind = word(event::allocation_name(key.kind));
  std::string text = key.device >= 0 ? fmt::format("device {}: {}", key.device, kind) : fmt::format("host: {}", kind);
  if (key.pool != 0) text += fmt::format(" {:#x}", key.pool);
  return text;
}

namespace {

// Which they are, by the option that asked for them.
std::string sampling_text(const LogFacts& log) {
  if (log.event_timed == 0) return printable(std::string(log.timing()));
  const bool other = log.end && log.end->event_times && std::to_string(log.end->event_times->every) != log.event_times();
  return fmt::format("event_times={}{}", printable(std::string(log.event_times())),
                     other ? fmt::format(", in the end {}", log.end->event_times->every) : "");
}

}  // namespace

void append_activity(std::string& out, const LogSummary& summary, const ReportOptions& options) {
  devices(out, summary, options);
  transfers(out, summary, options);
  calls(out, summary, options);
  memory(out, summary, options);
  graphs(out, summary, options);
}

void append_time_notes(std::string& out, const LogSummary& summary, const char* warn, const char* off) {
  if (!summary.has_times()) return;
  for (std::size_t i = 0; i < summary.logs().size(); ++i) {
    const LogFacts& log = summary.logs()[i];
    const std::string of = of_log(summary, i);
    if (log.times_sampled()) {
      out += fmt::format("{}note: GPU times{} are those of samples ({}): shares and totals marked ~ stand for all "
                         "launches, {}{}\n",
                         warn, of, sampling_text(log),
                         log.event_timed > 0 ? "with the error of 95 % beside; when the GPU was busy is not known"
                                             : "busy and idle are those of the samples",
                         off);
    } else if (log.untimed_kernels > 0 && log.timed_kernels > 0) {
      out += fmt::format("{}note: {} of {} kernels{} have no GPU time; totals and busy times are without them{}\n", warn,
                         count_text(log.untimed_kernels),
                         count_text(log.untimed_kernels + log.timed_kernels + log.late_times), of, off);
    }
    if (log.level_changes > 0 && log.timed_kernels > 0) {
      const std::int64_t at_events = log.time_at_levels()[static_cast<std::size_t>(event::RecordLevel::kEvents)];
      out += fmt::format("{}note: under the budget GPU times{} are only of the {} at level events: busy and idle are "
                         "not known of the rest{}\n",
                         warn, of, ns_text(at_events), off);
    }
    if (log.unplaced_times > 0) {
      out += fmt::format("{}note: {} times that came late{} could not be given to their row{}\n", warn,
                         count_text(log.unplaced_times), of, off);
    }
    for (const LogFacts::DeviceBusy& device : log.busy) {
      if (device.times.uncertain_ns <= device.times.busy_ns / 1000) continue;
      out += fmt::format("{}note: busy and idle{} may be off by {}: lines were too far out of order{}\n", warn, of,
                         ns_text(device.times.uncertain_ns), off);
    }
    std::size_t shown = 0;
    KernelNames names(48, false);
    for (const auto& [seq, line] : log.pending) {
      if (++shown > kMostPending) break;
      out += fmt::format("{}note: {}, launched after {}{}, had not ended {} later; {} launches wait behind it{}\n", warn,
                         line.name.empty() ? std::string("a kernel") : names.of(line.name),
                         ns_text(line.pending.launch_ns), of,
                         ns_text(event::elapsed(line.pending.launch_ns, line.pending.time_ns).value_or(0)),
                         count_text(line.pending.behind), off);
    }
    if (log.pending.size() > kMostPending) {
      out += fmt::format("... and {} kernels more that had not ended\n", log.pending.size() - kMostPending);
    }
  }
}

}  // namespace gpuflight::report
