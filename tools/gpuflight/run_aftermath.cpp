#include "run_aftermath.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "analysis/recovery.h"
#include "last_line.h"
#include "log/decoder.h"
#include "log_target.h"
#include "recovered_file.h"
#include "report/ledger_text.h"
#include "report/recovery_report.h"
#include "terminal.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::milliseconds(500);
// Who waits for the program's end may be a scheduler with little patience. The rest is left to `gpuflight recover`.
constexpr auto kPatience = std::chrono::seconds(10);
// What is read twice in about that time (measured: 600 MB of lines a second; compressed they are a thirtieth).
constexpr std::uint64_t kMostLogBytes = std::uint64_t{2} << 30;

std::uint64_t lines_bytes(const std::string& log_path) {
  constexpr std::uint64_t kCompression = 30;
  std::uint64_t total = 0;
  for (const std::string& segment : log::log_segments(log_path)) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(segment, error);
    if (!error) total += size * (segment.ends_with(".zst") ? kCompression : 1);
  }
  return total;
}

// What ended the program may be ending its children this very moment (Ctrl-C, a scheduler): they are given the time to
// close their logs. One that was meant to be left behind is not waited for: then the program ended well.
void await_others(const std::vector<RecordedProcess>& processes, const event::ExitEvent& end) {
  if (!end.signal && end.exit_code.value_or(0) == 0) return;
  const auto deadline = Clock::now() + kGrace;
  for (const RecordedProcess& process : processes) {
    while (!has_session_end(process.log_path) && process_lives(process.pid, 0) && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

void recover_one(UnfinishedRecording& unfinished, analysis::RecoveryOptions options) {
  options.last = 1;
  analysis::Recovery recovery(unfinished.process.flight_path, std::move(options));
  recovery.run();
  const analysis::RecoveryResult& result = recovery.result();
  unfinished.program = fs::path(result.header.program).filename().string();
  unfinished.running = result.verdict == analysis::Verdict::kRunning;
  if (unfinished.running) return;
  unfinished.recovered = result.ledger.recovered;
  unfinished.history = result.history;
  unfinished.brief = report::render_recovery_brief(recovery, terminal_width());
  unfinished.ledger = report::ledger_line(report::as_ledger(result.ledger));
  unfinished.files = log::log_segments(result.log_path);
  unfinished.written_to = write_recovered(recovery, {});
  if (!unfinished.written_to.empty()) unfinished.files.push_back(unfinished.written_to);
}

}  // namespace

std::vector<UnfinishedRecording> look_after(const std::vector<RecordedProcess>& processes, const event::ExitEvent& end,
                                            std::int64_t end_monotonic_ns, std::uint64_t start_ticks) {
  std::vector<UnfinishedRecording> all;
  await_others(processes, end);
  const auto deadline = Clock::now() + kPatience;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const RecordedProcess& process = processes[i];
    if (process.log_path.empty() || has_session_end(process.log_path)) continue;
    UnfinishedRecording& unfinished = all.emplace_back();
    unfinished.process = process;
    if (process.flight_path.empty()) {
      unfinished.problem = "it had no flight file, from which its last events could be recovered";
      continue;
    }
    if (Clock::now() > deadline || lines_bytes(process.log_path) > kMostLogBytes) {
      unfinished.problem = "reading all of it takes too long to be done now";
      continue;
    }
    analysis::RecoveryOptions options;
    options.exit = end;
    options.exit_monotonic_ns = end_monotonic_ns;
    options.exit_start_ticks = start_ticks;
    options.replaced = std::any_of(processes.begin() + static_cast<std::ptrdiff_t>(i) + 1, processes.end(),
                                   [&](const RecordedProcess& later) { return later.pid == process.pid; });
    try {
      recover_one(unfinished, std::move(options));
    } catch (const std::exception& error) {
      unfinished.problem = error.what();
      unfinished.unreadable = true;
      unfinished.files.clear();
    }
  }
  return all;
}

bool has_session_end(const std::string& log_path) { return last_session_end(log_path).is_object(); }

std::uint64_t bytes_on_disk(const std::string& path) {
  std::uint64_t total = 0;
  for (const std::string& segment : log::log_segments(path)) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(segment, error);
    if (!error) total += size;
  }
  return total;
}

}  // namespace gpuflight::cli
