// Host programs that do what hosts do to a guest: change the locale, close every descriptor, delete the log's folder,
// move about, drop their rights, cancel threads in the middle of a launch.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <locale>
#include <thread>

#include "sim/sim_hooks.h"
#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;
using gpuflight::sim::SimHooks;

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

SimHooks& hooks() { return *Cuda::symbol<SimHooks*()>("gpuflight_sim_hooks")(); }

// A decimal comma and grouping, set the C way and the C++ way, before CUDA is touched and while it launches.
int locale() {
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) fail("no locale de_DE.UTF-8");
  std::locale::global(std::locale("de_DE.UTF-8"));
  if (std::strcmp(localeconv()->decimal_point, ",") != 0) fail("no decimal comma");
  const Cuda cuda({kernel_named(std::string(65536, 'n')), kernel_named("a\"quoted\"\\back\\slash"),
                   kernel_named("tab\there\nline\r\x01\x1b[31m\x7f"), kernel_named("bad\xff\xfe\xc3(\xe2\x82""end"),
                   kernel_named("k\xc3\xa9rnel_\xe6\xa0\xb8"), kernel_named("1.234,5 %s%n {} ${HOME}")});
  for (std::size_t kernel = 0; kernel < 6; ++kernel) {
    for (int i = 0; i < 3; ++i) Cuda::check(cuda.launch(1234567, kernel, 96), "launch");
  }
  std::printf("%.3f %'d\n", 1234.5, 1234567);
  return 0;
}

