// A program that comes by the driver's functions in a way of its own, and launches.
//
//   interpose_host name|path|proc|proc_itself|default|deepbind|dlmopen PATH_OF_LIBCUDA LAUNCHES
//   interpose_host lookups PATH_OF_LIBCUDA LAUNCHES      threads look names up while others launch
//   interpose_host loader PATH_OF_LIBRARY                what the loader answers, as text
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "sim/module_image.h"

using namespace gpuflight;

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(99);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) fail(std::string(what) + ": " + std::to_string(result));
}

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t, int*);
// Of a library that was loaded with RTLD_DEEPBIND, or into another namespace.
using Lookup = void* (*)(void*, const char*);

class Driver {
 public:
  Driver(std::string_view way, const char* path, Lookup lookup = &dlsym) : way_(way), lookup_(lookup) {
    handle_ = way == "name" ? dlopen("libcuda.so.1", RTLD_NOW)
              : way == "dlmopen" ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW)
                                 : dlopen(path, RTLD_NOW | (way == "default" ? RTLD_GLOBAL : RTLD_LOCAL));
    if (handle_ == nullptr) fail(dlerror());
    if (way == "proc") proc_ = reinterpret_cast<GetProcAddress>(lookup_(handle_, "cuGetProcAddress"));
    if (way == "proc_itself") {
      const auto first = reinterpret_cast<GetProcAddress>(lookup_(handle_, "cuGetProcAddress"));
      void* second = nullptr;
      check(first("cuGetProcAddress", &second, 12000, 0), "cuGetProcAddress of itself");
      void* third = nullptr;
      int found = -1;
      check(reinterpret_cast<GetProcAddressV2>(second)("cuGetProcAddress", &third, 11030, 0, &found), "and back");
      proc_ = reinterpret_cast<GetProcAddress>(third);
    }
  }

  template <class Function>
  Function* get(const char* name, const char* base) const {
    void* found = nullptr;
    if (proc_ != nullptr) {
      check(proc_(base, &found, 12000, 0), base);
    } else {
      found = lookup_(way_ == "default" ? RTLD_DEFAULT : handle_, name);
    }
    if (found == nullptr) fail(std::string("no ") + name);
    return reinterpret_cast<Function*>(found);
  }
#define GET(name) get<decltype(::name)>(GPUFLIGHT_TEXT(name), #name)
#define GPUFLIGHT_TEXT(name) GPUFLIGHT_TEXT_OF(name)
#define GPUFLIGHT_TEXT_OF(name) #name

 private:
  std::string way_;
  Lookup lookup_;
  void* handle_ = nullptr;
  GetProcAddress proc_ = nullptr;
};

class Program {
 public:
  explicit Program(const Driver& driver) {
    check(driver.GET(cuInit)(0), "cuInit");
    CUdevice device = 0;
    check(driver.GET(cuDeviceGet)(&device, 0), "cuDeviceGet");
    check(driver.GET(cuDevicePrimaryCtxRetain)(&context_, device), "cuDevicePrimaryCtxRetain");
    use(driver);
    sim::ModuleImage image;
    image.kernels.emplace_back();
    image.kernels[0].name = "k";
    image.kernels[0].registers = 16;
    image.kernels[0].duration_ns = 500;
    const std::string text = sim::write_image(image);
    CUmodule module = nullptr;
    check(driver.GET(cuModuleLoadData)(&module, text.data()), "cuModuleLoadData");
    check(driver.GET(cuModuleGetFunction)(&function_, module, "k"), "cuModuleGetFunction");
    launch_ = driver.GET(cuLaunchKernel);
  }
  void use(const Driver& driver) const { check(driver.GET(cuCtxSetCurrent)(context_), "cuCtxSetCurrent"); }
  void launch(int times) const {
    for (int i = 0; i < times; ++i) {
      check(launch_(function_, 4, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
    }
  }

 private:
  CUcontext context_ = nullptr;
  CUfunction function_ = nullptr;
  decltype(&::cuLaunchKernel) launch_ = nullptr;
};

int look_up_and_launch(const char* path, int times) {
  const Driver driver("path", path);
  const Program program(driver);
  std::atomic<bool> done{false};
  std::vector<std::thread> askers, launchers;
  for (int t = 0; t < 4; ++t) {
    askers.emplace_back([&] {
      while (!done.load()) {
        const Driver own("proc", path);
        for (const char* name : {"cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuMemcpyAsync"}) {
          if (own.get<void()>(name, name) == nullptr) fail(name);
        }
        if (dlsym(RTLD_DEFAULT, "no_such_function") != nullptr || dlerror() == nullptr) fail("no_such_function");
      }
    });
    launchers.emplace_back([&] {
      program.use(driver);
      program.launch(times);
    });
  }
  for (std::thread& thread : launchers) thread.join();
  done = true;
  for (std::thread& thread : askers) thread.join();
  return 0;
}

void say(const char* what, void* found) {
  Dl_info info{};
  const char* file = "nothing";
  if (found != nullptr) file = dladdr(found, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
  const char* const slash = std::strrchr(file, '/');
  std::printf("%s: %s\n", what, slash != nullptr ? slash + 1 : file);
}

int ask_the_loader(const char* library) {
  dlerror();
  say("RTLD_DEFAULT malloc", dlsym(RTLD_DEFAULT, "malloc"));
  say("RTLD_NEXT malloc", dlsym(RTLD_NEXT, "malloc"));
  say("RTLD_DEFAULT cuLaunchKernel", dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
  std::printf("error %d\n", dlerror() != nullptr);
  say("RTLD_NEXT cuInit", dlsym(RTLD_NEXT, "cuInit"));
  std::printf("error %d\n", dlerror() != nullptr);
  say("RTLD_DEFAULT cu_unknown", dlsym(RTLD_DEFAULT, "cu_unknown"));
  std::printf("error %d\n", dlerror() != nullptr);
  say("dlvsym malloc", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5"));
  say("dlvsym malloc of no version", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_0"));
  std::printf("error %d\n", dlerror() != nullptr);
  void* const handle = dlopen(library, RTLD_NOW);
  if (handle == nullptr) fail(dlerror());
  // What it finds next is behind itself, not behind us.
  say("its RTLD_NEXT asked_for", reinterpret_cast<void* (*)()>(dlsym(handle, "asker_next"))());
  say("its RTLD_DEFAULT malloc", reinterpret_cast<void* (*)()>(dlsym(handle, "asker_default"))());
  say("its handle", dlsym(handle, "asked_for"));
  say("its versioned dlsym", reinterpret_cast<void* (*)()>(dlsym(handle, "asker_dlsym"))());
  return 0;
}

}  // namespace

// Also defined by the library that asks for the next one.
extern "C" __attribute__((visibility("default"))) void asked_for() {}

int main(int argc, char** argv) {
  const std::string_view way = argc > 2 ? argv[1] : "";
  if (way == "loader") return ask_the_loader(argv[2]);
  if (argc < 4) fail("interpose_host WAY PATH LAUNCHES");
  const int times = std::atoi(argv[3]);
  if (way == "lookups") return look_up_and_launch(argv[2], times);
  Lookup lookup = &dlsym;
  if (way == "deepbind") {
    void* const asker = argc > 4 ? dlopen(argv[4], RTLD_NOW | RTLD_DEEPBIND) : nullptr;
    if (asker == nullptr) fail("no library to look up by");
    lookup = reinterpret_cast<Lookup>(dlsym(asker, "asker_lookup"));
  }
  const Driver driver(way == "deepbind" ? "path" : way, argv[2], lookup);
  const Program program(driver);
  program.launch(times);
  return 0;
}
