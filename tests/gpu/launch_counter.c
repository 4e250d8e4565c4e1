/* Counts kernel and graph launches independently of the recorder, so that the two numbers can be compared: a preload
 * library that stands in front of the driver's launch functions, however a program comes by them (dlsym,
 * cuGetProcAddress in both versions, a direct link to libcuda). It never changes an argument or a result.
 *
 * At exit it writes one JSON object to $LAUNCH_COUNTER_OUT (%p is the process id), in processes that asked for a driver
 * function only. Counted are calls, launches (a multi-device call makes several), those refused (status not 0) and
 * those made while their stream was being captured.
 *
 * Threads: any. Blocks: no. Allocates: no. Own declarations of the driver's types, since cuda.h renames the functions
 * that are wrapped here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int result_t;
typedef void* handle_t;

/* CUlaunchConfig and CUDA_LAUNCH_PARAMS as far as they are read. */
typedef struct launch_config {
  unsigned grid[3], block[3], shared_bytes;
  handle_t stream;
} launch_config;

enum { kErrorNotFound = 500 };

#define FORMS(X)                                                                                             \
  X(cuLaunchKernel) X(cuLaunchKernel_ptsz) X(cuLaunchKernelEx) X(cuLaunchKernelEx_ptsz)                      \
  X(cuLaunchCooperativeKernel) X(cuLaunchCooperativeKernel_ptsz) X(cuLaunchCooperativeKernelMultiDevice)     \
  X(cuLaunch) X(cuLaunchGrid) X(cuLaunchGridAsync) X(cuGraphLaunch) X(cuGraphLaunch_ptsz)
#define OTHERS(X)                                                                                            \
  X(cuGetProcAddress) X(cuGetProcAddress_v2) X(cuStreamBeginCapture) X(cuStreamBeginCapture_ptsz)            \
  X(cuStreamBeginCapture_v2) X(cuStreamBeginCapture_v2_ptsz) X(cuStreamBeginCaptureToGraph)                  \
  X(cuStreamBeginCaptureToGraph_ptsz)

#define AS_ENUM(name) k_##name,
enum { FORMS(AS_ENUM) kFormCount, kAfterForms = kFormCount - 1, OTHERS(AS_ENUM) kWrappedCount };

static struct {
  _Atomic uint64_t calls, launches, failed, captured;
} counts[kFormCount];

static _Atomic(void*) real_functions[kWrappedCount];
static _Atomic int touched;          /* a driver function was asked for or called in this process */
static _Atomic int captures_begun;   /* from then on every launch asks whether its stream is captured */

typedef void* (*dlsym_t)(void*, const char*);
__attribute__((visibility("hidden"))) dlsym_t launch_counter_real_dlsym;

#define AS_NAME(name) #name,
static const char* const names[kWrappedCount] = {FORMS(AS_NAME) OTHERS(AS_NAME)};
static void* wrapper_of(int index);

/* Before any constructor, too: dlsym is called very early by some allocators. */
static void find_real_dlsym(void) {
  if (launch_counter_real_dlsym != NULL) return;
  static const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
  for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]); ++i) {
    void* found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (found != NULL) {
      launch_counter_real_dlsym = (dlsym_t)found;
      return;
    }
  }
  abort(); /* no C library without dlsym is known */
}

static int index_of(const char* name) {
  if (name == NULL || name[0] != 'c' || name[1] != 'u') return -1;
  for (int i = 0; i < kWrappedCount; ++i) {
    if (strcmp(names[i], name) == 0) return i;
  }
  return -1;
}

/* The first address found stays: the driver gives the same function by every way. */
static void remember(int index, void* function) {
  void* none = NULL;
  if (function != wrapper_of(index)) atomic_compare_exchange_strong(&real_functions[index], &none, function);
}

static void* driver_symbol(const char* name) {
  find_real_dlsym();
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == NULL) driver = dlopen("libcuda.so.1", RTLD_LAZY);
  return driver == NULL ? NULL : launch_counter_real_dlsym(driver, name);
}

static void* real_of(int index) {
  void* function = atomic_load(&real_functions[index]);
  if (function == NULL) {
    atomic_store(&touched, 1);
    function = driver_symbol(names[index]);
    if (function != NULL) remember(index, function);
  }
  return function;
}

/* What dlsym answers for a name that is wrapped; NULL: ask the real one. */
__attribute__((visibility("hidden"), used)) void* launch_counter_lookup(void* handle, const char* name) {
  find_real_dlsym();
  const int index = index_of(name);
  if (index < 0) return NULL;
  void* function = launch_counter_real_dlsym(handle, name);
  if (function == NULL) return NULL;
  atomic_store(&touched, 1);
  remember(index, function);
  return wrapper_of(index);
}

/* RTLD_NEXT and RTLD_DEFAULT mean the caller's surroundings, which the real dlsym reads off its return address: it
 * must be reached by a jump. */
