#include "analysis/process_state.h"

#include <charconv>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace gpuflight::analysis {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// The name in brackets (field 2) may hold anything; behind the last bracket come state (field 3) and the rest.
bool is_same_and_alive(const std::string& stat, std::uint64_t start_ticks) {
  std::size_t at = stat.rfind(')');
  if (at == std::string::npos || at + 2 >= stat.size()) return false;
  const char state = stat[at + 2];
  if (state == 'Z' || state == 'X') return false;
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return false;
  std::uint64_t ticks = 0;
  std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  return start_ticks == 0 || ticks == start_ticks;
}

// False only if we can see the process's maps and the file is not among them.
bool may_map(const std::string& maps_path, const std::string& file) {
  std::ifstream maps(maps_path);
  if (!maps) return true;
  const std::unique_ptr<char, decltype(&std::free)> whole(realpath(file.c_str(), nullptr), &std::free);
  const std::string path = whole ? whole.get() : file;
  struct stat info{};
  const std::string inode = stat(file.c_str(), &info) == 0 ? std::to_string(info.st_ino) : "";
  bool any = false;
  for (std::string line; std::getline(maps, line);) {
    any = true;
    // address perms offset dev inode path; on stacked file systems device numbers differ, inode and path do not both
    std::string_view rest = line;
    for (int field = 0; field < 4; ++field) {
      const std::size_t blank = rest.find(' ');
      if (blank == std::string_view::npos) break;
      rest.remove_prefix(blank + 1);
    }
    const std::string_view its_inode = rest.substr(0, rest.find(' '));
    if (!inode.empty() && its_inode == inode) return true;
    const std::size_t slash = rest.find('/');
    if (slash != std::string_view::npos && rest.substr(slash).starts_with(path)) return true;
  }
  return !any;
}

// The process's number here, when it has another where it was recorded: in a container, whose processes are ours too
// when seen from outside. 0: there is none.
// Two containers may have a process of the same number and hundredth of a second: then the file decides.
std::int64_t number_here(const ProcessKey& key) {
  if (key.start_ticks == 0) return 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!is_same_and_alive(first_line(it->path().string() + "/stat"), key.start_ticks)) continue;
    std::ifstream status(it->path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("NSpid:")) continue;
      // Outermost first: ours, and at the end its own.
      if (std::strtoll(line.c_str() + line.find_last_of(" \t"), nullptr, 10) != key.pid) break;
      if (!key.mapped_file.empty() && !may_map(it->path().string() + "/maps", key.mapped_file)) break;
      return std::strtoll(name.c_str(), nullptr, 10);
    }
  }
  return 0;
}

}  // namespace

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

ProcessState look_for_process(const ProcessKey& key) {
  const std::string boot_id = first_line("/proc/sys/kernel/random/boot_id");
  const bool same_host = key.host.empty() || key.host == host_name();
  if (!key.boot_id.empty() && !boot_id.empty() && key.boot_id != boot_id) {
    return same_host ? ProcessState::kRebooted : ProcessState::kElsewhere;
  }
  if (key.pid <= 0) return ProcessState::kGone;
  std::string folder = "/proc/" + std::to_string(key.pid);
  if (!is_same_and_alive(first_line(folder + "/stat"), key.start_ticks)) {
    if (const std::int64_t here = number_here(key); here > 0) {
      folder = "/proc/" + std::to_string(here);
    }
  }
  if (!is_same_and_alive(first_line(folder + "/stat"), key.start_ticks)) {
    return same_host ? ProcessState::kGone : ProcessState::kElsewhere;
  }
  if (!key.mapped_file.empty() && !may_map(folder + "/maps", key.mapped_file)) return ProcessState::kReplaced;
  return ProcessState::kRunning;
}

}  // namespace gpuflight::analysis
