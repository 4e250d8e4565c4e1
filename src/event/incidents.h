// What a recording says when something goes wrong on the GPU: errors and hangs, with the evidence at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "event/events.h"

namespace gpuflight::event {

// One launch as evidence.
struct SuspectLaunch {
  Seq seq;
  ConfigId config;
  std::string name;  // mangled
  Dim3 grid, block;
  std::uint32_t dyn_shared_bytes = 0;
  GraphId graph;  // set: a graph launch, no kernel
  std::int64_t launch_ns = 0;
  MaybeStatus status;
};

// Launches of a stream that are not known to have finished, oldest first.
struct StreamInFlight {
  StreamId stream;
  std::uint64_t count = 0;               // how many; launches has the first few
  std::vector<SuspectLaunch> launches;
  std::int64_t finished_ns = 0;          // what had been launched by then is done; 0: nothing is known
};

// A host thread inside a call that has not come back.
struct BlockedCall {
  std::uint32_t thread = 0;
  std::string call;
  std::int64_t since_ns = 0;
};

struct ErrorEvent {
  Seq seq;
  std::int64_t time_ns = 0;
  std::int32_t code = 0;
  std::string name;  // CUDA_ERROR_ILLEGAL_ADDRESS
  std::string call;  // that returned it first
  std::uint32_t thread = 0;
  ContextId context;
  // The launch that is the likely cause, and how sure that is: "exact" (the only one not known to have finished),
  // "oldest_in_flight" (the first of several), "none" (nothing in flight, or no markers).
  std::optional<SuspectLaunch> culprit;
  std::string confidence = "none";
  std::vector<StreamInFlight> in_flight;
};

struct HangEvent {
  enum class Phase : std::uint8_t { kBegin, kEnd };
  Seq seq;
  Phase phase = Phase::kBegin;
  std::int64_t time_ns = 0;
  std::int64_t since_ns = 0;  // of the last progress
  StreamInFlight stream;      // the first launch is the one it hangs in
  std::vector<BlockedCall> blocked;
};

struct ApiEvent {
  Seq seq;
  std::uint32_t call = 0;  // ApiCall
  StreamId stream;         // of a stream synchronisation
  std::uint32_t thread = 0;
  ScopeId scope;
  std::int64_t time_ns = 0;
  MaybeNs call_ns;
  MaybeStatus status;
  bool late = false;
};

struct ForkEvent {
  Seq seq;
  std::int64_t time_ns = 0;
  std::int64_t child_pid = 0;
};

// How the process ended, as `gpuflight run`, its parent, saw it: not the recorder's, which was gone by then.
struct ExitEvent {
  Seq seq;
  std::int64_t time_ns = 0;
  std::int64_t pid = 0;
  std::optional<std::int32_t> exit_code;  // one of the two
  std::optional<std::int32_t> signal;
  std::string signal_name;  // SIGKILL
  bool core_dumped = false;
  // Whether the kernel ended it for want of memory; null: cannot be told.
  std::optional<bool> oom_kill;
  // "terminal" (Ctrl-C), "run" (somebody sent it to `gpuflight run`, which passed it on); empty: not known.
  std::string signal_from;
};

}  // namespace gpuflight::event
