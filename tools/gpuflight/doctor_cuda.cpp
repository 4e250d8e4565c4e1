#include "doctor_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "captured_process.h"
#include "doctor_hooks.h"
#include "failure.h"
#include "library_path.h"
#include "log/decoder.h"
#include "report/kernel_name.h"
#include "run_environment.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr auto kLimit = std::chrono::seconds(20);

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* place = std::getenv("TMPDIR");
    path_ = std::string(place != nullptr && *place == '/' ? place : "/tmp") + "/gpuflight-doctor-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw Failure(fmt::format("cannot make a folder '{}'", path_));
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The probe records like any program would, but into a folder of its own, and whatever it is called.
RunEnvironment probe_environment(const std::string& library, const std::string& folder, const std::string& name,
                                 const std::string& hooks = {}) {
  RunEnvironment plan = plan_environment(library, inspect_program(own_executable()), hooks);
  plan.set["GPUFLIGHT_LOG"] = folder + "/" + name + ".ndjson";
  plan.set["GPUFLIGHT_FLIGHT"] = folder + "/" + name + ".flight";
  plan.set["GPUFLIGHT_INCLUDE"] = "";
  plan.set["GPUFLIGHT_EXCLUDE"] = "";
  plan.set["GPUFLIGHT_QUIET"] = "on";
  plan.set["GPUFLIGHT_RUN_MANIFEST"] = "";
  return plan;
}

bool ended_well(const CapturedProcess& process) {
  return process.started && !process.timed_out && WIFEXITED(process.wait_status) &&
         WEXITSTATUS(process.wait_status) == 0;
}

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string last_line(const std::string& text) {
  std::string line = text.substr(0, text.find_last_not_of(" \n\r\t") + 1);
  if (const std::size_t end = line.rfind('\n'); end != std::string::npos) line.erase(0, end + 1);
  return report::printable(line.substr(0, 300));
}

Finding probe_failed(const CapturedProcess& process) {
  if (process.timed_out) {
    return {"probe", Health::kPrevents, "initialising CUDA did not come back within 20 s and was killed",
            "look at the driver with nvidia-smi; a hung GPU needs a reset"};
  }
  if (WIFSIGNALED(process.wait_status)) {
    return {"probe", Health::kPrevents,
            fmt::format("the process that initialised CUDA was ended by signal {} ({})", WTERMSIG(process.wait_status),
                        strsignal(WTERMSIG(process.wait_status))),
            "try it without gpuflight: if it then works, report it with 'gpuflight doctor --json'"};
  }
  return {"probe", Health::kPrevents,
          fmt::format("the process that looks at CUDA failed: {}",
                      process.errors.empty() ? "it printed nothing" : last_line(process.errors)),
          "a preload that the C library refuses shows like this: compare the library's glibc with this system's"};
}

Finding driver_finding(const Json& driver) {
  if (driver["path"].is_null()) {
    return {"driver", Health::kPrevents, fmt::format("libcuda: {}", driver.value("error", "not found")),
            "install the NVIDIA driver; in a container start it with its GPUs (docker run --gpus all)"};
  }
  const std::string path = driver["path"];
  if (path.find("/stubs/") != std::string::npos) {
    return {"driver", Health::kPrevents, fmt::format("{} is a stub for linking, not the driver", path),
            "take its folder out of LD_LIBRARY_PATH"};
  }
  if (driver.contains("error")) return {"driver", Health::kPrevents, driver["error"], "reinstall the driver"};
  const std::string version =
      driver["version"].is_number() ? "CUDA " + cuda_version_text(driver["version"]) : "unknown version";
  if (driver["init"] != 0) {
    return {
        "driver", Health::kPrevents,
        fmt::format("{} ({}): cuInit gave {} {}", path, version, driver["init"].get<int>(),
                    driver.value("init_error", "")),
        "100 means no GPU is visible (CUDA_VISIBLE_DEVICES, container); 803 and 804 that driver and libcuda differ; "
        "else see nvidia-smi"};
  }
  std::string names;
  for (const auto& name : driver["devices"]) names += (names.empty() ? "" : ", ") + name.get<std::string>();
  return {"driver", Health::kFine, fmt::format("{} ({}): {}", path, version, names.empty() ? "no device" : names), ""};
}