#if defined(__x86_64__)
__asm__(
    ".text\n.globl dlsym\n.type dlsym,@function\n"
    "dlsym:\n"
    "  endbr64\n  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
    "  call launch_counter_lookup\n"
    "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n"
    "  test %rax, %rax\n  jne 1f\n"
    "  jmp *launch_counter_real_dlsym(%rip)\n"
    "1: ret\n.size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl dlsym\n.type dlsym,%function\n"
    "dlsym:\n"
    "  stp x29, x30, [sp, #-32]!\n  stp x0, x1, [sp, #16]\n"
    "  bl launch_counter_lookup\n"
    "  mov x9, x0\n  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #32\n"
    "  cbnz x9, 1f\n"
    "  adrp x10, launch_counter_real_dlsym\n  ldr x10, [x10, :lo12:launch_counter_real_dlsym]\n  br x10\n"
    "1: mov x0, x9\n  ret\n.size dlsym, .-dlsym\n");
#else
#error "dlsym needs a tail call for this architecture"
#endif

static int is_captured(handle_t stream, int per_thread) {
  typedef result_t (*is_capturing_t)(handle_t, int*);
  static _Atomic(void*) functions[2];
  if (!atomic_load(&captures_begun)) return 0;
  void* function = atomic_load(&functions[per_thread]);
  if (function == NULL) {
    function = driver_symbol(per_thread ? "cuStreamIsCapturing_ptsz" : "cuStreamIsCapturing");
    if (function == NULL) return 0;
    atomic_store(&functions[per_thread], function);
  }
  int status = 0;
  return ((is_capturing_t)function)(stream, &status) == 0 && status != 0;
}

static result_t count(int form, unsigned launches, int captured, result_t result) {
  atomic_fetch_add(&counts[form].calls, 1);
  atomic_fetch_add(&counts[form].launches, launches);
  if (result != 0) atomic_fetch_add(&counts[form].failed, launches);
  if (captured) atomic_fetch_add(&counts[form].captured, launches);
  return result;
}

