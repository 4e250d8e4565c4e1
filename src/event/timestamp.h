// A moment as text, the same in every locale.
#pragma once

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

namespace gpuflight::event {

// RFC 3339 in UTC with nanoseconds: 2026-01-31T12:00:00.123456789Z.
inline std::string rfc3339(std::int64_t unix_ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t part = (unix_ns % kSecond + kSecond) % kSecond;  // before 1970 too
  const auto seconds = static_cast<std::time_t>(unix_ns / kSecond - (unix_ns % kSecond < 0 ? 1 : 0));
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%09lldZ", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<long long>(part));
  return text;
}

}  // namespace gpuflight::event
