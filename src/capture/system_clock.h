// A clock of the system in nanoseconds.
//
// Threads: any. Blocks, allocates: no.
#pragma once

#include <cstdint>
#include <ctime>

namespace gpuflight::capture {

inline std::int64_t system_clock_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace gpuflight::capture
