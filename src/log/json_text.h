// The pieces JSON lines are made of, independent of the host's locale and of what bytes a string holds.
// Threads: any. Blocks: no. Allocates: only through the Buffer.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string_view>

#include "log/buffer.h"

namespace gpuflight::log {

// `text` as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD, one for each maximal invalid part.
void append_json_string(Buffer& out, std::string_view text) noexcept;

// Longest text of write_ratio and of an integer.
inline constexpr std::size_t kMaxRatioChars = 32;
inline constexpr std::size_t kMaxIntChars = 20;

// numerator / denominator rounded half up to 6 decimals, trailing zeros cut, at least one decimal: 0.833333, 1.0.
// `denominator` > 0, `to` has kMaxRatioChars. Returns the end.
char* write_ratio(char* to, std::uint64_t numerator, std::uint64_t denominator) noexcept;

template <std::integral T>
char* write_int(char* to, T value) noexcept {
  return std::to_chars(to, to + kMaxIntChars, value).ptr;
}

}  // namespace gpuflight::log
