// gpuflight tail: follows a log while it grows, one readable line per kernel.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "command_line.h"
#include "event_filter.h"
#include "failure.h"
#include "kernel_line.h"
#include "log/decoder.h"
#include "log_target.h"
#include "report/incident_text.h"
#include "report/ledger_text.h"
#include "report/quantity.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kExamples =
    "  gpuflight tail gpuflight/                        the newest log of a folder\n"
    "  gpuflight tail 4711                              the log that process 4711 writes\n"
    "  gpuflight tail --limiter shared_mem --occupancy-below 50% run.ndjson\n"
    "  gpuflight tail --json --name 'gemm*' run.ndjson | jq -c '[.grid, .call_ns]'\n";

constexpr auto kPause = std::chrono::milliseconds(40);
constexpr auto kGoneAfter = std::chrono::seconds(2);
constexpr std::size_t kFlushBytes = 1 << 16;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

struct TailOptions {
  std::string target;
  std::size_t last = 10;  // lines of what is there already
  bool follow = true;
  bool keep = false;
  bool json = false;
  bool full_names = false;
  bool calls = false;
  std::string colour = "auto";
};

class Tail {
 public:
  Tail(const TailOptions& options, EventFilter filter)
      : options_(options),
        filter_(std::move(filter)),
        line_(terminal_width(), options.full_names, !options.json && wants_colour(options.colour),
              options.calls) {}

  int follow(const std::string& path) {
    log::ReadOptions read;
    read.follow = options_.follow;
    read.rotated = options_.last == kAll;
    log::LogReader reader = opened(path, read);
    if (!options_.json) pending_ += line_.heading();
    log::LogEvent event;
    for (;;) {
      const auto status = reader.next(event);
      if (status == log::LogReader::Status::kEvent) {
        on_event(event, reader.line());
        if (ended_ && !options_.keep) break;
        continue;
      }
      show_last();
      flush();
      if (status == log::LogReader::Status::kEnd || program_is_gone()) break;
      std::this_thread::sleep_for(kPause);
    }
    show_last();
    flush();
    say_how_it_ended(reader.stats());
    return kExitOk;
  }

 private:
  // A log that comes after us is shown from its first line on.
  log::LogReader opened(const std::string& path, const log::ReadOptions& read) {
    if ((joined_ = open_flight_log(path))) return opened_flight_log(read);
    bool said = false;
    for (;;) {
      log::LogReader reader(path, read);
      const int error = reader.open();
      if (error == 0) return reader;
      if (error != ENOENT || !options_.follow)
        throw Failure(fmt::format("cannot read '{}': {}", path, strerror(error)));
      if (!said) say("gpuflight: waiting for '{}'\n", path);
      said = true;
      options_.last = kAll;
      std::this_thread::sleep_for(kPause);
    }
  }

  // Of a program that runs its log, which has everything soon; else the log and what only the flight file has.
  log::LogReader opened_flight_log(log::ReadOptions read) {
    std::vector<std::string> files = joined_->files();
    const analysis::RecoveryResult& result = joined_->result();
    if (result.verdict == analysis::Verdict::kRunning && !result.log_path.empty()) {
      files = read.rotated ? log::log_segments(result.log_path) : std::vector{result.log_path};
    } else {
      read.follow = false;
      constexpr std::size_t kLiveAndRecovered = 2;
      if (!read.rotated && files.size() > kLiveAndRecovered) {
        files.erase(files.begin(), files.end() - kLiveAndRecovered);
      }
    }
    log::LogReader reader(std::move(files), read);
    if (const int error = reader.open(); error != 0) {
      throw Failure(fmt::format("cannot read '{}': {}", result.log_path, strerror(error)));
    }
    return reader;
  }

  void on_event(const log::LogEvent& event, std::string_view raw) {
    last_event_ = std::chrono::steady_clock::now();
    if (const auto* start = std::get_if<log::SessionStartLine>(&event)) start_ = start->session;
    if (const auto* loss = std::get_if<event::LossEvent>(&event)) ledger_ = loss->ledger;
    if (const auto* exit = std::get_if<event::ExitEvent>(&event)) exit_ = *exit;
    if (const auto* end = std::get_if<event::SessionEnd>(&event)) {
      ended_ = *end;
      ledger_ = end->ledger;
    }
    if (!wanted(event)) return;
    std::string text = options_.json ? std::string(raw) + "\n" : line_.render(event);
    if (text.empty()) return;
    if (caught_up_) {
      pending_ += text;
      if (pending_.size() >= kFlushBytes) flush();
      return;
    }
    kept_.push_back(std::move(text));
    if (kept_.size() > options_.last) kept_.pop_front();
    if (options_.last == kAll && kept_.size() >= 1024) spill();
  }

