#include "log_scan.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "failure.h"
#include "log/decoder.h"
#include "log_target.h"
#include "recovered_events.h"
#include "report/kernel_name.h"
#include "report/quantity.h"
#include "terminal.h"

namespace gpuflight::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLinesBetweenLooks = 4096;

// One line on stderr that replaces itself, from the third second on and on a terminal only.
class Progress {
 public:
  Progress(bool wanted, std::uint64_t total) : wanted_(wanted && stderr_is_terminal()), total_(total) {}
  ~Progress() {
    if (shown_) say("\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::uint64_t done) {
    const Clock::time_point now = Clock::now();
    if (!wanted_ || now - begin_ < std::chrono::seconds(2) || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    shown_ = true;
    if (total_ > 0) {
      say("\rreading: {:3.0f}% of {}\033[K",
                 100.0 * static_cast<double>(std::min(done, total_)) / static_cast<double>(total_),
                 report::bytes_text(total_));
    } else {
      say("\rreading: {}\033[K", report::bytes_text(done));
    }
  }

 private:
  bool wanted_;
  std::uint64_t total_;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now(), last_{};
};

void add_stats(log::ReadStats& to, const log::ReadStats& more) {
  to.lines += more.lines;
  to.bytes += more.bytes;
  to.file_bytes += more.file_bytes;
  for (std::size_t i = 0; i < to.troubles.size(); ++i) {
    if (to.troubles[i].count == 0) {
      to.troubles[i] = more.troubles[i];
    } else {
      to.troubles[i].count += more.troubles[i].count;
    }
  }
}

// What a copy of the log tells again; of launches and the like the sequence number says it.
bool is_repeated(const log::LogEvent& event) {
  if (const auto* sum = std::get_if<log::KernelSummaryLine>(&event)) return !sum->summary.session;
  return std::holds_alternative<event::Notice>(event) || std::holds_alternative<event::ErrorEvent>(event) ||
         std::holds_alternative<event::HangEvent>(event) || std::holds_alternative<event::ForkEvent>(event) ||
         std::holds_alternative<log::KernelTimeLine>(event) || std::holds_alternative<log::KernelPendingLine>(event) ||
         std::holds_alternative<event::ClockEvent>(event) || std::holds_alternative<event::LevelEvent>(event);
}

// False: it is not of the recording that the log is of, and nothing of it was added.
bool scan_rest(const std::string& file, bool copy, RecoveredEvents& rest, const std::optional<event::SessionStart>& ours,
               EventTaker& taker, log::ReadStats& stats) {
  log::LogReader reader(std::vector<std::string>{file}, {});
  if (reader.open() != 0) return true;
  bool same = false;
  for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) {
    if (const auto* start = std::get_if<log::SessionStartLine>(&event)) {
      same = ours && start->session.t0_unix_ns == ours->t0_unix_ns && start->session.pid == ours->pid;
      if (!same) return false;
    }
    if (!same || (copy && is_repeated(event))) continue;
    if (RecoveredEvents::is_event(event) && !rest.take(event)) continue;
    taker.at(reader.file(), reader.line_number());
    taker.add(event);
  }
  if (same) add_stats(stats, reader.stats());
  return same;
}

// Why a file without a single event that can be read is none of ours.
std::string why_nothing(const LogInput& input, const log::ReadStats& read) {
  const std::string name = input.path == "-" ? "standard input" : "'" + report::printable(input.path) + "'";
  if (is_being_written(input.path)) return name + " is empty so far: its program is still running";
  if (read.file_bytes == 0 && read.trouble_total() == 0) return name + " is empty";
  for (const auto trouble : {log::Trouble::kOtherMajor, log::Trouble::kTruncated, log::Trouble::kUnreadableFile}) {
    if (read[trouble].count == 0) continue;
    return fmt::format("{} cannot be read as a gpuflight log: {}", name,
                       report::printable(read[trouble].first_detail.empty() ? log::trouble_name(trouble)
                                                                           : read[trouble].first_detail));
  }
  return name + " is not a gpuflight log";
}

bool scan(const std::string& path, log::LogReader& reader, analysis::LogSummary& summary, Clock::time_point deadline,
          bool progress) {
  if (const int error = reader.open(); error != 0) {
    throw Failure(fmt::format("cannot read '{}': {}", path, strerror(error)));
  }
  summary.begin_log(path);
  Progress display(progress, reader.total_file_bytes());
  log::LogEvent event;
  bool whole = true;
  for (std::uint64_t lines = 1; reader.next(event) == log::LogReader::Status::kEvent; ++lines) {
    summary.add(event);
    if (lines % kLinesBetweenLooks != 0) continue;
    display.show(reader.stats().file_bytes);
    if (Clock::now() > deadline) {
      whole = false;
      break;
    }
  }
  summary.end_log(reader.stats());
  return whole;
}

}  // namespace

