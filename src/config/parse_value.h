// Text to value, the same in every locale. Each returns nothing for text that is not wholly a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gpuflight::config {

std::optional<bool> parse_bool(std::string_view text) noexcept;             // 1/0, true/false, yes/no, on/off
std::optional<std::uint64_t> parse_count(std::string_view text) noexcept;   // decimal digits
std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept;   // 64M, 2G, 512KiB, 4096
std::optional<std::uint64_t> parse_duration_ms(std::string_view text, std::uint64_t bare_unit_ms) noexcept;  // 50ms, 2s
std::optional<double> parse_float(std::string_view text) noexcept;          // finite, decimal point

}  // namespace gpuflight::config