/* One wrapper: look the real one up, note the capture state before the call, count after it. */
#define WRAP(name, launches, captured_expression, parameters, arguments)                \
  EXPORT result_t name parameters {                                                     \
    typedef result_t(*function_t) parameters;                                           \
    function_t function = (function_t)real_of(k_##name);                                \
    if (function == NULL) return kErrorNotFound;                                        \
    const int captured = (captured_expression);                                         \
    return count(k_##name, (launches), captured, function arguments);                   \
  }

#define KERNEL_PARAMETERS                                                                                         \
  (handle_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,    \
   handle_t stream, void** parameters, void** extra)
#define KERNEL_ARGUMENTS (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)
WRAP(cuLaunchKernel, 1, is_captured(stream, 0), KERNEL_PARAMETERS, KERNEL_ARGUMENTS)
WRAP(cuLaunchKernel_ptsz, 1, is_captured(stream, 1), KERNEL_PARAMETERS, KERNEL_ARGUMENTS)

#define EX_PARAMETERS (const launch_config* config, handle_t f, void** parameters, void** extra)
#define EX_ARGUMENTS (config, f, parameters, extra)
WRAP(cuLaunchKernelEx, 1, config != NULL && is_captured(config->stream, 0), EX_PARAMETERS, EX_ARGUMENTS)
WRAP(cuLaunchKernelEx_ptsz, 1, config != NULL && is_captured(config->stream, 1), EX_PARAMETERS, EX_ARGUMENTS)

#define COOPERATIVE_PARAMETERS                                                                                    \
  (handle_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,    \
   handle_t stream, void** parameters)
#define COOPERATIVE_ARGUMENTS (f, gx, gy, gz, bx, by, bz, shared, stream, parameters)
WRAP(cuLaunchCooperativeKernel, 1, is_captured(stream, 0), COOPERATIVE_PARAMETERS, COOPERATIVE_ARGUMENTS)
WRAP(cuLaunchCooperativeKernel_ptsz, 1, is_captured(stream, 1), COOPERATIVE_PARAMETERS, COOPERATIVE_ARGUMENTS)

WRAP(cuLaunchCooperativeKernelMultiDevice, devices, 0, (void* list, unsigned devices, unsigned flags),
     (list, devices, flags))
WRAP(cuLaunch, 1, 0, (handle_t f), (f))
WRAP(cuLaunchGrid, 1, 0, (handle_t f, int width, int height), (f, width, height))
WRAP(cuLaunchGridAsync, 1, is_captured(stream, 0), (handle_t f, int width, int height, handle_t stream),
     (f, width, height, stream))
WRAP(cuGraphLaunch, 1, is_captured(stream, 0), (handle_t graph, handle_t stream), (graph, stream))
WRAP(cuGraphLaunch_ptsz, 1, is_captured(stream, 1), (handle_t graph, handle_t stream), (graph, stream))

#define WRAP_CAPTURE(name, parameters, arguments)                  \
  EXPORT result_t name parameters {                                \
    typedef result_t(*function_t) parameters;                      \
    function_t function = (function_t)real_of(k_##name);           \
    if (function == NULL) return kErrorNotFound;                   \
    atomic_store(&captures_begun, 1);                              \
    return function arguments;                                     \
  }
WRAP_CAPTURE(cuStreamBeginCapture, (handle_t stream), (stream))
WRAP_CAPTURE(cuStreamBeginCapture_ptsz, (handle_t stream), (stream))
WRAP_CAPTURE(cuStreamBeginCapture_v2, (handle_t stream, int mode), (stream, mode))
WRAP_CAPTURE(cuStreamBeginCapture_v2_ptsz, (handle_t stream, int mode), (stream, mode))
#define TO_GRAPH_PARAMETERS                                                                              \
  (handle_t stream, handle_t graph, const handle_t* nodes, const void* edges, size_t count_, int mode)
#define TO_GRAPH_ARGUMENTS (stream, graph, nodes, edges, count_, mode)
WRAP_CAPTURE(cuStreamBeginCaptureToGraph, TO_GRAPH_PARAMETERS, TO_GRAPH_ARGUMENTS)
WRAP_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, TO_GRAPH_PARAMETERS, TO_GRAPH_ARGUMENTS)

/* cuGetProcAddress names a function without suffix; version and flags choose among its forms. */
static void replace_address(const char* symbol, void** address, int version, uint64_t flags) {
  enum { kPerThreadDefaultStream = 2 };
  char name[64];
  if (symbol == NULL || address == NULL || *address == NULL || strlen(symbol) > 40) return;
  strcpy(name, symbol);
  if (strcmp(symbol, "cuGetProcAddress") == 0 && version >= 12000) strcat(name, "_v2");
  if (strcmp(symbol, "cuStreamBeginCapture") == 0 && version >= 10010) strcat(name, "_v2");
  int index = -1;
  if (flags & kPerThreadDefaultStream) {
    char per_thread[80];
    snprintf(per_thread, sizeof(per_thread), "%s_ptsz", name);
    index = index_of(per_thread);
  }
  if (index < 0) index = index_of(name);
  if (index < 0) return;
  remember(index, *address);
  *address = wrapper_of(index);
}

EXPORT result_t cuGetProcAddress(const char* symbol, void** address, int version, uint64_t flags) {
  typedef result_t (*function_t)(const char*, void**, int, uint64_t);
  function_t function = (function_t)real_of(k_cuGetProcAddress);
  if (function == NULL) return kErrorNotFound;
  const result_t result = function(symbol, address, version, flags);
  if (result == 0) replace_address(symbol, address, version, flags);
  return result;
}

EXPORT result_t cuGetProcAddress_v2(const char* symbol, void** address, int version, uint64_t flags, int* found) {
  typedef result_t (*function_t)(const char*, void**, int, uint64_t, int*);
  function_t function = (function_t)real_of(k_cuGetProcAddress_v2);
  if (function == NULL) return kErrorNotFound;
  const result_t result = function(symbol, address, version, flags, found);
  if (result == 0) replace_address(symbol, address, version, flags);
  return result;
}

static void* wrapper_of(int index) {
#define AS_ADDRESS(name) (void*)&name,
  static void* const wrappers[kWrappedCount] = {FORMS(AS_ADDRESS) OTHERS(AS_ADDRESS)};
  return wrappers[index];
}

static void write_json(FILE* out) {
  uint64_t kernels[3] = {0}, graphs[3] = {0};
  fprintf(out, "{\"pid\":%ld,\"forms\":{", (long)getpid());
  for (int i = 0; i < kFormCount; ++i) {
    const uint64_t launches = atomic_load(&counts[i].launches), failed = atomic_load(&counts[i].failed);
    const uint64_t captured = atomic_load(&counts[i].captured);
    uint64_t* sums = i >= k_cuGraphLaunch ? graphs : kernels;
    sums[0] += launches;
    sums[1] += failed;
    sums[2] += captured;
    fprintf(out, "%s\"%s\":{\"calls\":%llu,\"launches\":%llu,\"failed\":%llu,\"captured\":%llu}", i ? "," : "",
            names[i], (unsigned long long)atomic_load(&counts[i].calls), (unsigned long long)launches,
            (unsigned long long)failed, (unsigned long long)captured);
  }
  fprintf(out, "},\"kernels\":%llu,\"kernels_failed\":%llu,\"kernels_captured\":%llu,"
          "\"graphs\":%llu,\"graphs_failed\":%llu,\"graphs_captured\":%llu}\n",
          (unsigned long long)kernels[0], (unsigned long long)kernels[1], (unsigned long long)kernels[2],
          (unsigned long long)graphs[0], (unsigned long long)graphs[1], (unsigned long long)graphs[2]);
}

__attribute__((destructor)) static void write_at_exit(void) {
  const char* pattern = getenv("LAUNCH_COUNTER_OUT");
  if (pattern == NULL || !atomic_load(&touched)) return;
  char path[4096];
  const char* pid = strstr(pattern, "%p");
  if (pid == NULL) {
    snprintf(path, sizeof(path), "%s", pattern);
  } else {
    snprintf(path, sizeof(path), "%.*s%ld%s", (int)(pid - pattern), pattern, (long)getpid(), pid + 2);
  }
  FILE* out = fopen(path, "we");
  if (out == NULL) {
    perror(path);
    return;
  }
  write_json(out);
  fclose(out);
}
