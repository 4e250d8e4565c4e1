// A host whose memory runs out for the recorder alone: its malloc stands before the C library's and refuses what
// libgpuflight asks for, so that bad_alloc is thrown inside our callbacks, our start and our threads.
//
//   starved_host once N      the N-th allocation of the recorder (from 0) is refused
//   starved_host from N      that one and all that follow
// Prints what it launched; with STARVED_COUNT=FILE it writes there how often the recorder asked.
#include <link.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::kernel_named;

namespace {

std::atomic<std::uintptr_t> g_begin{0}, g_end{0};  // of libgpuflight's code; 0: nothing is refused
std::atomic<std::int64_t> g_asked{0};
std::int64_t g_refused = INT64_MAX;
bool g_once = false;

bool refused(const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address < g_begin.load(std::memory_order_relaxed) || address >= g_end.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::int64_t number = g_asked.fetch_add(1);
  if (g_once ? number != g_refused : number < g_refused) return false;
  errno = ENOMEM;
  return true;
}

int find_library(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libgpuflight.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    g_end.store(info->dlpi_addr + part.p_vaddr + part.p_memsz);
    g_begin.store(info->dlpi_addr + part.p_vaddr);
  }
  return 1;
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t n, std::size_t bytes) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_calloc(n, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* old, std::size_t bytes) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_realloc(old, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (refused(__builtin_return_address(0))) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out != nullptr ? 0 : ENOMEM;
}

}  // extern "C"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  g_once = std::strcmp(argv[1], "once") == 0;
  g_refused = std::strtoll(argv[2], nullptr, 10);
  dl_iterate_phdr(&find_library, nullptr);

  std::vector<gpuflight::sim::KernelImage> kernels;
  for (int i = 0; i < 12; ++i) kernels.push_back(kernel_named("kernel_" + std::to_string(i), 16 + i));
  const Cuda cuda(kernels);
  std::atomic<int> launched{0};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        cuda.use();
        CUstream const stream = cuda.stream();
        for (int i = 0; i < 60; ++i) {
          const auto kernel = static_cast<std::size_t>(i + t) % kernels.size();
          launched += cuda.launch(1, kernel, 32 * (1 + static_cast<unsigned>(round)), stream) == CUDA_SUCCESS;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Cuda::check(Cuda::symbol<decltype(::cuCtxSynchronize)>("cuCtxSynchronize")(), "cuCtxSynchronize");
  std::printf("launched %d\n", launched.load());
  if (const char* const file = std::getenv("STARVED_COUNT")) {
    if (std::FILE* const out = std::fopen(file, "w")) {
      std::fprintf(out, "%lld\n", static_cast<long long>(g_asked.load()));
      std::fclose(out);
    }
  }
  return 0;
}
