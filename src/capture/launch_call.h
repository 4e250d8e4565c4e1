// One launch as its source saw it: what CUPTI's callback and, later, an interposed entry point know at entry.
// Handles are the driver's, opaque here.
#pragma once

#include <cstdint>

#include "event/api_call.h"
#include "event/kernel_config.h"

namespace gpuflight::capture {

struct LaunchCall {
  const void* function = nullptr;  // CUfunction or CUkernel
  const char* symbol = nullptr;    // mangled name; valid only during the call; may be null
  const void* context = nullptr;   // CUcontext
  std::uint32_t context_uid = 0;
  const void* stream = nullptr;  // CUstream as given: null, 1 (legacy), 2 (per thread) or a handle
  bool per_thread_default = false;  // the _ptsz form: a null stream means this thread's own
  event::Dim3 grid;
  event::LaunchShape shape;  // block, dynamic shared memory and what the launch's attributes say
  std::uint32_t correlation = 0;
  bool programmatic = false;  // may begin before the kernel ahead of it has ended
  bool one_of_several = false;  // that one call launches
};

struct GraphCall {
  const void* graph_exec = nullptr;  // CUgraphExec
  const void* context = nullptr;
  std::uint32_t context_uid = 0;
  const void* stream = nullptr;
  bool per_thread_default = false;
  std::uint32_t correlation = 0;
};

// What an allocation or a free is about. `address`: of virtual memory its handle. `owner`: the pool, or the handle of
// what is mapped. Each 0, or -1, where the call does not say.
struct MemoryArguments {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t owner = 0;
  std::int32_t device = -1;
};

// A call beside launches: one of capture/watched_calls.h.
struct DriverCall {
  event::ApiCall call = event::ApiCall::kNone;
  bool may_wait = false;  // for the GPU
  bool has_stream = false;
  bool per_thread_default = false;
  const void* stream = nullptr;
  const void* context = nullptr;
  std::uint32_t context_uid = 0;
  std::uint32_t correlation = 0;  // of copies and fills
  std::uint64_t event = 0;        // of edges between streams: the CUevent
  MemoryArguments memory;         // of allocations and frees
};

}  // namespace gpuflight::capture
