// The means to write one event of a trace. Private to the trace.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "event/events.h"

namespace gpuflight::report {

inline std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds, exactly.
inline void append_us(std::string& to, std::int64_t ns) {
  const std::uint64_t size = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  fmt::format_to(std::back_inserter(to), "{}{}", ns < 0 ? "-" : "", size / 1000);
  if (size % 1000 != 0) fmt::format_to(std::back_inserter(to), ".{:03}", size % 1000);
}

// `"key":value` pairs, separated by commas. Keys are ours.
class Args {
 public:
  template <class T>
  Args& number(std::string_view key, T value) {
    start(key);
    fmt::format_to(std::back_inserter(text_), "{}", value);
    return *this;
  }
  template <class T>
  Args& maybe(std::string_view key, const std::optional<T>& value) {
    return value ? number(key, *value) : *this;
  }
  Args& us(std::string_view key, std::int64_t ns) {
    start(key);
    append_us(text_, ns);
    return *this;
  }
  Args& text(std::string_view key, std::string_view value) {
    start(key);
    text_ += json_string(value);
    return *this;
  }
  Args& dim(std::string_view key, const event::Dim3& value) {
    start(key);
    fmt::format_to(std::back_inserter(text_), "[{},{},{}]", value.x, value.y, value.z);
    return *this;
  }
  Args& scope(const std::optional<std::string>& path) { return path ? text("scope", *path) : *this; }
  const std::string& take() const { return text_; }

 private:
  void start(std::string_view key) {
    if (!text_.empty()) text_ += ',';
    fmt::format_to(std::back_inserter(text_), "\"{}\":", key);
  }
  std::string text_;
};


}  // namespace gpuflight::report
