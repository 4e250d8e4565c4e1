#include "config/parse_value.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace gpuflight::config {
namespace {

struct Suffix {
  std::string_view text;
  std::uint64_t factor;
};

constexpr std::uint64_t kKi = 1024;
constexpr Suffix kByteSuffixes[] = {
    {"", 1},           {"b", 1},          {"k", kKi},          {"kb", kKi},          {"kib", kKi},
    {"m", kKi * kKi},  {"mb", kKi * kKi}, {"mib", kKi * kKi},  {"g", kKi * kKi * kKi},
    {"gb", kKi * kKi * kKi}, {"gib", kKi * kKi * kKi}, {"t", kKi * kKi * kKi * kKi},
};
constexpr Suffix kDurationSuffixes[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"min", 60 * 1000}, {"h", 3600 * 1000},
};

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

// Leading digits go to `number`; what follows them is returned.
std::optional<std::string_view> split_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return text.substr(static_cast<std::size_t>(end - text.data()));
}

std::optional<std::uint64_t> scaled(std::uint64_t number, std::uint64_t factor) {
  if (factor != 0 && number > std::numeric_limits<std::uint64_t>::max() / factor) return std::nullopt;
  return number * factor;
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) noexcept {
  for (std::string_view yes : {"1", "true", "yes", "on"}) {
    if (equal_ignoring_case(text, yes)) return true;
  }
  for (std::string_view no : {"0", "false", "no", "off"}) {
    if (equal_ignoring_case(text, no)) return false;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_count(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const auto rest = split_number(text, number);
  if (!rest || !rest->empty()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const auto rest = split_number(text, number);
  if (!rest) return std::nullopt;
  for (const Suffix& suffix : kByteSuffixes) {
    if (equal_ignoring_case(*rest, suffix.text)) return scaled(number, suffix.factor);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_duration_ms(std::string_view text, std::uint64_t bare_unit_ms) noexcept {
  std::uint64_t number = 0;
  const auto rest = split_number(text, number);
  if (!rest) return std::nullopt;
  if (rest->empty()) return scaled(number, bare_unit_ms);
  for (const Suffix& suffix : kDurationSuffixes) {
    if (equal_ignoring_case(*rest, suffix.text)) return scaled(number, suffix.factor);
  }
  return std::nullopt;
}

std::optional<double> parse_float(std::string_view text) noexcept {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace gpuflight::config
