// A program to be killed: threads launch an empty kernel at a steady rate, each on a stream of its own, and count in a
// mapped file what has returned.
//
//   kill_host FILE [--threads N] [--rate LAUNCHES_PER_SECOND] [--simulated]
//
// FILE holds one 64-byte line for each thread, whose first 8 bytes are its count. Ends after a minute by itself.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "kernel_image.h"

namespace {

struct alignas(64) Counter {
  std::atomic<std::uint64_t> returned;
};

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "kill_host: %s gave %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  int threads = 8;
  double rate = 20000;
  bool simulated = false;
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--simulated") simulated = true;
    else if (option == "--threads" && i + 1 < argc) threads = std::atoi(argv[++i]);
    else if (option == "--rate" && i + 1 < argc) rate = std::atof(argv[++i]);
  }
  if (argc < 2 || threads < 1 || rate <= 0) {
    std::fprintf(stderr, "usage: kill_host FILE [--threads N] [--rate LAUNCHES_PER_SECOND] [--simulated]\n");
    return 2;
  }
  const std::size_t bytes = static_cast<std::size_t>(threads) * sizeof(Counter);
  const int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    std::perror(argv[1]);
    return 1;
  }
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* const counters = static_cast<Counter*>(mapped);

  must(cuInit(0), "cuInit");
  CUdevice device = 0;
  CUcontext context = nullptr;
  must(cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  must(cuModuleLoadData(&module, gpuflight::gpu_tests::module_text({{"tick"}}, simulated).c_str()), "cuModuleLoadData");
  must(cuModuleGetFunction(&kernel, module, "tick"), "cuModuleGetFunction");

  std::vector<std::thread> launchers;
  for (int t = 0; t < threads; ++t) {
    launchers.emplace_back([=] {
      must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      CUstream stream = nullptr;
      must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      const auto begin = Clock::now();
      std::uint64_t done = 0;
      while (Clock::now() - begin < std::chrono::minutes(1)) {
        must(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
        counters[t].returned.store(++done, std::memory_order_relaxed);
        std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                                  static_cast<double>(done) * threads / rate)));
      }
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  return 0;
}
