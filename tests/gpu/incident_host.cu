// Programs that go wrong on the GPU, to see what the recorder says of it: incident_host MODE [SECONDS]
//   illegal   a kernel among good ones writes where nothing is
//   assert    a kernel's assert fails
//   spin      a kernel that runs for SECONDS, small ones behind it, the main thread in a synchronise
//   hang      the same for ever; the program ends itself by exit() after SECONDS, on a second thread
//   clean     the good kernels only
// Prints what the CUDA calls returned, so that output with and without the recorder can be compared.
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

__global__ void good(float* data) { data[threadIdx.x] += 1.0f; }
__global__ void bad_address(float* data) { data[1ull << 40] = 1.0f; }
__global__ void failing_assert(float* data) { assert(data == nullptr); }
__global__ void spin(long long cycles) {
  const long long begin = clock64();
  // A loop without an effect may be taken out, also one that never ends.
  for (volatile long long now = begin; cycles < 0 || now - begin < cycles; now = clock64()) {
  }
}

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "clean";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  float* data = nullptr;
  cudaMalloc(&data, 4096);
  cudaStream_t other;
  cudaStreamCreate(&other);
  for (int i = 0; i < 200; ++i) good<<<1, 32>>>(data);
  for (int i = 0; i < 100; ++i) good<<<1, 32, 0, other>>>(data);
  std::printf("sync %d\n", cudaDeviceSynchronize());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (int i = 0; i < 10; ++i) good<<<1, 32>>>(data);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (std::strcmp(mode, "illegal") == 0) {
    bad_address<<<1, 32>>>(data);
  } else if (std::strcmp(mode, "assert") == 0) {
    failing_assert<<<1, 32>>>(data);
  } else if (std::strcmp(mode, "spin") == 0) {
    spin<<<1, 1>>>(static_cast<long long>(seconds * 1.7e9));
  } else if (std::strcmp(mode, "hang") == 0) {
    spin<<<1, 1>>>(-1);
    std::thread([seconds] {
      usleep(static_cast<useconds_t>(seconds * 1e6));
      std::puts("leaving");
      std::fflush(stdout);
      std::exit(3);
    }).detach();
  }
  for (int i = 0; i < 5; ++i) good<<<1, 32>>>(data);
  std::printf("launch %d\n", cudaPeekAtLastError());
  std::fflush(stdout);
  std::printf("sync %d\n", cudaDeviceSynchronize());
  good<<<1, 32>>>(data);
  std::printf("after %d\n", cudaGetLastError());
  return 0;
}
