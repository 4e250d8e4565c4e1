// How the library gets into a process: as a preload, its constructor points the CUDA driver at it and does nothing
// else; the driver then calls InitializeInjection inside cuInit.
//
// Threads: the constructor before main, InitializeInjection on the thread in cuInit, the destructor at exit.
#include <cstdlib>
#include <dlfcn.h>

#include "gpuflight/gpuflight.h"
#include "inject/start.h"
#include "recorder/recorder.h"

namespace gpuflight::inject {
namespace {

// setenv may only be called while no other thread reads the environment: here, and nowhere else of ours.
__attribute__((constructor)) void on_load() noexcept {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&on_load), &self) == 0 || self.dli_fname == nullptr) return;
  // A child that changes its directory must find it too.
  char* const path = realpath(self.dli_fname, nullptr);
  setenv("CUDA_INJECTION64_PATH", path != nullptr ? path : self.dli_fname, /*overwrite=*/0);
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
using InjectionEntry = int (*)();
InjectionEntry entry_of_other_copy() noexcept {
  void* const other = dlsym(RTLD_DEFAULT, "InitializeInjection");
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
  return reinterpret_cast<InjectionEntry>(other);
}

}  // namespace

recorder::StartResult start(const gpuflight_option* given, std::size_t count) noexcept {
  recorder::Recorder::GivenOptions options;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      if (given[i].name != nullptr && given[i].value != nullptr) options.emplace_back(given[i].name, given[i].value);
    }
  } catch (...) {
    return recorder::StartResult::kInternal;
  }
  return recorder::Recorder::start(options);
}

}  // namespace gpuflight::inject

// The driver's way in (CUDA_INJECTION64_PATH). Its result is not looked at; 1 is "fine" by convention.
extern "C" GPUFLIGHT_API int InitializeInjection() noexcept {
  if (const auto other = gpuflight::inject::entry_of_other_copy()) return other();
  gpuflight::inject::start(nullptr, 0);
  return 1;
}

// NVTX's way in (NVTX_INJECTION64_PATH). 0: no tool here, so NVTX calls stay the no-ops they are without one.
extern "C" GPUFLIGHT_API int InitializeInjectionNvtx2(void* /*get_export_table*/) noexcept { return 0; }