// All descriptors go, and the host opens files of its own under the same numbers.
int close_fds(const char* folder) {
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(100, 1);
  sleep_ms(300);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = limit.rlim_cur < 4096 ? static_cast<int>(limit.rlim_cur) : 4096;
  for (int fd = 0; fd < end; ++fd) close(fd);
  const std::string name = std::string(folder) + "/own.";
  int fds[150];
  for (int i = 0; i < 150; ++i) fds[i] = open((name + std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (int i = 0; i < 20; ++i) {
    cuda.launch_times(100, 2);
    sleep_ms(20);
  }
  int bad = 0;
  for (int i = 0; i < 150; ++i) {
    struct stat state {};
    bad += fstat(fds[i], &state) != 0 || state.st_size != 0;  // nobody wrote, nobody closed
    close(fds[i]);
  }
  return bad == 0 ? 0 : 1;
}

int remove_folder(const char* folder) {
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(100, 1);
  sleep_ms(300);
  std::filesystem::remove_all(folder);
  for (int i = 0; i < 20; ++i) {
    cuda.launch_times(50, 2);
    sleep_ms(20);
  }
  return 0;
}

int move_about() {
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(100, 1);
  if (chdir("/") != 0) fail("chdir");
  umask(0777);
  for (int i = 0; i < 20; ++i) {
    cuda.launch_times(100, 2);
    sleep_ms(10);
  }
  return 0;
}

// Another root: the log's folder has no name any more, and its path names nothing.
int change_root(const char* folder) {
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(100, 1);
  sleep_ms(100);
  if (chroot(folder) != 0 || chdir("/") != 0) fail("chroot");
  for (int i = 0; i < 20; ++i) {
    cuda.launch_times(100, 2);
    sleep_ms(10);
  }
  return 0;
}

// Every descriptor the host may have is taken, before CUDA is first used or after.
int no_descriptors(bool before) {
  const auto init = Cuda::symbol<decltype(::cuInit)>("cuInit");  // the driver is in the process already
  if (!before) Cuda::check(init(0), "cuInit");
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  if (errno != EMFILE) fail("no limit was reached");
  const Cuda cuda({kernel_named("k")});
  for (int i = 0; i < 20; ++i) {
    cuda.launch_times(100, 1);
    sleep_ms(10);
  }
  if (dup(0) >= 0) fail("a descriptor came from nowhere");
  for (const int fd : taken) {
    if (close(fd) != 0) fail("a descriptor of the host's was closed");
  }
  cuda.launch_times(100, 2);
  return 0;
}

// Modules come and go, each with kernels of its own under the handles of the last.
int modules(int count) {
  const Cuda cuda({kernel_named("stays")});
  const auto load = Cuda::symbol<decltype(::cuModuleLoadData)>("cuModuleLoadData");
  const auto get = Cuda::symbol<decltype(::cuModuleGetFunction)>("cuModuleGetFunction");
  const auto unload = Cuda::symbol<decltype(::cuModuleUnload)>("cuModuleUnload");
  const auto launch = Cuda::symbol<decltype(::cuLaunchKernel)>("cuLaunchKernel");
  for (int i = 0; i < count; ++i) {
    const std::string name = "passes_" + std::to_string(i);
    gpuflight::sim::ModuleImage image;
    image.kernels = {kernel_named(name, 16 + i % 64)};
    const std::string text = gpuflight::sim::write_image(image);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    Cuda::check(load(&module, text.data()), "cuModuleLoadData");
    Cuda::check(get(&function, module, name.c_str()), "cuModuleGetFunction");
    void* parameters[] = {nullptr};
    Cuda::check(launch(function, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr), "launch");
    Cuda::check(cuda.launch(1), "launch");
    Cuda::check(unload(module), "cuModuleUnload");
  }
  return 0;
}

int drop_rights() {
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(100, 1);
  if (setgid(65534) != 0 || setuid(65534) != 0) fail("setuid");
  for (int i = 0; i < 40; ++i) {
    cuda.launch_times(500, 2);
    sleep_ms(10);
  }
  return 0;
}

// --- cancelled between entry and return of a launch: the subscriber's own callback first, then the end ---

CUpti_CallbackFunc g_subscriber = nullptr;
std::atomic<int> g_cancelled{0};
thread_local bool t_dies = false;

void CUPTIAPI die_inside(void* userdata, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  g_subscriber(userdata, domain, id, data);
  if (!t_dies || domain != CUPTI_CB_DOMAIN_DRIVER_API || id != CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) return;
  if (static_cast<const CUpti_CallbackData*>(data)->callbackSite != CUPTI_API_ENTER) return;
  g_cancelled.fetch_add(1);
  for (;;) pause();
}

int cancel() {
  const Cuda cuda({kernel_named("k")});
  cuda.launch_times(10, 1);
  g_subscriber = hooks().callback.load();
  if (g_subscriber == nullptr) fail("nobody has subscribed");
  hooks().callback.store(&die_inside);
  for (int i = 0; i < 50; ++i) {
    pthread_t thread{};
    pthread_create(&thread, nullptr,
                   [](void* argument) -> void* {
                     const auto& own = *static_cast<const Cuda*>(argument);
                     own.use();
                     own.launch(2);
                     t_dies = true;
                     own.launch(3);
                     return nullptr;
                   },
                   const_cast<Cuda*>(&cuda));
    while (g_cancelled.load() <= i) std::this_thread::yield();
    pthread_cancel(thread);
    void* result = nullptr;
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) fail("not cancelled");
  }
  cuda.launch_times(10, 4);
  return 0;
}

// Short-lived threads, `at_once` alive at a time, each with one launch and a default stream of its own.
int threads(int count, int at_once) {
  const Cuda cuda({kernel_named("k")});
  for (int done = 0; done < count; done += at_once) {
    std::vector<std::thread> alive;
    for (int i = 0; i < at_once && done + i < count; ++i) {
      alive.emplace_back([&cuda, n = done + i] {
        cuda.use();
        Cuda::check(n % 2 == 0 ? cuda.launch(static_cast<unsigned>(n + 1))
                               : cuda.launch_per_thread(static_cast<unsigned>(n + 1)),
                    "launch");
      });
    }
    for (std::thread& thread : alive) thread.join();
  }
  return 0;
}

// One created stream after another: ids are handed out for good, and there are only so many.
int streams(int count) {
  const Cuda cuda({kernel_named("k")});
  const auto destroy = Cuda::symbol<decltype(::cuStreamDestroy)>("cuStreamDestroy_v2");
  for (int i = 0; i < count; ++i) {
    CUstream const stream = cuda.stream();
    Cuda::check(cuda.launch(1, 0, 64, stream), "launch");
    destroy(stream);
  }
  return 0;
}

// One call, a kernel on each of two devices; and the plain launches of a program that switches between them.
int two_devices() {
  Cuda::check(Cuda::symbol<decltype(::cuInit)>("cuInit")(0), "cuInit");
  gpuflight::sim::ModuleImage image;
  image.kernels = {kernel_named("everywhere", 24)};
  const std::string text = gpuflight::sim::write_image(image);
  CUDA_LAUNCH_PARAMS parameters[2] = {};
  static void* arguments[] = {nullptr};
  for (int i = 0; i < 2; ++i) {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUstream stream = nullptr;
    Cuda::check(Cuda::symbol<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, i), "context");
    Cuda::check(Cuda::symbol<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context), "current");
    Cuda::check(Cuda::symbol<decltype(::cuModuleLoadData)>("cuModuleLoadData")(&module, text.data()), "module");
    Cuda::check(Cuda::symbol<decltype(::cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, "everywhere"),
                "function");
    Cuda::check(Cuda::symbol<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), "stream");
    parameters[i] = {function, 10, 1, 1, 128, 1, 1, 0, stream, arguments};
    Cuda::check(Cuda::symbol<decltype(::cuLaunchKernel)>("cuLaunchKernel")(function, 20u + static_cast<unsigned>(i), 1,
                                                                           1, 64, 1, 1, 0, nullptr, arguments, nullptr),
                "launch");
  }
  const auto launch =
      Cuda::symbol<decltype(::cuLaunchCooperativeKernelMultiDevice)>("cuLaunchCooperativeKernelMultiDevice");
  Cuda::check(launch(parameters, 2, 0), "multi-device launch");
  return 0;
}

