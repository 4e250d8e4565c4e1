// gpuflight dump, pause, resume and timing: commands to a running recorder, written into the control word of its flight file.
// No socket and no signal: whoever may write the file may command.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "command_line.h"
#include "event/schema_version.h"
#include "failure.h"
#include "flight/layout.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

using flight::ControlCommand;
using flight::ControlResult;

// The flight file that a process has mapped; the map names it also where it has been moved.
std::string flight_file_of(const std::string& pid) {
  const std::string path = "/proc/" + pid + "/maps";
  std::ifstream maps(path);
  if (!maps) {
    throw Failure(access(("/proc/" + pid).c_str(), F_OK) == 0
                      ? fmt::format("process {}: not allowed to look at it; run as its user or as root", pid)
                      : fmt::format("no process {}", pid));
  }
  for (std::string line; std::getline(maps, line);) {
    const auto at = line.find('/');
    if (at != std::string::npos && line.ends_with(".flight") && line.find("rw-s") != std::string::npos) {
      return line.substr(at);
    }
  }
  throw Failure(fmt::format("process {} has no flight file: it is not recorded, has not used CUDA yet, or was recorded "
                            "with flight=memory", pid));
}

class MappedHeader {
 public:
  explicit MappedHeader(const std::string& path) : path_(path) {
    const int fd = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
    struct stat info{};
    const bool fits = fstat(fd, &info) == 0 && static_cast<std::size_t>(info.st_size) >= flight::kHeaderBytes;
    void* const base = fits ? mmap(nullptr, flight::kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (base == MAP_FAILED) throw Failure(fmt::format("{}: not a flight file", path));
    header_ = static_cast<flight::Header*>(base);
    if (std::memcmp(header_->magic, flight::kMagic, sizeof flight::kMagic) != 0 ||
        header_->endian_mark != flight::kEndianMark || header_->version_major != event::kFlightMajor) {
      throw Failure(fmt::format("{}: not a flight file of this version", path));
    }
  }
  ~MappedHeader() {
    if (header_ != nullptr) munmap(header_, flight::kHeaderBytes);
  }
  MappedHeader(const MappedHeader&) = delete;
  MappedHeader& operator=(const MappedHeader&) = delete;

  flight::Header& operator*() const { return *header_; }

 private:
  std::string path_;
  flight::Header* header_ = nullptr;
};

// The recorder looks at its control word once a round, every 50 ms unless flush_ms says otherwise.
ControlResult send(flight::Header& header, ControlCommand command, const std::string& pid) {
  constexpr auto kPatience = std::chrono::seconds(10);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const std::uint32_t done = header.control_done.load(std::memory_order_acquire);
  std::uint32_t none = static_cast<std::uint32_t>(ControlCommand::kNone);
  while (!header.control.compare_exchange_strong(none, static_cast<std::uint32_t>(command))) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Failure(fmt::format("process {} has not done the command before yet: its recorder does not answer", pid));
    }
    none = static_cast<std::uint32_t>(ControlCommand::kNone);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  while (header.control_done.load(std::memory_order_acquire) == done) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::uint32_t ours = static_cast<std::uint32_t>(command);
      header.control.compare_exchange_strong(ours, static_cast<std::uint32_t>(ControlCommand::kNone));
      throw Failure(fmt::format("process {}: its recorder does not answer (stopped, or the recording has ended)", pid));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return static_cast<ControlResult>(header.control_result.load(std::memory_order_relaxed));
}

int control(const std::string& pid, ControlCommand command, const std::string& done_text) {
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos) {
    throw Failure(fmt::format("\"{}\" is no process id", pid), kExitUsage);
  }
  const std::string path = flight_file_of(pid);
  const MappedHeader header(path);
  const auto state = static_cast<flight::SessionState>((*header).state.load(std::memory_order_acquire));
  if (state == flight::SessionState::kClosed) throw Failure(fmt::format("the recording of process {} has ended", pid));
  switch (send(*header, command, pid)) {
    case ControlResult::kDone:
      break;
    case ControlResult::kSlotTaken:
      throw Failure(fmt::format("process {}: another CUPTI client holds the subscriber slot; end it and resume again", pid));
    case ControlResult::kUnknown:
      throw Failure(fmt::format("process {}: its libgpuflight does not know this command; it is older than this tool", pid));
    default:
      throw Failure(fmt::format("process {}: refused; the log says why", pid));
  }
  const char* const end = static_cast<const char*>(std::memchr((*header).log_path, 0, sizeof((*header).log_path)));
  const std::string log(static_cast<const char*>((*header).log_path),
                        end != nullptr ? static_cast<std::size_t>(end - (*header).log_path) : 0);
  fmt::print("{}: {}\n", done_text, log);
  return kExitOk;
}

}  // namespace

int dump_verb(const Arguments& arguments) {
  std::string pid;
  CLI::App app;
  describe(app, "dump", "PID", "Makes a process recorded in black-box mode write its last events into its log.",
           "  gpuflight dump 1234\n");
  app.add_option("PID", pid, "The recorded process")->required();
  if (const auto done = parse(app, arguments)) return *done;
  return control(pid, ControlCommand::kDump, "dumped into");
}

int pause_verb(const Arguments& arguments) {
  std::string pid;
  bool release = false;
  CLI::App app;
  describe(app, "pause", "[--release] PID", "Stops recording the launches of a running process, at no cost to it meanwhile.",
           "  gpuflight pause 1234\n  gpuflight pause --release 1234    so that another profiler can take CUPTI\n");
  app.add_flag("--release", release, "Also give up the CUPTI subscriber slot");
  app.add_option("PID", pid, "The recorded process")->required();
  if (const auto done = parse(app, arguments)) return *done;
  return control(pid, release ? ControlCommand::kPauseRelease : ControlCommand::kPause, "paused");
}

int resume_verb(const Arguments& arguments) {
  std::string pid;
  CLI::App app;
  describe(app, "resume", "PID", "Goes on recording a paused process.", "  gpuflight resume 1234\n");
  app.add_option("PID", pid, "The recorded process")->required();
  if (const auto done = parse(app, arguments)) return *done;
  return control(pid, ControlCommand::kResume, "recording again");
}

int timing_verb(const Arguments& arguments) {
  std::string pid, wanted;
  CLI::App app;
  describe(app, "timing", "on|off PID", "GPU times of a running process on or off; its launches are recorded all the same.",
           "  gpuflight timing off 1234    no activity records are asked of CUPTI meanwhile\n  gpuflight timing on 1234\n");
  app.add_option("on|off", wanted, "on or off")->required()->check(CLI::IsMember({"on", "off"}));
  app.add_option("PID", pid, "The recorded process")->required();
  if (const auto done = parse(app, arguments)) return *done;
  const bool on = wanted == "on";
  return control(pid, on ? ControlCommand::kTimingOn : ControlCommand::kTimingOff,
                 on ? "GPU times are recorded" : "GPU times are not recorded");
}

}  // namespace gpuflight::cli