Finding nvml_finding(const Json& nvml) {
  if (nvml["path"].is_null() || nvml["init"] != 0) {
    return {"nvml", Health::kNote, "NVML is not usable here: no clocks, power and temperatures",
            "it comes with the driver (libnvidia-ml.so.1); in a container set NVIDIA_DRIVER_CAPABILITIES=all"};
  }
  return {"nvml", Health::kFine,
          fmt::format("{}, driver {}", nvml["path"].get<std::string>(), nvml.value("driver_version", "unknown")), ""};
}

// CUPTI numbers itself 130001 for CUDA 13.0; before CUDA 12.6 by a running number.
std::string cupti_version_text(std::uint32_t version) {
  if (version < 100'000) return fmt::format("API {}", version);
  return fmt::format("{}.{}", version / 10'000, version % 10'000 / 100);
}

struct ProbeLog {
  std::optional<event::SessionStart> start;
  std::vector<event::Notice> notices;
};

ProbeLog read_log(const std::string& path) {
  ProbeLog found;
  log::LogReader reader(path);
  if (reader.open() != 0) return found;
  log::LogEvent event;
  while (reader.next(event) == log::LogReader::Status::kEvent) {
    if (const auto* line = std::get_if<log::SessionStartLine>(&event)) found.start = line->session;
    if (const auto* notice = std::get_if<event::Notice>(&event)) found.notices.push_back(*notice);
  }
  return found;
}

std::string remedy_of(const event::Notice& notice) {
  if (notice.code.find("slot") != std::string::npos) {
    return "one CUPTI client at a time: end the other profiler (nsys, ncu, compute-sanitizer, torch.profiler, DCGM "
           "profiling), or record without it";
  }
  if (notice.code.find("cupti") != std::string::npos) {
    return "give the libcupti of the driver's CUDA version: GPUFLIGHT_CUPTI=/path/libcupti.so.N";
  }
  return {};
}

void add_recorder_findings(Findings& findings, const ProbeLog& log, const Json& recorder, bool cuda_works) {
  if (recorder.is_null()) {
    findings.push_back({"recorder", Health::kPrevents, "the library was not loaded into the process",
                        "LD_PRELOAD is ignored or refused here; try CUDA_INJECTION64_PATH alone"});
    return;
  }
  if (!cuda_works) return;  // nothing of the recorder can be seen then, and why is said already
  for (const event::Notice& notice : log.notices) {
    if (notice.severity == event::Severity::kInfo) continue;
    findings.push_back({"notice", notice.severity == event::Severity::kError ? Health::kPrevents : Health::kWarning,
                        fmt::format("{}: {}", notice.code, report::printable(notice.message)), remedy_of(notice)});
  }
  if (!log.start) {
    findings.push_back(
        {"recorder", Health::kPrevents,
         fmt::format("CUDA was initialised but no log was begun ({})", recorder.value("status_text", "unknown")),
         "see the other findings; 'gpuflight doctor --json' has the details"});
    return;
  }
  const event::SessionStart& start = *log.start;
  if (!start.cupti_path.empty()) {
    findings.push_back({"cupti", Health::kFine,
                        fmt::format("{} ({}), chosen: {}", start.cupti_path,
                                    start.cupti_version ? cupti_version_text(*start.cupti_version) : "unknown version",
                                    start.cupti_reason),
                        ""});
  }
  if (start.capture == "none" || start.capture.empty()) {
    findings.push_back({"recorder", Health::kPrevents, "launches cannot be seen: there is no usable source for them",
                        "see the findings on cupti"});
  } else {
    findings.push_back({"recorder", Health::kFine, fmt::format("launches are seen through {}", start.capture), ""});
  }
}

// Without CUPTI, and whatever the options in force ask for.
HooksProbe probe_hooks(const std::string& library, const std::string& hooks, const std::string& folder) {
  RunEnvironment environment = probe_environment(library, folder, "hooks", hooks);
  environment.set["GPUFLIGHT_CAPTURE"] = "interpose";
  const CapturedProcess process = run_captured({own_executable(), "doctor-probe"}, environment.merged(), kLimit);
  HooksProbe probe;
  probe.facts = Json::parse(process.output, nullptr, false);
  if (!ended_well(process) || !probe.facts.is_object()) {
    probe.facts = nullptr;
    probe.failure = probe_failed(process).found;
    return probe;
  }
  const ProbeLog log = read_log(folder + "/hooks.ndjson");
  if (log.start) {
    probe.capture = log.start->capture;
    probe.reason = log.start->capture_reason;
  }
  for (const event::Notice& notice : log.notices) {
    if (notice.severity != event::Severity::kInfo && probe.problem.empty()) probe.problem = notice.message;
  }
  return probe;
}

// What `run` would do then: CUPTI is lacking, and so are GPU times, not launches.
void soften_for_hooks(Findings& findings) {
  const char* const asked_for = std::getenv("GPUFLIGHT_CAPTURE");
  if (asked_for != nullptr && std::strcmp(asked_for, "cupti") == 0) return;
  for (Finding& finding : findings) {
    if (finding.health != Health::kPrevents) continue;
    if (finding.check == "notice") finding.health = Health::kWarning;
    if (finding.check != "recorder") continue;
    finding = {"recorder", Health::kWarning, "launches are seen by the hooks; GPU times are not recorded without CUPTI",
               finding.remedy};
  }
}

void add_candidates(Findings& findings, const Json& facts) {
  const std::string chosen = facts.value("cupti_path", "");
  std::vector<std::string> others;
  for (const CuptiFile& file : cupti_files()) {
    std::error_code error;
    if (!chosen.empty() && fs::equivalent(file.path, chosen, error)) continue;
    others.push_back(fmt::format("{} ({})", file.path, file.reason));
  }
  if (!others.empty()) {
    findings.push_back({"cupti_files", Health::kNote,
                        fmt::format("{}libcupti found: {}", chosen.empty() ? "" : "another ", fmt::join(others, ", ")),
                        ""});
  } else if (chosen.empty()) {
    findings.push_back({"cupti_files", Health::kWarning, "no libcupti found in the usual places",
                        "install the CUDA toolkit's CUPTI or pip's nvidia-cuda-cupti, or set GPUFLIGHT_CUPTI"});
  }
}

}  // namespace

