#include "run_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "library_path.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kPreload = "LD_PRELOAD";
constexpr const char* kInjection = "CUDA_INJECTION64_PATH";
constexpr const char* kNvtxInjection = "NVTX_INJECTION64_PATH";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Why the dynamic loader will not take our library into this program; empty: it will.
std::string preload_obstacle(const std::string& library, const ProgramImage& program) {
  if (program.elevated) {
    return "runs with more rights than you have (set-user-id, set-group-id or file capabilities), so the loader "
           "ignores LD_PRELOAD; record it as the user it runs as";
  }
  if (!program.elf.is_elf) return {};
  const ElfImage own = inspect_elf(library);
  if (own.is_elf && (program.elf.bits != own.bits || program.elf.machine != own.machine)) {
    return fmt::format("is a program for another machine ({} bit) than libgpuflight.so ({} bit)", program.elf.bits,
                       own.bits);
  }
  if (!program.elf.takes_preload()) {
    return "is statically linked: nothing can be preloaded into it, and it can hardly use CUDA itself; programs it "
           "starts are recorded";
  }
  if (program.elf.musl()) return "uses musl as its C library; libgpuflight.so is built for glibc";
  if (program.elf.asan) {
    return "is built with AddressSanitizer, which refuses preloads; only CUDA_INJECTION64_PATH is set";
  }
  if (library.find_first_of(": \t\n") != std::string::npos) {
    return fmt::format("cannot get '{}' preloaded: LD_PRELOAD has no way to hold a path with blanks or colons",
                       library);
  }
  return {};
}

// Programs started by a static, elevated or script-like parent may still take the preload; for those named here it
// would only bring error messages from the loader or a refusal to start.
bool preload_does_harm(const ProgramImage& program, const std::string& library) {
  if (program.elevated) return false;
  if (library.find_first_of(": \t\n") != std::string::npos) return true;
  if (!program.elf.is_elf) return false;
  if (!program.elf.takes_preload()) return false;
  const ElfImage own = inspect_elf(library);
  return program.elf.asan || program.elf.musl() || (own.is_elf && program.elf.machine != own.machine);
}

std::string prepended(const std::string& library, const std::string& existing) {
  if (existing.empty()) return library;
  for (std::size_t begin = 0; begin <= existing.size();) {  // already there: once is enough
    const std::size_t end = std::min(existing.find_first_of(": ", begin), existing.size());
    if (std::string_view(existing).substr(begin, end - begin) == library) return existing;
    begin = end + 1;
  }
  return library + ":" + existing;
}

bool names_library(const std::string& path, const std::string& library) {
  char resolved[4096];
  return path == library || (::realpath(path.c_str(), resolved) != nullptr && library == resolved);
}

}  // namespace

RunEnvironment plan_environment(const std::string& library, const ProgramImage& program, const std::string& hooks) {
  RunEnvironment plan;
  const std::string obstacle = preload_obstacle(library, program);
  if (!obstacle.empty()) plan.remarks.push_back(fmt::format("{} {}", program.path, obstacle));
  plan.preloads = obstacle.empty();
  const bool with_hooks = !hooks.empty() && plan.preloads;
  if (!preload_does_harm(program, library)) {
    const std::string others = variable(kPreload);
    plan.set[kPreload] = prepended(library, with_hooks ? prepended(hooks, others) : others);
  }

  const std::string injection = variable(kInjection);
  if (injection.empty()) {
    plan.set[kInjection] = library;
  } else if (!names_library(injection, library) && with_hooks) {
    // The hook of cuInit starts the recorder.
  } else if (!names_library(injection, library)) {
    plan.remarks.push_back(
        fmt::format("{} is set to another tool's '{}' and stays so: nothing will be recorded "
                    "unless that tool is unset",
                    kInjection, injection));
  }
  if (variable(kNvtxInjection).empty()) plan.set[kNvtxInjection] = library;
  return plan;
}

std::vector<std::string> RunEnvironment::merged() const {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    const std::string name(*entry, equals == nullptr ? std::strlen(*entry) : static_cast<std::size_t>(equals - *entry));
    if (!set.contains(name)) all.emplace_back(*entry);
  }
  for (const auto& [name, value] : set) all.push_back(name + "=" + value);
  return all;
}

}  // namespace gpuflight::cli
