#include "recorder/session.h"

#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

#include "config/option_table.h"
#include "config/path_pattern.h"
#include "event/schema_version.h"
#include "event/timestamp.h"
#include "recorder/secret_mask.h"

namespace gpuflight::recorder {
namespace {

std::string read_file(const char* path) {
  constexpr std::size_t kMost = 1 << 20;
  std::string text;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char piece[4096];
  for (ssize_t n = 0; text.size() < kMost && (n = read(fd, piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(n));
  }
  close(fd);
  return text;
}

std::string read_link(const char* path) {
  char text[4096];
  const ssize_t n = readlink(path, text, sizeof text - 1);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
}

// Field 22 of /proc/self/stat; the second may hold spaces and brackets.
std::uint64_t start_ticks() {
  const std::string stat = read_file("/proc/self/stat");
  auto at = stat.rfind(')');
  if (at == std::string::npos) return 0;
  for (int field = 2; field < 22; ++field) {
    at = stat.find(' ', at + 1);
    if (at == std::string::npos) return 0;
  }
  return std::strtoull(stat.c_str() + at + 1, nullptr, 10);
}

std::vector<std::string> arguments() {
  std::vector<std::string> args;
  const std::string all = read_file("/proc/self/cmdline");
  for (std::size_t at = 0; at < all.size();) {
    const auto end = all.find('\0', at);
    args.push_back(all.substr(at, end == std::string::npos ? std::string::npos : end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return args;
}

}  // namespace

ProcessFacts read_process_facts() {
  ProcessFacts facts;
  facts.program = read_link("/proc/self/exe");
  const auto slash = facts.program.rfind('/');
  facts.program_name = slash == std::string::npos ? facts.program : facts.program.substr(slash + 1);
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) facts.host = host;
  facts.rank = config::rank_of([](const char* name) -> const char* { return std::getenv(name); });
  facts.start_ticks = start_ticks();
  facts.boot_id = read_file("/proc/sys/kernel/random/boot_id");
  while (!facts.boot_id.empty() && facts.boot_id.back() == '\n') facts.boot_id.pop_back();
  return facts;
}

event::SessionStart describe_session(const ProcessFacts& process, const config::Options& options,
                                     std::int64_t t0_unix_ns, std::int64_t t0_monotonic_ns) {
  event::SessionStart session;
  session.library_version = event::kLibraryVersion;
  session.program = process.program;
  auto masked = mask_arguments(arguments(), options.mask_args);
  session.args = std::move(masked.args);
  session.args_masked = masked.masked;
  session.cwd = read_link("/proc/self/cwd");
  session.pid = getpid();
  session.ppid = getppid();
  session.process_start_ticks = process.start_ticks;
  session.boot_id = process.boot_id;
  session.host = process.host;
  if (const char* const user = std::getenv("USER")) session.user = user;
  session.t0_unix_ns = t0_unix_ns;
  session.t0_monotonic_ns = t0_monotonic_ns;
  session.t0_rfc3339 = event::rfc3339(t0_unix_ns);
  for (const char* const name :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "SLURM_PROCID", "SLURM_LOCALID",
        "SLURM_NTASKS", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"}) {
    if (const char* const value = std::getenv(name)) session.rank.emplace_back(name, value);
  }
  for (const config::OptionRow& row : config::option_table()) {
    session.configuration.emplace_back(row.key, config::option_text(options, row));
  }
  session.mode = options.mode == config::Mode::kBlackbox ? "blackbox" : "stream";
  return session;
}

}  // namespace gpuflight::recorder