CudaProbe probe_cuda() {
  CudaProbe probe;
  std::string library;
  try {
    library = find_library().path;
  } catch (const Failure&) {
  }
  if (library.empty()) return probe;  // check_library has said it
  const TemporaryFolder folder;
  const RunEnvironment environment = probe_environment(library, folder.path(), "probe");
  const CapturedProcess process = run_captured({own_executable(), "doctor-probe"}, environment.merged(), kLimit);
  probe.facts = Json::parse(process.output, nullptr, false);
  if (!ended_well(process) || !probe.facts.is_object()) {
    probe.findings.push_back(probe_failed(process));
    if (!probe.facts.is_object()) probe.facts = nullptr;
    add_candidates(probe.findings, Json::object());
    return probe;
  }
  const ProbeLog log = read_log(folder.path() + "/probe.ndjson");
  if (log.start) {
    probe.facts["cupti_path"] = log.start->cupti_path;
    probe.facts["cupti_reason"] = log.start->cupti_reason;
    probe.facts["cupti_version"] = log.start->cupti_version ? Json(*log.start->cupti_version) : Json(nullptr);
    probe.facts["capture"] = log.start->capture;
  }
  const Finding driver = driver_finding(probe.facts["driver"]);
  probe.findings.push_back(driver);
  probe.findings.push_back(nvml_finding(probe.facts["nvml"]));
  add_recorder_findings(probe.findings, log, probe.facts["recorder"], driver.health == Health::kFine);
  add_candidates(probe.findings, probe.facts);
  const std::string hooks = hooks_beside(library);
  Json hook_facts;
  for (Finding& finding : check_hooks(library, hooks, driver.health == Health::kFine,
                                      [&] { return probe_hooks(library, hooks, folder.path()); }, hook_facts)) {
    probe.findings.push_back(std::move(finding));
  }
  if (hook_facts["capture"] == "interpose") soften_for_hooks(probe.findings);
  probe.facts["hooks"] = std::move(hook_facts);
  return probe;
}

}  // namespace gpuflight::cli
