// Times of a recording stay below 2^53 ns (docs/FORMAT.md). What is beyond comes from a damaged or hostile log, and is
// not to be reckoned with: sums of such times have no room in 64 bits.
#pragma once

#include <cstdint>
#include <optional>

namespace gpuflight::event {

inline constexpr std::int64_t kMostNs = std::int64_t{1} << 53;

constexpr bool plausible(std::int64_t ns) { return ns >= -kMostNs && ns <= kMostNs; }

// From one to the other; null: not known. Below 0: the other came first.
constexpr std::optional<std::int64_t> elapsed(const std::optional<std::int64_t>& from,
                                              const std::optional<std::int64_t>& to) {
  if (!from || !to || !plausible(*from) || !plausible(*to)) return std::nullopt;
  return *to - *from;
}

constexpr std::optional<std::int64_t> sum_ns(std::int64_t from, std::int64_t duration) {
  if (!plausible(from) || !plausible(duration)) return std::nullopt;
  return from + duration;
}

}  // namespace gpuflight::event
