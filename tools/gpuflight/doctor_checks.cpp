#include "doctor_checks.h"

#include <fmt/format.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "config/option_table.h"
#include "config/path_pattern.h"
#include "failure.h"
#include "library_path.h"
#include "report/kernel_name.h"
#include "report/quantity.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return report::printable(line);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

config::Options options_in_force(config::Problems& problems) {
  config::Options options;
  config::parse_environment(environ, options, problems);
  return options;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

struct FileSystem {
  const char* name;
  const char* drawback;  // nullptr: a good place
};

FileSystem file_system_of(const fs::path& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return {"unknown", nullptr};
  switch (static_cast<unsigned long>(info.f_type)) {
    case 0xEF53:
      return {"ext4", nullptr};
    case 0x58465342:
      return {"xfs", nullptr};
    case 0x01021994:
      return {"tmpfs", "it lies in memory, counts as such and is gone with the machine or the pod"};
    case 0x9123683E:
      return {"btrfs", "a copy-on-write file system can run out of room under a mapped file"};
    case 0x2FC12FC1:
      return {"zfs", "a copy-on-write file system can run out of room under a mapped file"};
    case 0x794C7630:
      return {"overlayfs", nullptr};
    case 0x6969:
      return {"nfs", "a network file system makes writers wait and cannot promise room for a mapped file"};
    case 0xFF534D42:
      return {"cifs", "a network file system makes writers wait and cannot promise room"};
    case 0x0BD00BD0:
      return {"lustre", "a network file system makes writers wait"};
    case 0x65735546:
      return {"fuse", "what lies behind it is unknown; a mapped file may not be possible"};
    default:
      return {"other", nullptr};
  }
}

fs::path existing_parent(fs::path folder) {
  while (!is_there(folder) && folder.has_parent_path() && folder != folder.parent_path()) folder = folder.parent_path();
  return folder;
}

// Rights alone do not tell: read-only mounts, quotas and file systems of the kernel's own say no for other reasons.
bool takes_files(const fs::path& folder) {
  std::string name = (folder / ".gpuflight-XXXXXX").string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return false;
  ::close(fd);
  ::unlink(name.c_str());
  return true;
}

void check_room(Findings& findings, const fs::path& place, const config::Options& options) {
  struct statvfs room {};
  if (::statvfs(place.c_str(), &room) != 0) return;
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  // Tables and strings of the flight file beside its pool; the log needs a segment at least.
  const std::uint64_t flight = options.pool_bytes + (std::uint64_t{32} << 20);
  const std::uint64_t wanted = flight + std::max(options.log_max_bytes, options.log_segment_bytes);
  Finding finding{"room", Health::kFine,
                  fmt::format("{} free, at most {} are used", report::bytes_text(free), report::bytes_text(wanted)),
                  ""};
  if (options.log_max_bytes == 0)
    finding.found = fmt::format("{} free, the log has no bound", report::bytes_text(free));
  if (free < flight + options.log_segment_bytes) {
    finding.health = Health::kPrevents;
    finding.remedy = "make room, write elsewhere (GPUFLIGHT_LOG) or take less (GPUFLIGHT_LOG_MAX, GPUFLIGHT_POOL)";
  } else if (free < wanted) {
    finding.health = Health::kWarning;
    finding.remedy = "set GPUFLIGHT_LOG_MAX below the room there is, or write elsewhere (GPUFLIGHT_LOG)";
  }
  findings.push_back(finding);
}

}  // namespace

const char* health_name(Health health) {
  constexpr std::array kNames = {"ok", "note", "warning", "prevents"};
  return kNames[static_cast<std::size_t>(health)];
}

Findings check_library() {
  try {
    const LibraryPath library = find_library();
    if (library.path.empty()) {
      return {{"library", Health::kPrevents,
               fmt::format("libgpuflight.so not found in {}", fmt::join(library.searched, ", ")),
               "set GPUFLIGHT_LIB to its path"}};
    }
    const std::string version = library_version(library.path);
    if (version.empty()) {
      return {{"library", Health::kPrevents, fmt::format("{} cannot be loaded", library.path),
               "it was built for another machine or a newer C library: build it here, or set GPUFLIGHT_LIB"}};
    }
    const bool same = version == GPUFLIGHT_VERSION;
    return {{"library", same ? Health::kFine : Health::kWarning, fmt::format("{} {}", library.path, version),
             same ? "" : fmt::format("this tool is {}: use the library that came with it", GPUFLIGHT_VERSION)}};
  } catch (const Failure& failure) {
    return {{"library", Health::kPrevents, failure.what(), "correct GPUFLIGHT_LIB or unset it"}};
  }
}

