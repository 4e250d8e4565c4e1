// What a check came to: the exit code of `diff` and `check`, and the colour that a CI system shows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuflight::analysis {

// In order of weight.
enum class Outcome : std::uint8_t { kPass, kUnsure, kFail };
inline constexpr const char* kOutcomeNames[] = {"pass", "unsure", "fail"};

inline Outcome worse(Outcome a, Outcome b) { return std::max(a, b); }

}  // namespace gpuflight::analysis
