// How the library gets into a process: as a preload, its constructor points the CUDA driver and NVTX at it and does
// nothing else; the driver then calls InitializeInjection inside cuInit, NVTX calls InitializeInjectionNvtx2 inside the
// program's first NVTX call.
//
// Threads: the constructor before main, InitializeInjection on the thread in cuInit, InitializeInjectionNvtx2 on any, the
// destructor at exit.
#include <cstdlib>
#include <dlfcn.h>

#include "gpuflight/gpuflight.h"
#include "inject/start.h"
#include "recorder/nvtx_entry.h"
#include "recorder/recorder.h"

namespace gpuflight::inject {
namespace {

// setenv may only be called while no other thread reads the environment: here, and nowhere else of ours.
__attribute__((constructor)) void on_load() noexcept {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&on_load), &self) == 0 || self.dli_fname == nullptr) return;
  // A child that changes its directory must find it too.
  char* const path = realpath(self.dli_fname, nullptr);
  // Another tool that was there first keeps its place.
  for (const char* const variable : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    setenv(variable, path != nullptr ? path : self.dli_fname, /*overwrite=*/0);
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
