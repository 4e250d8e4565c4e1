// Calls, from a library linked as libgpuflight.so is, everything that src/inject/glibc_floor.cpp redirects and that we
// or the archives linked in (libstdc++, libgcc, zstd) use: threads, locks with deadlines, dl*, stat, exceptions.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Report = void (*)(const char* what, int ok);

pthread_key_t key;
pthread_once_t once = PTHREAD_ONCE_INIT;
std::mutex mutex;
std::condition_variable condition;
bool started = false;

// Frames between throw and catch hold objects with destructors, so that both unwinding phases have work.
void throw_deep(int depth, int& destroyed) {
  struct Counter {
    int& destroyed;
    ~Counter() { ++destroyed; }
  } counter{destroyed};
  if (depth == 0) throw std::out_of_range("deep " + std::string(40, 'x'));
  throw_deep(depth - 1, destroyed);
}

bool catches() {
  int destroyed = 0;
  try {
    throw_deep(20, destroyed);
  } catch (const std::out_of_range& error) {
    return destroyed == 21 && std::string(error.what()).starts_with("deep xxx");
  }
  return false;
}

void* thread_entry(void*) {
  pthread_setspecific(key, &key);
  const bool ok = catches() && pthread_getspecific(key) == &key;
  const std::lock_guard lock(mutex);
  started = true;
  condition.notify_all();
  return ok ? &started : nullptr;
}

bool threads() {
  pthread_once(&once, [] { pthread_key_create(&key, nullptr); });
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, thread_entry, nullptr) != 0) return false;
  pthread_setname_np(thread, "probe");
  {
    std::unique_lock lock(mutex);
    if (!condition.wait_for(lock, 10s, [] { return started; })) return false;
  }
  void* result = nullptr;
  return pthread_join(thread, &result) == 0 && result == &started;
}

// Each must time out, not at once and not much too late, on the steady clock that libstdc++ uses.
bool deadlines() {
  const auto timed = [](auto wait) {
    const auto begin = std::chrono::steady_clock::now();
    const bool got = wait();
    const auto took = std::chrono::steady_clock::now() - begin;
    return !got && took >= 20ms && took < 5s;
  };
  std::mutex m;
  std::condition_variable cv;
  std::timed_mutex timed_mutex;
  std::shared_timed_mutex shared;
  timed_mutex.lock();
  shared.lock();
  bool ok = timed([&] {
    std::unique_lock lock(m);
    return cv.wait_for(lock, 20ms, [] { return false; });
  });
  // A lock is tried from another thread: trying one's own is undefined.
  std::thread([&] { ok = timed([&] { return timed_mutex.try_lock_for(20ms); }) && ok; }).join();
  std::thread([&] { ok = timed([&] { return shared.try_lock_for(20ms); }) && ok; }).join();
  std::thread([&] { ok = timed([&] { return shared.try_lock_shared_for(20ms); }) && ok; }).join();
  timed_mutex.unlock();
  shared.unlock();
  return ok && timed_mutex.try_lock_for(1s) && shared.try_lock_for(1s);
}

bool dynamic_linker() {
  void* libm = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  Dl_info info{};
  const bool ok = libm != nullptr && dlsym(libm, "cos") != nullptr && dlsym(RTLD_DEFAULT, "printf") != nullptr &&
                  dladdr(reinterpret_cast<void*>(&dynamic_linker), &info) != 0 && info.dli_fname != nullptr;
  return ok && dlopen("/nonexistent.so", RTLD_NOW) == nullptr && dlerror() != nullptr && dlclose(libm) == 0;
}

bool files() {
  struct stat root{}, other{};
  std::error_code error;
  return stat("/", &root) == 0 && S_ISDIR(root.st_mode) && lstat("/proc/self/exe", &other) == 0 &&
         S_ISLNK(other.st_mode) && fstat(0, &other) == 0 && stat("/nonexistent", &other) == -1 && errno == ENOENT &&
         std::filesystem::exists("/proc", error);
}

bool compression() {
  const std::string text(100'000, 'a');
  std::vector<char> packed(ZSTD_compressBound(text.size()));
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  std::string back(text.size(), '\0');
  return ZSTD_decompress(back.data(), back.size(), packed.data(), size) == text.size() && back == text;
}

bool arithmetic() {
  volatile double one = 1.0;
  return std::exp(0.0 * one) == 1.0 && std::log(one) == 0.0 && std::pow(1.5 * one, 2) == 2.25 &&
         std::hypot(3 * one, 4) == 5 && std::fmod(7 * one, 4) == 3 && std::log2(8 * one) == 3;
}

bool numbers_from_text() {
  return std::stol("42") == 42 && std::stoull("18446744073709551615") == UINT64_MAX &&
         std::strtol("0x1f", nullptr, 0) == 31;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void gpuflight_probe(Report report) {
  report("exceptions, caught in the thread that loaded", catches());
  report("pthread_create, keys, condition variable", threads());
  report("deadlines on the steady clock", deadlines());
  report("dlopen, dlsym, dladdr, dlerror", dynamic_linker());
  report("stat, lstat, fstat", files());
  report("zstd", compression());
  report("exp, log, pow, hypot, fmod, log2", arithmetic());
  report("strtol and the like", numbers_from_text());
  report("gettid", gettid() == getpid());
  report("random_device", std::random_device()() != std::random_device()() || std::random_device()() != 0);
  auto one = std::make_shared<int>(1);
  auto two = one;
  report("shared_ptr", one.use_count() == 2);
}

// Preloaded into a program of an older system, which cannot run a host built here, the probe reports by itself.
__attribute__((constructor)) static void probe_alone() {
  if (std::getenv("GPUFLIGHT_TEST_PROBE_ALONE") == nullptr) return;
  static int failed = 0;
  gpuflight_probe([](const char* what, int ok) {
    std::printf("%s: %s\n", ok ? "ok" : "FAILED", what);
    failed += !ok;
  });
  std::fflush(stdout);
  _exit(failed != 0);
}
