// Activity records as the faked CUPTI version lays them out: each struct as long as the version's header has it, fields
// that the headers at hand do not describe left zero.
// Threads: any; pure functions.
#pragma once

#include <cupti.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/sim_hooks.h"

namespace gpuflight::sim {

// Bytes of a record of that kind; 0: a kind that is not simulated.
std::size_t record_bytes(CUpti_ActivityKind kind, std::uint32_t cupti_version);

struct RawRecord {
  alignas(8) std::array<std::uint8_t, 256> data{};
  std::size_t bytes = 0;
  // Written at delivery only: until then nobody knows what becomes of the work.
  std::size_t start_at = 0, end_at = 0, completed_at = 0;  // completed_at 0: the kind has no such field
  const Execution* execution = nullptr;
};

// `number`: of the kernel, which CUPTI calls its grid id.
RawRecord make_record(const KernelExecution& kernel, std::uint32_t cupti_version, std::int64_t number);
RawRecord make_record(const CopyExecution& copy, std::uint32_t cupti_version);
RawRecord make_record(const FillExecution& fill, std::uint32_t cupti_version);
RawRecord make_record(const GraphExecution& graph, std::uint32_t cupti_version);

// Copies between devices are a kind of their own.
CUpti_ActivityKind kind_of(const CopyExecution& copy);

}  // namespace gpuflight::sim
