#include "run_summary.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analysis/log_summary.h"
#include "failure.h"
#include "last_line.h"
#include "log_scan.h"
#include "process_end.h"
#include "report/incident_text.h"
#include "report/kernel_name.h"
#include "report/ledger_text.h"
#include "report/quantity.h"
#include "terminal.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Nobody waits long for a summary: of a log too big to read in this time only a part is told, and that is said.
constexpr auto kReadingTime = std::chrono::milliseconds(1500);
constexpr std::size_t kMostLogsNamed = 4;

std::string shown_path(const std::string& path) {
  std::error_code error;
  const fs::path relative = fs::path(path).lexically_relative(fs::current_path(error));
  const bool inside = !error && !relative.empty() && *relative.begin() != "..";
  return report::printable(inside ? relative.string() : path);
}

// For the shell, where the name needs it.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=+,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string common_folder(const std::vector<RecordedProcess>& processes) {
  const fs::path folder = fs::path(processes.front().log_path).parent_path();
  for (const RecordedProcess& process : processes) {
    if (fs::path(process.log_path).parent_path() != folder) return {};
  }
  return shown_path(folder.string());
}

// A shell gives its own caller 128 + n when signal n ended what it ran.
std::string of_a_shell(std::int32_t code) {
  const std::string name = code > 128 ? signal_name(code - 128) : std::string();
  return name.empty() ? name : fmt::format(", as a shell does when {} ended what it ran", name);
}

std::string how_it_ended(const event::ExitEvent& end, bool unfinished) {
  const std::int32_t code = end.exit_code.value_or(0);
  if (!end.signal && code == 0 && !unfinished) return {};
  return fmt::format("gpuflight: the program {}{}{}\n", end.signal ? "was " : "", report::exit_text(end),
                     end.signal ? "" : of_a_shell(code));
}

std::string nothing_recorded(const std::vector<std::string>& remarks) {
  if (!remarks.empty()) return "gpuflight: nothing was recorded, see above\n";
  return "gpuflight: nothing was recorded: no process of this run used CUDA, or each was left out (GPUFLIGHT_ENABLED,\n"
         "gpuflight: _INCLUDE, _EXCLUDE), could not write its log (it says so above), or had cleared LD_PRELOAD and\n"
         "gpuflight: CUDA_INJECTION64_PATH (sudo, env -i, a container); 'gpuflight doctor' looks for other reasons\n";
}

struct Scanned {
  analysis::LogSummary summary{analysis::GroupBy::kKernel};
  std::vector<RecordedProcess> logs;  // those that could be read
  bool whole = true;
};

const UnfinishedRecording* find(const std::vector<UnfinishedRecording>& all, const RecordedProcess& process) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const UnfinishedRecording& unfinished) {
    return unfinished.process.log_path == process.log_path;
  });
  return found == all.end() ? nullptr : &*found;
}

Scanned scan(const std::vector<RecordedProcess>& processes, const std::vector<UnfinishedRecording>& unfinished,
             std::string& out) {
  Scanned scanned;
  const auto deadline = Clock::now() + kReadingTime;
  for (const RecordedProcess& process : processes) {
    if (process.log_path.empty()) continue;
    const UnfinishedRecording* const cut = find(unfinished, process);
    try {
      // What was recovered has been read once already: the time it takes is known to be short enough.
      const bool whole = cut != nullptr && !cut->files.empty() ? scan_files(process.log_path, cut->files, scanned.summary)
                                                               : scan_log(process.log_path, scanned.summary, deadline);
      scanned.whole = scanned.whole && whole;
      scanned.logs.push_back(process);
    } catch (const Failure& failure) {
      out += fmt::format("gpuflight: {}\n", failure.what());
    }
  }
  return scanned;
}

std::uint64_t number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

event::Ledger ledger_in(const nlohmann::json& end) {
  event::Ledger ledger;
  ledger.seen = number(end, "seen");
  ledger.written = number(end, "written");
  ledger.summarised = number(end, "summarised");
  ledger.pending = number(end, "pending");
  ledger.rotated_away = number(end, "rotated_away");
  ledger.null_time = number(end, "null_time");
  ledger.table_full = number(end, "table_full");
  const nlohmann::json causes = end.value("lost_by_cause", nlohmann::json::object());
  for (int i = 0; i < event::kLossCauseCount; ++i) ledger.lost[i] = number(causes, event::kLossCauseNames[i]);
  return ledger;
}

struct Counts {
  std::uint64_t launches = 0, graphs = 0, failed = 0, lost = 0;
  bool exact = true;
};

