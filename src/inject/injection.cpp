// How the library gets into a process: as a preload, its constructor points the CUDA driver and NVTX at it and does
// nothing else; the driver then calls InitializeInjection inside cuInit, NVTX calls InitializeInjectionNvtx2 inside the
// program's first NVTX call.
//
// Threads: the constructor before main, InitializeInjection on the thread in cuInit, InitializeInjectionNvtx2 on any, the
// destructor at exit.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include "gpuflight/gpuflight.h"
#include "inject/start.h"
#include "recorder/nvtx_entry.h"
#include "recorder/recorder.h"

namespace gpuflight::inject {
namespace {

// Nsight Compute refuses a program in which CUDA_INJECTION64_PATH is set: there the hooks start the recorder. It is a
// chain of programs of its own folder (".../nsight-compute/2025.3.1/..."), the last of which starts the program with a
// library preloaded. compute-sanitizer does not mind.
bool is_for_nsight() noexcept {
  char executable[512];
  const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
  executable[length > 0 ? length : 0] = 0;
  if (std::strstr(executable, "/nsight-") != nullptr) return true;
  // Not by LD_PRELOAD, which it has hidden by now.
  const auto is_its_library = [](dl_phdr_info* object, std::size_t, void*) {
    return object->dlpi_name != nullptr && std::strstr(object->dlpi_name, "/libcuda-injection.so") != nullptr ? 1 : 0;
  };
  return dl_iterate_phdr(is_its_library, nullptr) != 0;
}

// setenv may only be called while no other thread reads the environment: here, and nowhere else of ours.
__attribute__((constructor)) void on_load() noexcept {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&on_load), &self) == 0 || self.dli_fname == nullptr) return;
  // A child that changes its directory must find it too.
  char* const path = realpath(self.dli_fname, nullptr);
  const char* const own = path != nullptr ? path : self.dli_fname;
  const bool leave = is_for_nsight();
  for (const char* const variable : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    const char* const set = std::getenv(variable);
    // Handed on by the shell that started the profiler, its wrapper script for one.
    if (leave && set != nullptr && std::strcmp(set, own) == 0) unsetenv(variable);
    // Another tool that was there first keeps its place.
    if (!leave) setenv(variable, own, /*overwrite=*/0);
  }
  std::free(path);
}

// After main's atexit handlers and the destructors of libraries that use us: the last launches are in the rings.
__attribute__((destructor)) void on_unload() noexcept {
  if (recorder::Recorder* const recorder = recorder::Recorder::current()) {
    recorder->finish(recorder->exit_timeout_ms(), "exit", /*at_exit=*/true);
  }
}

// Another copy of this library, linked or preloaded from elsewhere: one of the two records, the one that the program's
// own calls reach.
template <class Entry>
Entry entry_of_other_copy(const char* name) noexcept {
  void* const other = dlsym(RTLD_DEFAULT, name);
  if (other == nullptr || dlsym(RTLD_DEFAULT, "gpuflight_version") == nullptr) {
    dlerror();
    return nullptr;
  }
  // By the object it is in: &InitializeInjection would name the other copy's here too, as every exported name does.
  Dl_info own{}, entry_owner{}, version_owner{};
  if (dladdr(reinterpret_cast<const void*>(&on_load), &own) == 0 || dladdr(other, &entry_owner) == 0 ||
      dladdr(dlsym(RTLD_DEFAULT, "gpuflight_version"), &version_owner) == 0) {
    return nullptr;
  }
  if (entry_owner.dli_fbase == own.dli_fbase) return nullptr;
  // Somebody else's InitializeInjection must not be called by us.
  if (entry_owner.dli_fbase != version_owner.dli_fbase) return nullptr;
  return reinterpret_cast<Entry>(other);
}

}  // namespace

recorder::StartResult start(const gpuflight_option* given, std::size_t count, bool inside_init) noexcept {
  recorder::Recorder::GivenOptions options;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      if (given[i].name != nullptr && given[i].value != nullptr) options.emplace_back(given[i].name, given[i].value);
    }
  } catch (...) {
    return recorder::StartResult::kInternal;
  }
  return recorder::Recorder::start(options, inside_init);
}

}  // namespace gpuflight::inject

// The driver's way in (CUDA_INJECTION64_PATH). Its result is not looked at; 1 is "fine" by convention.
extern "C" GPUFLIGHT_API int InitializeInjection() noexcept {
  using Entry = int (*)();
  if (const auto other = gpuflight::inject::entry_of_other_copy<Entry>("InitializeInjection")) return other();
  gpuflight::inject::start(nullptr, 0, /*inside_init=*/true);
  return 1;
}

// NVTX's way in (NVTX_INJECTION64_PATH), once for each binary with an NVTX of its own. 0: no tool here, so its calls stay
// the no-ops they are without one.
extern "C" GPUFLIGHT_API int InitializeInjectionNvtx2(void* get_export_table) noexcept {
  using Entry = int (*)(void*);
  if (const auto other = gpuflight::inject::entry_of_other_copy<Entry>("InitializeInjectionNvtx2")) {
    return other(get_export_table);
  }
  return gpuflight::recorder::attach_nvtx(get_export_table) ? 1 : 0;
}
