// Counts what a thread does while it launches one and the same kernel: allocations and lock calls, by standing before
// the C library's (the executable comes first in symbol search), and launches that made a system call, by asking the
// kernel to stop each (PR_SET_SYSCALL_USER_DISPATCH). Run with and without the recorder: the difference is ours.
//
//   hot_path_host WARM_UP LAUNCHES [bad|graph]     prints {"allocations":N,"locks":N,"launches_with_syscall":N}
//
// `graph`: launches of a graph of 100 nodes. `bad` adds one of each kind per launch from the host itself, to show that
// the counters count. Exit 77: the kernel
// cannot stop system calls.
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>

#include "sim_program.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif

namespace {

// In the executable's own block: reached without a call, also from inside malloc.
__attribute__((tls_model("local-exec"))) thread_local bool t_counting = false;
__attribute__((tls_model("local-exec"))) thread_local std::uint64_t t_allocations = 0, t_locks = 0;

void allocated() {
  if (t_counting) ++t_allocations;
}
void locked() {
  if (t_counting) ++t_locks;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

constexpr char kAllow = 0, kBlock = 1;
volatile char g_selector = kAllow;
volatile std::uint64_t g_syscalls = 0;
volatile long g_last_syscall = -1;

// The stopped call is made after all; the thread goes on unwatched until its next launch.
void on_stopped_call(int, siginfo_t* info, void* context) {
  g_selector = kAllow;
  g_syscalls = g_syscalls + 1;
  g_last_syscall = info->si_syscall;
#ifdef __x86_64__
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RAX] = syscall(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                               registers[REG_R10], registers[REG_R8], registers[REG_R9]);
  if (registers[REG_RAX] == -1) registers[REG_RAX] = -errno;
#else
  (void)context;
#endif
}

bool watch_system_calls() {
  struct sigaction action {};
  action.sa_sigaction = &on_stopped_call;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &g_selector) == 0;
}

CUgraphExec graph_of(const gpuflight::test::Cuda& cuda, int nodes) {
  using gpuflight::test::Cuda;
  CUgraph graph = nullptr;
  Cuda::check(Cuda::symbol<decltype(::cuGraphCreate)>("cuGraphCreate")(&graph, 0), "cuGraphCreate");
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = cuda.function(0);
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 64;
  for (int i = 0; i < nodes; ++i) {
    CUgraphNode node = nullptr;
    Cuda::check(Cuda::symbol<decltype(::cuGraphAddKernelNode)>("cuGraphAddKernelNode_v2")(&node, graph, nullptr, 0,
                                                                                          &params),
                "cuGraphAddKernelNode");
  }
  CUgraphExec exec = nullptr;
  Cuda::check(Cuda::symbol<decltype(::cuGraphInstantiate)>("cuGraphInstantiateWithFlags")(&exec, graph, 0),
              "cuGraphInstantiate");
  return exec;
}

}  // namespace

// __libc_* are the C library's own names for what stands under malloc and its kin: dlsym itself allocates.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void __libc_free(void*);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) { allocated(); return __libc_malloc(size); }
void* calloc(std::size_t count, std::size_t size) { allocated(); return __libc_calloc(count, size); }
void* realloc(void* old, std::size_t size) { allocated(); return __libc_realloc(old, size); }
void free(void* memory) { if (memory != nullptr) allocated(); __libc_free(memory); }
void* aligned_alloc(std::size_t alignment, std::size_t size) { allocated(); return __libc_memalign(alignment, size); }
void* memalign(std::size_t alignment, std::size_t size) { allocated(); return __libc_memalign(alignment, size); }
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  allocated();
  *out = __libc_memalign(alignment, size);
  return *out != nullptr ? 0 : ENOMEM;
}

#define COUNTED(NAME, PARAMETERS, ARGUMENTS)                    \
  int NAME PARAMETERS {                                         \
    locked();                                                   \
    static auto* const real = next<int PARAMETERS>(#NAME);      \
    return real ARGUMENTS;                                      \
  }
COUNTED(pthread_mutex_lock, (pthread_mutex_t * m) noexcept, (m))
COUNTED(pthread_mutex_trylock, (pthread_mutex_t * m) noexcept, (m))
COUNTED(pthread_mutex_timedlock, (pthread_mutex_t * m, const timespec* t) noexcept, (m, t))
COUNTED(pthread_rwlock_rdlock, (pthread_rwlock_t * l) noexcept, (l))
COUNTED(pthread_rwlock_wrlock, (pthread_rwlock_t * l) noexcept, (l))
COUNTED(pthread_rwlock_tryrdlock, (pthread_rwlock_t * l) noexcept, (l))
COUNTED(pthread_rwlock_trywrlock, (pthread_rwlock_t * l) noexcept, (l))
COUNTED(pthread_spin_lock, (pthread_spinlock_t * l) noexcept, (l))
COUNTED(pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t* m), (c, m))
COUNTED(pthread_cond_timedwait, (pthread_cond_t * c, pthread_mutex_t* m, const timespec* t), (c, m, t))
COUNTED(pthread_cond_signal, (pthread_cond_t * c) noexcept, (c))
COUNTED(pthread_cond_broadcast, (pthread_cond_t * c) noexcept, (c))
COUNTED(sem_wait, (sem_t * s), (s))
COUNTED(sem_post, (sem_t * s) noexcept, (s))
COUNTED(pthread_setcancelstate, (int state, int* old), (state, old))
}

int main(int argc, char** argv) {
  const int warm_up = argc > 1 ? std::atoi(argv[1]) : 20;
  const int launches = argc > 2 ? std::atoi(argv[2]) : 200;
  const bool bad = argc > 3 && std::strcmp(argv[3], "bad") == 0;
  const bool graphs = argc > 3 && std::strcmp(argv[3], "graph") == 0;
  const gpuflight::test::Cuda cuda({gpuflight::test::kernel_named("hot")});
  CUstream const stream = cuda.stream();
  CUgraphExec const exec = graphs ? graph_of(cuda, 100) : nullptr;
  auto* const launch_graph = gpuflight::test::Cuda::symbol<decltype(::cuGraphLaunch)>("cuGraphLaunch");
  const auto launch = [&] { return graphs ? launch_graph(exec, stream) : cuda.launch(1, 0, 64, stream); };
  for (int i = 0; i < warm_up; ++i) gpuflight::test::Cuda::check(launch(), "launch");
  if (!watch_system_calls()) {
    std::fprintf(stderr, "this kernel has no syscall user dispatch\n");
    return 77;
  }
  static std::mutex mutex;
  int failed = 0;
  for (int i = 0; i < launches; ++i) {
    t_counting = true;
    g_selector = kBlock;
    failed += launch() != CUDA_SUCCESS;
    if (bad) {
      const std::lock_guard lock(mutex);
      void* volatile memory = std::malloc(100);
      std::free(memory);
      getppid();
    }
    g_selector = kAllow;
    t_counting = false;
  }
  std::printf("{\"allocations\":%llu,\"locks\":%llu,\"launches_with_syscall\":%llu,\"last_syscall\":%ld,"
              "\"failed\":%d}\n",
              static_cast<unsigned long long>(t_allocations), static_cast<unsigned long long>(t_locks),
              static_cast<unsigned long long>(g_syscalls), static_cast<long>(g_last_syscall), failed);
  return 0;
}
