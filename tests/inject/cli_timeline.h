// Lines of a program whose every step does the same, so that a test can say what must come out: see cli_timeline.cpp.
#pragma once

#include <cstdint>

#include "log/buffer.h"

namespace gpuflight::cli_test {

// Lines of the ledger written so far.
std::uint64_t append_step(log::Buffer& out, std::uint64_t step);

inline constexpr std::int64_t kStepNs = 100'000;

}  // namespace gpuflight::cli_test