Counts count(const Scanned& scanned) {
  Counts counts;
  for (std::size_t i = 0; i < scanned.logs.size(); ++i) {
    const analysis::LogFacts& log = scanned.summary.logs()[i];
    const nlohmann::json end = scanned.whole ? nlohmann::json() : last_session_end(scanned.logs[i].log_path);
    if (end.is_object()) {
      counts.launches += number(end, "launches");
      counts.graphs += number(end, "graph_launches");
      counts.failed += number(end, "failed");
      counts.lost += number(end, "lost");
      continue;
    }
    counts.exact = counts.exact && scanned.whole;
    counts.launches += log.launches;
    counts.graphs += log.graph_launches;
    counts.failed += log.failed;
    counts.lost += log.lost();
  }
  return counts;
}

// What kept a recorder from its work, or from half of it, of the first process that has something to say.
std::string first_error(const Scanned& scanned) {
  for (const analysis::LogFacts& log : scanned.summary.logs()) {
    for (const event::Notice& notice : log.notices) {
      const bool half = notice.code == "no_gpu_times" && log.launches > 0;
      if (notice.severity == event::Severity::kError || half) {
        return fmt::format("gpuflight: {}\n", report::printable(notice.message));
      }
    }
  }
  return {};
}

// A budget for the recorder's own cost that could not be kept.
std::string unattainable_budget(const Scanned& scanned) {
  for (const analysis::LogFacts& log : scanned.summary.logs()) {
    for (const event::Notice& notice : log.notices) {
      if (notice.code == "budget_unattainable") return fmt::format("gpuflight: {}\n", report::printable(notice.message));
    }
  }
  for (std::size_t i = 0; i < scanned.logs.size() && !scanned.whole; ++i) {
    const std::string late = late_notice(scanned.logs[i].log_path, "budget_unattainable");
    if (!late.empty()) return fmt::format("gpuflight: {}\n", report::printable(late));
  }
  return {};
}

// "; most are limited by warps", or, where none has more than half, those that have most.
std::string limiters_text(const std::array<std::uint64_t, event::kLimiterCount>& limited_by) {
  constexpr std::size_t kMostNamed = 3;
  std::vector<std::pair<std::uint64_t, const char*>> order;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < limited_by.size(); ++i) {
    if (limited_by[i] > 0) order.emplace_back(limited_by[i], event::kLimiterNames[i]);
    all += limited_by[i];
  }
  if (order.empty()) return {};
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (order.size() == 1) return fmt::format("; all are limited by {}", order.front().second);
  if (order.front().first * 2 > all) return fmt::format("; most are limited by {}", order.front().second);
  std::string text;
  for (std::size_t i = 0; i < order.size() && i < kMostNamed; ++i) {
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", order[i].second, report::count_text(order[i].first));
  }
  return "; limited by " + text;
}

std::string headline(const Scanned& scanned) {
  const Counts counts = count(scanned);
  const std::size_t kernels = scanned.summary.kernels(), processes = scanned.logs.size();
  std::string text = fmt::format("{}{} launch{} of {} kernel{} in {} process{}", counts.exact ? "" : "more than ",
                                 report::count_text(counts.launches), counts.launches == 1 ? "" : "es",
                                 report::count_text(kernels), kernels == 1 ? "" : "s", processes,
                                 processes == 1 ? "" : "es");
  if (counts.graphs > 0) text += fmt::format(", {} graph launches", report::count_text(counts.graphs));
  text += limiters_text(scanned.summary.totals().limited_by);
  if (counts.failed > 0) text += fmt::format("; {} failed", report::count_text(counts.failed));
  if (counts.lost > 0) text += fmt::format("; {} events lost", report::count_text(counts.lost));
  return text;
}

// What went wrong on the GPU, of recordings that ended in order: of the others the verdict tells it.
std::string incidents(const Scanned& scanned, const std::vector<UnfinishedRecording>& unfinished) {
  constexpr std::size_t kMostTold = 3;
  report::KernelNames names(terminal_width() / 2);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < scanned.logs.size(); ++i) {
    if (find(unfinished, scanned.logs[i]) != nullptr) continue;
    const analysis::LogFacts& log = scanned.summary.logs()[i];
    for (const event::ErrorEvent& error : log.errors) lines.push_back("error: " + report::error_text(error, names));
    for (const analysis::LogFacts::Hang& hang : log.hangs) {
      if (!hang.end_ns) lines.push_back("hang: " + report::hang_text(hang.begin, names));
    }
  }
  std::string out;
  for (std::size_t i = 0; i < lines.size() && i < kMostTold; ++i) out += "gpuflight: " + lines[i] + "\n";
  if (lines.size() > kMostTold) out += fmt::format("gpuflight: and {} errors and hangs more\n", lines.size() - kMostTold);
  return out;
}

std::string named(const UnfinishedRecording& unfinished) {
  return unfinished.program.empty() ? fmt::format("process {}", unfinished.process.pid)
                                    : fmt::format("process {} ({})", unfinished.process.pid,
                                                  report::printable(unfinished.program));
}

