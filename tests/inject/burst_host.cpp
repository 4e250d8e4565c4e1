// Host for burst_test.py: launches as fast as it can, and says of each when it began and came back, by CLOCK_MONOTONIC:
// {"threads":{TID:[before,after,...],...}}, in the order of its launches.
//
//   burst_host plain N THREADS  N launches a thread, then a wait
//   burst_host paused N         N launches, 20 ms without a call of the driver, and N more
//   burst_host mixed N          N launches with a copy or a failing launch now and then
//   burst_host unloaded N       N launches each of two modules that come one after the other, maybe at the same address
//   burst_host exit N           N launches from a thread that ends at once, and from its thread-specific data's destructor
//   burst_host killed N         N launches, then says what it has to say and kills itself
#include <cuda.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

namespace {

// Of one thread: its id, and of each launch before and after.
struct Times : std::vector<std::int64_t> {
  pid_t tid = 0;
};

std::int64_t now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void launch(const Cuda& cuda, Times& times, CUstream stream, CUresult expected = CUDA_SUCCESS, unsigned block = 64) {
  times.push_back(now());
  const CUresult result = cuda.launch(1, 0, block, stream);
  times.push_back(now());
  if (result != expected) fail("launch: " + std::to_string(result));
}

void launch_many(const Cuda& cuda, Times& times, CUstream stream, int n) {
  times.tid = gettid();
  for (int i = 0; i < n; ++i) launch(cuda, times, stream);
}

void wait(CUstream stream) {
  Cuda::check(Cuda::symbol<decltype(::cuStreamSynchronize)>("cuStreamSynchronize")(stream), "cuStreamSynchronize");
}

void say(const std::vector<Times>& threads) {
  std::string text = "{\"threads\":{";
  for (const Times& times : threads) {
    text += (&times == threads.data() ? "\"" : ",\"") + std::to_string(times.tid) + "\":[";
    for (std::size_t i = 0; i < times.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(times[i]);
    text += "]";
  }
  std::puts((text + "}}").c_str());
  std::fflush(stdout);
}

struct AtExit {
  const Cuda* cuda;
  Times* times;
  CUstream stream;
  int launches;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) fail("which, and how many?");
  const std::string what = argv[1];
  const int n = std::atoi(argv[2]);
  const Cuda cuda({kernel_named("k")});
  const CUstream stream = cuda.stream();
  std::vector<Times> threads(what == "plain" && argc > 3 ? static_cast<std::size_t>(std::atoi(argv[3])) : 1);
  Times& times = threads[0];
  if (what == "plain") {
    std::vector<std::thread> running;
    for (Times& own : threads) {
      running.emplace_back([&] {
        cuda.use();
        launch_many(cuda, own, stream, n);
      });
    }
    for (std::thread& thread : running) thread.join();
  } else if (what == "paused") {
    launch_many(cuda, times, stream, n);
    const timespec rest{0, 20'000'000};
    nanosleep(&rest, nullptr);
    launch_many(cuda, times, stream, n);
  } else if (what == "mixed") {
    const auto copy = Cuda::symbol<decltype(::cuMemcpyHtoDAsync)>("cuMemcpyHtoDAsync_v2");
    CUdeviceptr memory = 0;
    Cuda::check(Cuda::symbol<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&memory, 64), "cuMemAlloc");
    times.tid = gettid();
    for (int i = 0; i < n; ++i) {
      if (i % 50 == 20) Cuda::check(copy(memory, &what, 8, stream), "copy");
      if (i % 70 == 40) {
        launch(cuda, times, stream, CUDA_ERROR_INVALID_VALUE, 4096);
      } else {
        launch(cuda, times, stream);
      }
    }
  } else if (what == "unloaded") {
    launch_many(cuda, times, stream, n);
    const Cuda other({kernel_named("other")});
    launch_many(other, times, stream, n);
  } else if (what == "exit") {
    static pthread_key_t key;
    pthread_key_create(&key, [](void* value) {
      const auto& last = *static_cast<AtExit*>(value);
      launch_many(*last.cuda, *last.times, last.stream, last.launches);
    });
    AtExit last{&cuda, &times, stream, n};
    std::thread([&] {
      cuda.use();
      pthread_setspecific(key, &last);
      launch_many(cuda, times, stream, n);
    }).join();
  } else if (what == "killed") {
    launch_many(cuda, times, stream, n);
    say(threads);
    kill(getpid(), SIGKILL);
  } else {
    fail("what is " + what + "?");
  }
  wait(stream);
  say(threads);
}
