#include "process_end.h"

#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string_view>
#include <sys/wait.h>
#include <vector>

namespace gpuflight::cli {
namespace {

// The number behind "key " at the start of a line.
std::optional<std::uint64_t> counter_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    std::uint64_t value = 0;
    const char* const digits = line.data() + key.size() + 1;
    if (std::from_chars(digits, line.data() + line.size(), value).ec != std::errc{}) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

struct Mount {
  std::string root, point;
};

// Where a hierarchy of control groups is mounted: version 2, or the memory controller of version 1.
std::optional<Mount> find_mount(const std::string& root, bool version_2) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::string_view type = std::string_view(line).substr(dash + 3);
    if (!type.starts_with(version_2 ? "cgroup2 " : "cgroup ")) continue;
    if (!version_2 && type.find("memory", type.rfind(' ') + 1) == std::string_view::npos) continue;
    std::istringstream fields(line);  // id parent device root point
    std::string skipped;
    Mount mount;
    if (fields >> skipped >> skipped >> skipped >> mount.root >> mount.point) return mount;
  }
  return std::nullopt;
}

// Our group in that hierarchy, as /proc/self/cgroup has it: "id:controllers:path".
std::optional<std::string> own_group(const std::string& root, bool version_2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (version_2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> group_counter(const std::string& root, bool version_2) {
  const auto mount = find_mount(root, version_2);
  const auto group = own_group(root, version_2);
  if (!mount || !group) return std::nullopt;
  std::string below = *group;
  // A container may see a part of the hierarchy only.
  if (mount->root != "/" && below.starts_with(mount->root)) below = below.substr(mount->root.size());
  const std::string file = version_2 ? "/memory.events" : "/memory.oom_control";
  if (const auto found = counter_in(root + mount->point + below + file, "oom_kill")) return found;
  return std::nullopt;
}

}  // namespace

OomCounters OomCounters::now() { return in(""); }

OomCounters OomCounters::in(const std::string& root) {
  OomCounters counters;
  counters.group = group_counter(root, true);
  counters.with_descendants = counters.group.has_value();
  if (!counters.group) counters.group = group_counter(root, false);
  counters.machine = counter_in(root + "/proc/vmstat", "oom_kill");
  return counters;
}

std::optional<bool> oom_killed(int signal, const OomCounters& before, const OomCounters& after) {
  if (signal != SIGKILL) return false;  // the OOM killer knows no other
  const bool group_known = before.group && after.group;
  if (group_known && *after.group > *before.group) return true;
  if (before.machine && after.machine && *after.machine == *before.machine) return false;
  if (group_known && before.with_descendants && after.with_descendants) return false;
  return std::nullopt;
}

event::ExitEvent describe_end(const ChildResult& result, const OomCounters& before, const OomCounters& after) {
  event::ExitEvent end;
  end.pid = result.pid;
  if (!WIFSIGNALED(result.wait_status)) {
    end.exit_code = WEXITSTATUS(result.wait_status);
    end.oom_kill = false;
    return end;
  }
  const int number = WTERMSIG(result.wait_status);
  end.signal = number;
  end.signal_name = signal_name(number);
  end.core_dumped = WCOREDUMP(result.wait_status);
  end.oom_kill = oom_killed(number, before, after);
  if (sigismember(&result.passed_on, number) == 1) {
    end.signal_from = "run";
  } else if (sigismember(&result.from_terminal, number) == 1) {
    end.signal_from = "terminal";
  }
  return end;
}

std::string signal_name(int number) {
  static const std::vector<std::pair<int, const char*>> names = {
      {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},     {SIGQUIT, "SIGQUIT"},     {SIGILL, "SIGILL"},
      {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"},   {SIGBUS, "SIGBUS"},       {SIGFPE, "SIGFPE"},
      {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"},   {SIGSEGV, "SIGSEGV"},     {SIGUSR2, "SIGUSR2"},
      {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"},   {SIGTERM, "SIGTERM"},     {SIGXCPU, "SIGXCPU"},
      {SIGXFSZ, "SIGXFSZ"},     {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"},   {SIGIO, "SIGIO"},
      {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},     {SIGSTKFLT, "SIGSTKFLT"}};
  for (const auto& [known, name] : names) {
    if (known == number) return name;
  }
  return {};
}

}  // namespace gpuflight::cli
