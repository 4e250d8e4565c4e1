// Appends rows to the tables of the flight file: kernels, configurations, streams, scopes, and their strings.
//
// Threads: any; the caller serialises (KernelTable, StreamTable and ScopeTable each hold their own lock; rows of
// different tables may be added at once, the string arena has an atomic cursor). Allocates nothing, never blocks.
// A full table is an answer (id 0), not an error: the caller counts it.
#pragma once

#include <atomic>
#include <string_view>

#include "event/events.h"
#include "flight/flight_file.h"

namespace gpuflight::flight {

class TableWriter {
 public:
  explicit TableWriter(FlightFile& file) : file_(file) {}

  event::KernelId add_kernel(const event::KernelInfo& kernel) noexcept;
  event::ConfigId add_config(const event::KernelConfig& config) noexcept;
  event::StreamId add_stream(const event::StreamInfo& stream) noexcept;
  event::ScopeId add_scope(event::ScopeId parent, std::string_view name) noexcept;

  std::uint32_t kernels() const noexcept { return kernels_ - 1; }
  std::uint32_t configs() const noexcept { return configs_ - 1; }

 private:
  std::uint32_t add_string(std::string_view text) noexcept;

  FlightFile& file_;
  // Private: what is in the file is for others to read.
  std::uint32_t kernels_ = 1, configs_ = 1, streams_ = 1, scopes_ = 1;  // row 0 means "not known"
  std::atomic<std::uint64_t> strings_{8};
};

}  // namespace gpuflight::flight