Findings check_variables() {
  Findings findings;
  config::Problems problems;
  const config::Options options = options_in_force(problems);
  for (const std::string& line : problems.lines) {
    findings.push_back({"options", Health::kWarning, line, "'gpuflight run --help' lists the options"});
  }
  if (!options.enabled) {
    findings.push_back({"options", Health::kPrevents, "GPUFLIGHT_ENABLED switches the recorder off", "unset it"});
  }
  if (findings.empty()) {
    findings.push_back(
        {"options", Health::kFine,
         fmt::format("{} mode, occupancy {}", options.mode == config::Mode::kStream ? "stream" : "blackbox",
                     options.details ? "on" : "off"),
         ""});
  }
  const std::string injection = variable("CUDA_INJECTION64_PATH");
  if (!injection.empty() && injection.find("libgpuflight") == std::string::npos) {
    findings.push_back({"injection", Health::kPrevents,
                        fmt::format("CUDA_INJECTION64_PATH is another tool's: {}", report::printable(injection)),
                        "the driver loads one library only: unset it, or do without that tool"});
  }
  const std::string nvtx = variable("NVTX_INJECTION64_PATH");
  if (!nvtx.empty() && nvtx.find("libgpuflight") == std::string::npos) {
    findings.push_back({"nvtx", Health::kNote,
                        fmt::format("NVTX ranges go to another tool: {}", report::printable(nvtx)),
                        ""});
  }
  const std::string preload = variable("LD_PRELOAD");
  if (!preload.empty()) {
    findings.push_back(
        {"preload", Health::kNote, fmt::format("LD_PRELOAD is set and kept: {}", report::printable(preload)), ""});
  }
  return findings;
}

Findings check_loader_path() {
  Findings findings;
  for (const std::string& folder : split(variable("LD_LIBRARY_PATH"), ':')) {
    const fs::path resolved = fs::path(folder).lexically_normal();
    const bool stubs = resolved.filename() == "stubs" || resolved.parent_path().filename() == "stubs";
    if (!stubs || !(is_there(resolved / "libcuda.so") || is_there(resolved / "libcuda.so.1"))) continue;
    const bool harmful = is_there(resolved / "libcuda.so.1");
    findings.push_back({"stubs", harmful ? Health::kPrevents : Health::kWarning,
                        fmt::format("LD_LIBRARY_PATH has {}, whose libcuda is for linking only and drives nothing",
                                    report::printable(folder)),
                        "take that folder out of LD_LIBRARY_PATH; -L at link time is its only use"});
  }
  return findings;
}