std::string recovered_text(const UnfinishedRecording& unfinished) {
  if (unfinished.written_to.empty()) return "all its events are in its log";
  std::string text = fmt::format("{} events that had not reached its log", report::count_text(unfinished.recovered));
  if (unfinished.history > 0) {
    text += fmt::format(" and the last {} that it has in summaries only", report::count_text(unfinished.history));
  }
  return text + " are in " + shown_path(unfinished.written_to);
}

std::string about(const std::vector<UnfinishedRecording>& all) {
  constexpr std::size_t kMostTold = 3;
  std::string out;
  std::size_t told = 0, cut = 0;
  for (const UnfinishedRecording& unfinished : all) {
    if (unfinished.running) {
      out += fmt::format("gpuflight: {} still runs and is recorded\n", named(unfinished));
      continue;
    }
    ++cut;
    if (told >= kMostTold) continue;
    ++told;
    if (!unfinished.problem.empty()) {
      out += fmt::format("gpuflight: {} did not end its recording: {}\n", named(unfinished),
                         report::printable(unfinished.problem));
      continue;
    }
    out += fmt::format("gpuflight: {} did not end its recording; {}\n", named(unfinished), recovered_text(unfinished));
    for (const std::string& line : unfinished.brief) out += "gpuflight:   " + line + "\n";
  }
  if (cut > told) out += fmt::format("gpuflight: {} processes more did not end their recordings\n", cut - told);
  return out;
}

// Of all recordings together; those that are cut short by what was recovered.
std::string ledger_of(const Scanned& scanned, const std::vector<UnfinishedRecording>& unfinished) {
  std::string out;
  const bool several = scanned.logs.size() > 1;
  for (std::size_t i = 0; i < scanned.logs.size(); ++i) {
    const UnfinishedRecording* const cut = find(unfinished, scanned.logs[i]);
    const analysis::LogFacts& log = scanned.summary.logs()[i];
    std::string line;
    if (cut != nullptr) {
      line = cut->ledger;
    } else if (log.end) {
      line = report::ledger_line(log.end->ledger);
    } else if (const nlohmann::json end = last_session_end(scanned.logs[i].log_path); end.is_object()) {
      line = report::ledger_line(ledger_in(end));
    }
    if (line.empty()) continue;
    out += fmt::format("gpuflight: {}{}\n", line, several ? fmt::format(" (process {})", scanned.logs[i].pid) : "");
  }
  return out;
}

// What to do next: look at what is left of a program that was cut short, else at the report.
std::string next_command(const std::vector<UnfinishedRecording>& unfinished, const std::string& report_words) {
  for (const UnfinishedRecording& cut : unfinished) {
    if (cut.running || cut.process.flight_path.empty() || cut.unreadable) continue;
    return "gpuflight recover " + shell_word(shown_path(cut.process.flight_path));
  }
  return "gpuflight report " + report_words;
}

}  // namespace

std::string run_summary(const std::vector<RecordedProcess>& processes, const event::ExitEvent& end,
                        const std::vector<UnfinishedRecording>& unfinished, const std::vector<std::string>& remarks) {
  std::string out = how_it_ended(end, !unfinished.empty());
  const Scanned scanned = scan(processes, unfinished, out);
  if (scanned.logs.empty()) return out + (processes.empty() ? nothing_recorded(remarks) : std::string());
  out += first_error(scanned);
  out += unattainable_budget(scanned);
  out += "gpuflight: " + headline(scanned) + "\n";
  out += incidents(scanned, unfinished);
  out += about(unfinished);

  std::uint64_t bytes = 0;
  for (const RecordedProcess& process : scanned.logs) bytes += bytes_on_disk(process.log_path);
  const std::string folder = common_folder(scanned.logs);
  std::string next;
  if (scanned.logs.size() == 1) {
    const std::string path = shown_path(scanned.logs.front().log_path);
    out += fmt::format("gpuflight: log {} ({})\n", path, report::bytes_text(bytes));
    next = shell_word(path);
  } else {
    const std::size_t named = std::min(scanned.logs.size(), kMostLogsNamed);
    std::string list;
    for (std::size_t i = 0; i < named; ++i) {
      const std::string word = shell_word(shown_path(scanned.logs[i].log_path));
      list += (i == 0 ? "" : " ") + word;
    }
    const std::size_t more = scanned.logs.size() - named;
    out += fmt::format("gpuflight: logs {}{} ({})\n", list, more > 0 ? fmt::format(" and {} more", more) : "",
                       report::bytes_text(bytes));
    next = more > 0 && !folder.empty() ? shell_word(folder) : list;
  }
  out += fmt::format("gpuflight: next: {}\n", next_command(unfinished, next));
  return out + ledger_of(scanned, unfinished);
}

}  // namespace gpuflight::cli
