// gpuflight export: recordings in the formats of other tools.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "failure.h"
#include "log_input.h"
#include "log_scan.h"
#include "report/chrome_trace.h"
#include "report/quantity.h"
#include "terminal.h"
#include "trace_file.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight export -o train.json.gz gpuflight/train.4711.ndjson     # then open it in https://ui.perfetto.dev\n"
    "  gpuflight export gpuflight/train.4711.ndjson > trace.json\n"
    "  gpuflight export -o node.json.gz gpuflight/                       # all processes on one time axis\n";

// What a log's first line says of its clock; nothing: it has no such line.
std::optional<event::SessionStart> session_of(const LogInput& input) {
  log::ReadOptions options;
  options.types = log::line_type_bit(log::LineType::kSessionStart);
  log::LogReader reader = input.segments.empty() ? log::LogReader(input.path, options)
                                                 : log::LogReader(input.segments, options);
  log::LogEvent event;
  if (input.path == "-" || reader.open() != 0) return std::nullopt;
  if (reader.next(event) != log::LogReader::Status::kEvent) return std::nullopt;
  return std::get<log::SessionStartLine>(event).session;
}

class Trace final : public EventTaker {
 public:
  Trace(report::ChromeTrace& trace, const std::vector<LogInput>& inputs) : trace_(trace), several_(inputs.size() > 1) {
    if (!several_) return;
    for (const LogInput& input : inputs) sessions_.push_back(session_of(input));
    for (const auto& session : sessions_) {
      if (session && (!first_ || session->t0_unix_ns < first_->t0_unix_ns)) first_ = session;
    }
  }
  void use(std::size_t input) { input_ = input; }

  void begin_log(const std::string&) override {
    ++logs_;
    report::TraceClock clock;
    clock.correct_drift = several_;
    if (several_ && first_ && sessions_[input_]) clock.offset_ns = offset(*sessions_[input_]);
    trace_.begin_log(clock, several_);
  }
  void add(const log::LogEvent& event) override { trace_.add(event); }
  void end_log(const log::ReadStats& stats) override {
    trace_.end_log();
    broken_ += stats.trouble_total();
  }
  std::size_t logs() const { return logs_; }
  std::uint64_t broken() const { return broken_; }

 private:
  // Of one boot of one host the monotonic clock is the same; nobody sets it.
  std::int64_t offset(const event::SessionStart& session) const {
    const bool same_clock = !session.boot_id.empty() && session.boot_id == first_->boot_id &&
                            session.t0_monotonic_ns != 0 && first_->t0_monotonic_ns != 0;
    std::int64_t ns = 0;
    const bool lies = same_clock ? __builtin_sub_overflow(session.t0_monotonic_ns, first_->t0_monotonic_ns, &ns)
                                 : __builtin_sub_overflow(session.t0_unix_ns, first_->t0_unix_ns, &ns);
    return lies ? 0 : ns;
  }

  report::ChromeTrace& trace_;
  const bool several_;
  std::vector<std::optional<event::SessionStart>> sessions_;
  std::optional<event::SessionStart> first_;
  std::size_t input_ = 0, logs_ = 0;
  std::uint64_t broken_ = 0;
};

}  // namespace

int export_verb(const Arguments& arguments) {
  std::vector<std::string> logs;
  std::string format = "chrome", output = "-";
  report::TraceOptions options;
  bool no_counters = false, no_flows = false;

  CLI::App app;
  describe(app, "export", "[OPTIONS] LOG...",
           "A recording as a trace to look at: JSON in the Trace Event Format, which Perfetto\n"
           "(https://ui.perfetto.dev), chrome://tracing and HolisticTraceAnalysis open.\n"
           "A track per stream of each device and per thread, arrows from each call to its work, scopes, counters.",
           kExamples);
  app.add_option("LOG", logs, "Logs, flight files, folders of logs, or - for standard input")->required();
  app.add_option("--format", format, "chrome")
      ->check(CLI::IsMember({"chrome"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  app.add_option("-o,--output", output, "Where to; compressed if it ends in .gz; -: standard output")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_flag("--no-counters", no_counters, "Without occupancy and memory over time");
  app.add_flag("--no-flows", no_flows, "Without arrows");
  app.get_option("LOG")->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  if (const auto done = parse(app, arguments)) return *done;
  if (output == "-" && isatty(STDOUT_FILENO) != 0) {
    throw UsageError("a trace is nothing for a terminal: give -o FILE, or redirect the output", "export");
  }
  options.counters = !no_counters;
  options.flows = !no_flows;

  std::vector<std::string> remarks;
  const std::vector<LogInput> inputs = join_sessions(expand_logs(logs, &remarks));
  TraceFile file(output);
  report::ChromeTrace trace([&](std::string_view bytes) { file.write(bytes); }, options);
  Trace taker(trace, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    taker.use(i);
    for (std::string& remark : scan_input(inputs[i], taker, true)) remarks.push_back(std::move(remark));
  }
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  if (taker.logs() == 0) return kExitFailure;
  trace.finish();
  file.close();
  if (taker.broken() > 0) {
    say("gpuflight: {} lines could not be read ('gpuflight report' says which)\n", report::count_text(taker.broken()));
  }
  if (output != "-") say("gpuflight: {} events in {}\n", report::count_text(trace.events()), output);
  return kExitOk;
}

}  // namespace gpuflight::cli