Findings check_driver_files() {
  Findings findings;
  const std::string version = first_line("/proc/driver/nvidia/version");
  std::size_t devices = 0;
  std::error_code error;
  for (fs::directory_iterator it("/dev", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    devices += name.starts_with("nvidia") && name.size() > 6 && name[6] >= '0' && name[6] <= '9' ? 1 : 0;
  }
  if (version.empty()) {
    findings.push_back({"kernel_driver", Health::kNote, "no NVIDIA kernel driver is loaded here",
                        "recording needs a machine with a GPU (or the simulated device)"});
  } else {
    findings.push_back({"kernel_driver", Health::kFine, version, ""});
    if (devices == 0) {
      findings.push_back({"device_files", Health::kWarning, "the driver is loaded but there is no /dev/nvidia0",
                          "in a container: start it with its GPUs (docker run --gpus all)"});
    }
  }
  std::ifstream params("/proc/driver/nvidia/params");
  for (std::string line; std::getline(params, line);) {
    if (line.starts_with("RmProfilingAdminOnly: 1")) {
      findings.push_back({"counters", Health::kNote, "hardware counters are for administrators only",
                          "launches and occupancy need none and are recorded all the same; other tools want the driver "
                          "loaded with NVreg_RestrictProfilingToAdminUsers=0"});
    } else if (line.starts_with("RmProfilingAdminOnly: 0")) {
      findings.push_back({"counters", Health::kFine, "hardware counters are open to every user", ""});
    }
  }
  return findings;
}

Findings check_log_folder() {
  Findings findings;
  config::Problems problems;
  const config::Options options = options_in_force(problems);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  config::PatternFields fields;
  fields.pid = static_cast<std::uint64_t>(::getpid());
  fields.host = host;
  fields.program = "PROGRAM";
  fields.rank = config::rank_of(get);
  fields.variable = get;
  const config::ExpandResult log = config::expand(options.log, fields);
  if (!log.error.empty()) {
    return {{"log_folder", Health::kPrevents, log.error, "correct GPUFLIGHT_LOG"}};
  }
  std::error_code error;
  const fs::path folder = fs::absolute(log.path, error).parent_path();
  const fs::path place = existing_parent(folder);
  const bool writable = takes_files(place);
  const FileSystem system = file_system_of(place);
  Finding finding{"log_folder", Health::kFine, fmt::format("{} ({})", folder.string(), system.name), ""};
  if (!writable) {
    finding.health = Health::kPrevents;
    finding.found += fmt::format(": {} cannot be written", place.string());
    finding.remedy = "write elsewhere: GPUFLIGHT_LOG=/somewhere/%e.%p.ndjson, or --log of run";
  } else if (system.drawback != nullptr) {
    finding.health = Health::kNote;
    finding.found += fmt::format(": {}", system.drawback);
    finding.remedy = "a local ext4 or xfs folder is better, at least for the flight file (GPUFLIGHT_FLIGHT)";
  }
  findings.push_back(finding);
  if (writable) check_room(findings, place, options);

  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    findings.push_back({"file_size", limit.rlim_cur < options.log_segment_bytes ? Health::kWarning : Health::kNote,
                        fmt::format("files may not grow beyond {} (ulimit -f)", report::bytes_text(limit.rlim_cur)),
                        "raise the limit, or set GPUFLIGHT_LOG_SEGMENT and GPUFLIGHT_POOL below it"});
  }
  return findings;
}

Findings check_container() {
  const bool container = is_there("/.dockerenv") || is_there("/run/.containerenv") ||
                         !variable("KUBERNETES_SERVICE_HOST").empty() || !variable("container").empty();
  if (!container) return {};
  Findings findings{
      {"container", Health::kNote, "this is a container: logs go with it unless they lie in a volume", ""}};
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    const std::uint64_t size = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    if (size <= std::uint64_t{64} << 20) {
      findings.push_back({"shm", Health::kNote, fmt::format("/dev/shm holds only {}", report::bytes_text(size)),
                          "do not put the flight file there, or start the container with --shm-size=1g"});
    }
  }
  return findings;
}

std::vector<CuptiFile> cupti_files() {
  std::vector<CuptiFile> files;
  std::set<std::string> seen;
  const auto add_folder = [&](const fs::path& folder, const std::string& reason) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!name.starts_with("libcupti.so.")) continue;
      std::error_code unresolved;
      const fs::path real = fs::canonical(it->path(), unresolved);
      if (!unresolved && seen.insert(real.string()).second) files.push_back({it->path().string(), reason});
    }
  };
  const auto add_toolkit = [&](const fs::path& root, const std::string& reason) {
    for (const char* sub :
         {"extras/CUPTI/lib64", "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
      add_folder(root / sub, reason);
    }
  };
  if (const std::string named = variable("GPUFLIGHT_CUPTI"); !named.empty() && is_there(named)) {
    files.push_back({named, "GPUFLIGHT_CUPTI"});
    std::error_code error;
    seen.insert(fs::canonical(named, error).string());
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string root = variable(name); !root.empty()) add_toolkit(root, std::string("toolkit in ") + name);
  }
  for (const std::string& folder : split(variable("LD_LIBRARY_PATH"), ':')) add_folder(folder, "LD_LIBRARY_PATH");
  std::error_code error;
  for (fs::directory_iterator it("/usr/local", error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with("cuda"))
      add_toolkit(it->path(), "toolkit in " + it->path().string());
  }
  if (const std::string venv = variable("VIRTUAL_ENV"); !venv.empty()) {
    std::error_code missing;
    for (fs::directory_iterator it(fs::path(venv) / "lib", missing), end; !missing && it != end;
         it.increment(missing)) {
      for (const char* sub : {"nvidia/cu13/lib", "nvidia/cuda_cupti/lib"}) {
        add_folder(it->path() / "site-packages" / sub, "pip package");
      }
    }
  }
  return files;
}

}  // namespace gpuflight::cli
