// Strong ids of the event vocabulary: small integers that must not be mixed up.
// They are what the log prints and the flight file stores; 0 means "none" unless said otherwise.
#pragma once

#include <compare>
#include <cstdint>

namespace gpuflight::event {

template <class Tag, class Int>
struct Id {
  using value_type = Int;
  Int value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Int v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;
  constexpr explicit operator bool() const { return value != 0; }
};

using KernelId = Id<struct KernelTag, std::uint32_t>;            // row of the kernel table
using ConfigId = Id<struct ConfigTag, std::uint32_t>;            // row of the configuration table; 0: not known
using StreamId = Id<struct StreamTag, std::uint32_t>;            // row of the stream table, described once in stream_info
using ContextId = Id<struct ContextTag, std::uint32_t>;          // driver's own context uid (cuCtxGetId), cut to 32 bits
using GraphId = Id<struct GraphTag, std::uint32_t>;              // one instantiated graph (CUgraphExec)
using ScopeId = Id<struct ScopeTag, std::uint32_t>;              // a path of nested scopes
using CorrelationId = Id<struct CorrelationTag, std::uint32_t>;  // CUPTI's; 0 where the source of launches has none

// Sequence number of an event: which thread slot wrote it and that slot's running counter.
// It stands in the ring and in the line, so that log and flight file join without doubles.
// 13 + 40 bits: exact in a JSON reader that keeps numbers as doubles (2^53).
inline constexpr int kSeqCounterBits = 40;
inline constexpr std::uint32_t kMaxThreadSlots = 1u << 13;

struct Seq {
  std::uint64_t value = 0;

  constexpr Seq() = default;
  constexpr explicit Seq(std::uint64_t v) : value(v) {}
  constexpr Seq(std::uint32_t slot, std::uint64_t counter)
      : value((std::uint64_t{slot} << kSeqCounterBits) | counter) {}
  constexpr std::uint32_t slot() const { return static_cast<std::uint32_t>(value >> kSeqCounterBits); }
  constexpr std::uint64_t counter() const { return value & ((std::uint64_t{1} << kSeqCounterBits) - 1); }
  constexpr auto operator<=>(const Seq&) const = default;
};

// Slot 0 is the recorder's own: session_start, device_info, notices, losses.
inline constexpr std::uint32_t kRecorderSlot = 0;
// The highest is that of GPU work which no call of the program's stands for alone: nodes of graphs, kernels whose launch
// was not seen. No thread has it, and its events are not in the flight file.
inline constexpr std::uint32_t kGpuSlot = kMaxThreadSlots - 1;

}  // namespace gpuflight::event
