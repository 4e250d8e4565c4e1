#include "log_target.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "failure.h"
#include "flight/flight_reader.h"
#include "log_input.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

std::string newest_log(const std::string& folder) {
  const std::vector<LogInput> logs = expand_logs({folder});
  return std::max_element(logs.begin(), logs.end(), [](const LogInput& a, const LogInput& b) {
           std::error_code error;
           return fs::last_write_time(a.path, error) < fs::last_write_time(b.path, error);
         })->path;
}

// The recorder keeps its flight file mapped, and that names its log; its threads may have descriptors of their own.
std::string log_of_process(const std::string& pid) {
  std::ifstream maps("/proc/" + pid + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos || !line.ends_with(".flight")) continue;
    const std::string log = log_of_flight_file(line.substr(slash));
    if (!log.empty()) return log;
  }
  std::error_code error;
  for (fs::directory_iterator task("/proc/" + pid + "/task", error), end; !error && task != end;
       task.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator fd(task->path() / "fd", inner), last; !inner && fd != last; fd.increment(inner)) {
      std::error_code unreadable;
      const std::string target = fs::read_symlink(fd->path(), unreadable).string();
      if (target.ends_with(".ndjson")) return target;
    }
  }
  return {};
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string resolve_log(const std::string& word) {
  std::error_code error;
  if (word == "-") return word;
  if (fs::is_directory(word, error)) return newest_log(word);
  if (fs::exists(word, error) || !is_number(word)) return word;
  if (!fs::exists("/proc/" + word, error)) {
    throw Failure(fmt::format("there is no process {} (and no file of that name)", word));
  }
  std::string log = log_of_process(word);
  if (log.empty()) {
    throw Failure(fmt::format("process {} writes no log that I can find: it is not recorded, has not used CUDA yet, or "
                              "belongs to someone else",
                              word));
  }
  return log;
}

std::unique_ptr<analysis::FlightLog> open_flight_log(const std::string& path) {
  if (path == "-" || !flight::FlightReader::looks_like_one(path)) return nullptr;
  try {
    return std::make_unique<analysis::FlightLog>(path);
  } catch (const std::runtime_error& error) {
    throw Failure(error.what());
  }
}

bool process_lives(long pid, unsigned long long start_ticks) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return false;
  // The name in brackets may hold anything; after the last one come state (field 3) and the rest.
  std::size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at == std::string::npos) return true;
  unsigned long long ticks = 0;
  std::from_chars(line.data() + at + 1, line.data() + line.size(), ticks);
  return start_ticks == 0 || ticks == start_ticks;
}

}  // namespace gpuflight::cli