  // A filter is about kernels. What has gone wrong is shown all the same: who looks for one kernel must not be left to
  // think that all is well.
  bool wanted(const log::LogEvent& event) {
    if (filter_.empty()) return true;
    if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) return filter_.passes(*kernel);
    if (const auto* notice = std::get_if<event::Notice>(&event)) return notice->severity != event::Severity::kInfo;
    return std::holds_alternative<event::ErrorEvent>(event) || std::holds_alternative<event::HangEvent>(event) ||
           std::holds_alternative<event::LossEvent>(event) || std::holds_alternative<event::LevelEvent>(event) ||
           std::holds_alternative<event::ExitEvent>(event);
  }

  void spill() {
    for (const std::string& text : kept_) pending_ += text;
    kept_.clear();
    if (pending_.size() >= kFlushBytes) flush();
  }

  void show_last() {
    if (caught_up_) return;
    caught_up_ = true;
    spill();
  }

  void flush() {
    if (pending_.empty()) return;
    const bool written = std::fwrite(pending_.data(), 1, pending_.size(), stdout) == pending_.size();
    if (!written || std::fflush(stdout) != 0) throw Failure("cannot write the output");
    pending_.clear();
  }

  // A log has no end when its program was killed. Only a process of this very machine can be asked for.
  bool program_is_gone() {
    if (options_.keep || ended_ || !start_ || std::chrono::steady_clock::now() - last_event_ < kGoneAfter) return false;
    char host[256] = {};
    ::gethostname(host, sizeof(host) - 1);
    std::string boot;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, boot);
    if (start_->host != host || start_->boot_id.empty() || boot != start_->boot_id) return false;
    gone_ = !process_lives(start_->pid, start_->process_start_ticks);
    return gone_;
  }

  void say_how_it_ended(const log::ReadStats& stats) const {
    const std::uint64_t missed = stats[log::Trouble::kMissedSegment].count;
    if (missed > 0) {
      say("gpuflight: {} segments were rotated away before they could be shown\n",
                 report::count_text(missed));
    }
    if (stats.trouble_total() > missed) {
      say("gpuflight: {} lines could not be read\n",
                 report::count_text(stats.trouble_total() - missed));
    }
    if (ended_) {
      say("gpuflight: the recording ended ({}) after {}: {} launches, {} failed\n",
                 report::printable(ended_->reason), report::duration_text(static_cast<double>(ended_->time_ns)),
                 report::count_text(ended_->launches), report::count_text(ended_->failed));
    } else if (exit_) {
      say("gpuflight: the program {}{}\n", exit_->signal ? "was " : "", report::exit_text(*exit_));
    } else if (gone_) {
      say("gpuflight: the program (process {}) is gone and has not closed its log: it was killed\n",
                 start_->pid);
    }
    // With a flight file the join has counted everything itself.
    const bool joined = joined_ && joined_->result().verdict != analysis::Verdict::kRunning;
    const event::Ledger ledger = joined ? report::as_ledger(joined_->result().ledger) : ledger_.value_or(event::Ledger());
    if (const std::string line = report::ledger_line(ledger); !line.empty()) say("gpuflight: {}\n", line);
  }

  TailOptions options_;
  std::unique_ptr<analysis::FlightLog> joined_;
  EventFilter filter_;
  KernelLine line_;
  std::deque<std::string> kept_;
  std::string pending_;
  std::optional<event::SessionStart> start_;
  std::optional<event::SessionEnd> ended_;
  std::optional<event::ExitEvent> exit_;
  std::optional<event::Ledger> ledger_;  // the latest
  std::chrono::steady_clock::time_point last_event_ = std::chrono::steady_clock::now();
  bool caught_up_ = false;
  bool gone_ = false;
};

std::size_t parse_last(const std::string& text) {
  if (text == "all") return kAll;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UsageError(fmt::format("-n takes a number or 'all', not '{}'", text), "tail");
  }
  return value;
}

}  // namespace

int tail_verb(const Arguments& arguments) {
  TailOptions options;
  std::string last = "10", below;
  std::vector<std::string> names, limiters;
  std::vector<std::uint32_t> streams;
  bool no_follow = false, failed = false;

  CLI::App app;
  describe(app, "tail", "[OPTIONS] LOG",
           "Follows a log while it grows, through its rotations, one line per kernel. Ends with the recording.",
           kExamples);
  app.add_option("LOG", options.target, "A log (it may come later), a flight file, a folder (its newest log), or a process id")
      ->required();
  app.add_option("-n,--lines", last, "Show the last N matching lines of the present file first; all: of all files")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--name", names, "Only kernels whose name matches: GLOB, /REGEX/ or a part of the name")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--limiter", limiters, "Only kernels limited by this: warps, blocks, registers, shared_mem, ...")
      ->type_name("WHAT")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  app.add_option("--occupancy-below", below, "Only kernels with an occupancy below X (0.5 or 50%)")->type_name("X");
  app.add_option("--stream", streams, "Only this stream (its number as shown)")
      ->type_name("N")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  app.add_flag("--failed", failed, "Only launches the driver refused");
  app.add_flag("--calls", options.calls, "Also what is no kernel: synchronisations, copies, fills, allocations, events");
  app.add_flag("--json", options.json, "The lines of the log as they are");
  app.add_flag("--no-follow", no_follow, "Stop at the end of what is there");
  app.add_flag("--keep", options.keep, "Go on when the recording has ended");
  app.add_flag("--full-names", options.full_names, "Names with arguments and parameters, however long");
  add_color_option(app, options.colour);
  if (const auto done = parse(app, arguments)) return *done;

  options.follow = !no_follow;
  options.last = parse_last(last);
  EventFilter filter;
  for (const std::string& name : names) filter.add_name(name);
  for (const std::string& limiter : limiters) filter.add_limiter(limiter);
  if (!below.empty()) filter.set_occupancy_below(below);
  for (const std::uint32_t stream : streams) filter.add_stream(stream);
  if (failed) filter.set_failed_only();
  return Tail(options, std::move(filter)).follow(resolve_log(options.target));
}

}  // namespace gpuflight::cli