bool scan_log(const std::string& path, analysis::LogSummary& summary, Clock::time_point deadline, bool progress) {
  const auto joined = open_flight_log(path);
  log::LogReader reader = joined ? log::LogReader(joined->files(), {}) : log::LogReader(path);
  return scan(path, reader, summary, deadline, progress);
}

std::vector<std::string> scan_input(const LogInput& input, analysis::LogSummary& summary, bool progress) {
  class Summary final : public EventTaker {
   public:
    explicit Summary(analysis::LogSummary& summary) : summary_(summary) {}
    void begin_log(const std::string& path) override { summary_.begin_log(path); }
    void add(const log::LogEvent& event) override { summary_.add(event); }
    void end_log(const log::ReadStats& stats) override { summary_.end_log(stats); }

   private:
    analysis::LogSummary& summary_;
  };
  Summary taker(summary);
  return scan_input(input, taker, progress);
}

std::vector<std::string> scan_input(const LogInput& input, EventTaker& taker, bool progress) {
  std::vector<std::string> remarks;
  const auto scan_apart = [&](const LogInput& other) {
    for (std::string& remark : scan_input(other, taker, progress)) remarks.push_back(std::move(remark));
  };
  std::unique_ptr<analysis::FlightLog> joined;
  if (!input.flight.empty()) {
    const bool alone = input.flight == input.path;
    analysis::RecoveryOptions options;
    if (!alone) options.log = input.path;
    try {
      joined = std::make_unique<analysis::FlightLog>(input.flight, std::move(options));
    } catch (const std::runtime_error& error) {
      if (alone) return {report::printable(error.what())};
      scan_apart({input.flight, input.flight});  // of another recording, or damaged
    }
  }
  const std::vector<std::string>& files = joined ? joined->files() : input.segments;
  if (joined && files.empty()) {
    return {fmt::format("'{}' holds no events, and its log is not there", report::printable(input.flight))};
  }
  log::LogReader reader = files.empty() ? log::LogReader(input.path) : log::LogReader(files, {});
  if (const int error = reader.open(); error != 0) {
    throw Failure(fmt::format("cannot read '{}': {}", input.path, strerror(error)));
  }
  std::vector<std::string> more = input.recovered;
  more.insert(more.end(), input.copies.begin(), input.copies.end());
  RecoveredEvents rest(more);
  bool begun = false;
  std::optional<event::SessionStart> start;
  {
    Progress display(progress, reader.total_file_bytes());
    log::LogEvent event;
    for (std::uint64_t lines = 1; reader.next(event) == log::LogReader::Status::kEvent; ++lines) {
      if (!begun) taker.begin_log(input.path);
      begun = true;
      rest.drop(event);
      const auto* const line = std::get_if<log::SessionStartLine>(&event);
      if (line != nullptr && !start) start = line->session;
      taker.at(reader.file(), reader.line_number());
      taker.add(event);
      if (lines % kLinesBetweenLooks == 0) display.show(reader.stats().file_bytes);
    }
  }
  log::ReadStats stats = reader.stats();
  std::vector<std::string> others;
  if (begun) {
    for (std::size_t i = 0; i < more.size(); ++i) {
      const bool copy = i >= input.recovered.size();
      if (!scan_rest(more[i], copy, rest, start, taker, stats)) others.push_back(more[i]);
    }
    taker.end_log(stats);
  } else {
    remarks.push_back(why_nothing(input, stats));
    others = std::move(more);
  }
  for (const std::string& file : others) scan_apart({file});
  return remarks;
}

bool scan_files(const std::string& path, const std::vector<std::string>& files, analysis::LogSummary& summary) {
  log::LogReader reader(files, {});
  return scan(path, reader, summary, Clock::time_point::max(), false);
}

}  // namespace gpuflight::cli
