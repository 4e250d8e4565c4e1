// The driver calls beside launches that are recorded, by CUPTI's callback id, and what is read off their parameters.
//
// Threads: any. Constant data, found by one index; nothing blocks or allocates.
#pragma once

#include <cstdint>
#include <cupti.h>
#include <span>

#include "capture/launch_call.h"
#include "event/api_call.h"

namespace gpuflight::capture {

struct WatchedCall {
  static constexpr std::uint8_t kNoStream = 0xFF, kContext = 0xFE;

  std::uint8_t call = 0;                  // event::ApiCall; 0: not watched
  std::uint8_t stream_at = kNoStream;     // where in the parameters its stream is; kContext: the context it is of comes first
  bool per_thread_default = false;        // the _ptds or _ptsz form: a null stream means the thread's own
  bool may_wait = false;                  // returns when the GPU has got somewhere, or may

  event::ApiCall api() const noexcept { return static_cast<event::ApiCall>(call); }
  bool has_stream() const noexcept { return stream_at < kContext; }
  const void* stream(const void* params) const noexcept {
    return *reinterpret_cast<void* const*>(static_cast<const char*>(params) + stream_at);
  }
  // Null: of the current one.
  CUcontext context(const void* params) const noexcept {
    return stream_at == kContext ? *static_cast<const CUcontext*>(params) : nullptr;
  }
};
static_assert(sizeof(WatchedCall) == 4 && event::kApiCallCount <= 256);

// Null: not watched.
const WatchedCall* watched_call(CUpti_CallbackId id) noexcept;

// The ids to be enabled: of all but the edges between streams, and of these, which come more often than all others.
std::span<const CUpti_CallbackId> watched_ids() noexcept;
std::span<const CUpti_CallbackId> edge_ids() noexcept;

// As the call is entered: what the program gave by value.
MemoryArguments memory_arguments(event::ApiCall call, const void* params) noexcept;
// When it has succeeded: with what the driver wrote through the program's pointers.
MemoryArguments memory_result(event::ApiCall call, const void* params) noexcept;

// The CUevent of a call between streams.
std::uint64_t event_of(event::ApiCall call, const void* params) noexcept;

}  // namespace gpuflight::capture
