#include "run_summary.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analysis/log_summary.h"
#include "failure.h"
#include "log/decoder.h"
#include "log_scan.h"
#include "report/kernel_name.h"
#include "report/kernel_report.h"
#include "report/quantity.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Nobody waits long for a summary: of a log too big to read in this time only a part is told, and that is said.
constexpr auto kReadingTime = std::chrono::milliseconds(1500);
constexpr std::size_t kMostLogsNamed = 4;

std::uint64_t bytes_on_disk(const std::string& path) {
  std::uint64_t total = 0;
  for (const std::string& segment : log::log_segments(path)) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(segment, error);
    if (!error) total += size;
  }
  return total;
}

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

std::string how_it_ended(const ChildResult& result) {
  if (!WIFSIGNALED(result.wait_status)) return {};
  const int number = WTERMSIG(result.wait_status);
  return fmt::format("gpuflight: the program was ended by signal {} ({})\n", number, strsignal(number));
}

std::string nothing_recorded(const std::vector<std::string>& remarks) {
  if (!remarks.empty()) return "gpuflight: nothing was recorded, see above\n";
  return "gpuflight: nothing was recorded: no process of this run used CUDA, or each had cleared LD_PRELOAD and\n"
         "gpuflight: CUDA_INJECTION64_PATH (sudo, env -i, a container); 'gpuflight doctor' looks for other reasons\n";
}

struct Scanned {
  analysis::LogSummary summary{analysis::GroupBy::kKernel};
  std::vector<RecordedProcess> logs;  // those that could be read
  bool whole = true;
};

Scanned scan(const std::vector<RecordedProcess>& processes, std::string& out) {
  Scanned scanned;
  const auto deadline = Clock::now() + kReadingTime;
  for (const RecordedProcess& process : processes) {
    if (process.log_path.empty()) continue;
    try {
      scanned.whole = scan_log(process.log_path, scanned.summary, deadline) && scanned.whole;
      scanned.logs.push_back(process);
    } catch (const Failure& failure) {
      out += fmt::format("gpuflight: {}\n", failure.what());
    }
  }
  return scanned;
}

// The end of a log, without reading what is before it: for a log too big to be read now.
nlohmann::json last_line(const std::string& path) {
  constexpr std::streamoff kMostBytes = 16 << 10;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return {};
  file.seekg(std::max<std::streamoff>(0, size - kMostBytes));
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  nlohmann::json line = nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  return line.is_object() && line.value("type", "") == "session_end" ? line : nlohmann::json();
}

std::uint64_t number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

struct Counts {
  std::uint64_t launches = 0, graphs = 0, failed = 0, lost = 0;
  bool exact = true;
};

Counts count(const Scanned& scanned) {
  Counts counts;
  for (std::size_t i = 0; i < scanned.logs.size(); ++i) {
    const analysis::LogFacts& log = scanned.summary.logs()[i];
    const nlohmann::json end = scanned.whole ? nlohmann::json() : last_line(scanned.logs[i].log_path);
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

// What kept a recorder from its work, of the first process that has something to say.
std::string first_error(const Scanned& scanned) {
  for (const analysis::LogFacts& log : scanned.summary.logs()) {
    for (const event::Notice& notice : log.notices) {
      if (notice.severity == event::Severity::kError) {
        return fmt::format("gpuflight: {}\n", report::printable(notice.message));
      }
    }
  }
  return {};
}

std::string headline(const Scanned& scanned) {
  const Counts counts = count(scanned);
  const std::size_t kernels = scanned.summary.kernels(), processes = scanned.logs.size();
  std::string text = fmt::format("{}{} launch{} of {} kernel{} in {} process{}", counts.exact ? "" : "more than ",
                                 report::count_text(counts.launches), counts.launches == 1 ? "" : "es",
                                 report::count_text(kernels), kernels == 1 ? "" : "s", processes,
                                 processes == 1 ? "" : "es");
  if (counts.graphs > 0) text += fmt::format(", {} graph launches", report::count_text(counts.graphs));
  if (const auto limiter = scanned.summary.totals().main_limiter()) {
    text += fmt::format("; most are limited by {}", event::kLimiterNames[static_cast<std::size_t>(*limiter)]);
  }
  if (counts.failed > 0) text += fmt::format("; {} failed", report::count_text(counts.failed));
  if (counts.lost > 0) text += fmt::format("; {} events lost", report::count_text(counts.lost));
  return text;
}

}  // namespace

std::string run_summary(const std::vector<RecordedProcess>& processes, const ChildResult& result,
                        const std::vector<std::string>& remarks) {
  std::string out = how_it_ended(result);
  const Scanned scanned = scan(processes, out);
  if (scanned.logs.empty()) return out + (processes.empty() ? nothing_recorded(remarks) : std::string());
  out += first_error(scanned);
  out += "gpuflight: " + headline(scanned) + "\n";

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
  return out + fmt::format("gpuflight: next: gpuflight report {}\n", next);
}

}  // namespace gpuflight::cli