std::uint64_t own_memory_kb(const char* key) {
  std::FILE* const file = std::fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  unsigned long long kb = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) std::sscanf(line + std::strlen(key), ": %llu", &kb);
  }
  if (file != nullptr) std::fclose(file);
  return kb;
}

// What the process holds while `count` threads launch, many kernels and configurations in use.
int memory(int count, int launches) {
  std::vector<gpuflight::sim::KernelImage> kernels;
  for (int i = 0; i < 64; ++i) kernels.push_back(kernel_named("kernel_" + std::to_string(i), 16 + i));
  const Cuda cuda(kernels);
  std::uint64_t most = 0, most_private = 0;
  std::atomic<int> running{count};
  std::vector<std::thread> alive;
  for (int t = 0; t < count; ++t) {
    alive.emplace_back([&] {
      cuda.use();
      CUstream const stream = cuda.stream();
      for (int i = 0; i < launches; ++i) {
        cuda.launch(1, static_cast<std::size_t>(i) % 64, 32 * (1 + static_cast<unsigned>(i / 64) % 8), stream);
        if (i % 64 == 63) sleep_ms(20);  // so that the recorder keeps up: what is lost takes no memory
      }
      running.fetch_sub(1);
      while (running.load() > 0) sleep_ms(1);
    });
  }
  while (running.load() > 0) {
    most = std::max(most, own_memory_kb("Pss"));
    most_private = std::max(most_private, own_memory_kb("Pss_Anon"));
    sleep_ms(20);
  }
  for (std::thread& thread : alive) thread.join();
  sleep_ms(500);  // the last lines are written
  most = std::max(most, own_memory_kb("Pss"));
  most_private = std::max(most_private, own_memory_kb("Pss_Anon"));
  std::printf("%llu %llu\n", static_cast<unsigned long long>(most), static_cast<unsigned long long>(most_private));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return argc > i ? std::atoi(argv[i]) : 0; };
  if (verb == "locale") return locale();
  if (verb == "close_fds" && argc > 2) return close_fds(argv[2]);
  if (verb == "remove_folder" && argc > 2) return remove_folder(argv[2]);
  if (verb == "move_about") return move_about();
  if (verb == "drop_rights") return drop_rights();
  if (verb == "change_root" && argc > 2) return change_root(argv[2]);
  if (verb == "no_descriptors") return no_descriptors(argc > 2 && std::strcmp(argv[2], "before") == 0);
  if (verb == "modules") return modules(number(2));
  if (verb == "cancel") return cancel();
  if (verb == "threads") return threads(number(2), number(3));
  if (verb == "streams") return streams(number(2));
  if (verb == "two_devices") return two_devices();
  if (verb == "memory") return memory(number(2), number(3));
  std::fprintf(stderr, "usage: hostile_host VERB\n");
  return 2;
}
