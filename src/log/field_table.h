// The means to write a line type as a table of its keys: readers of single values, the table's row, and the walk
// through a parsed line. Private to the decoder.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "log/event_fields.h"

namespace gpuflight::log::fields {

using Value = simdjson::dom::element;

// Readers of one value: false when it is of another kind or out of range.

template <std::integral T>
inline bool read(const Value& v, T& to) {
  std::int64_t i;
  if (v.get(i) == simdjson::SUCCESS) {
    to = static_cast<T>(i);
    return std::in_range<T>(i);
  }
  std::uint64_t u;
  if (v.get(u) != simdjson::SUCCESS) return false;
  to = static_cast<T>(u);
  return std::in_range<T>(u);
}
inline bool read(const Value& v, bool& to) { return v.get(to) == simdjson::SUCCESS; }
inline bool read(const Value& v, double& to) { return v.get(to) == simdjson::SUCCESS; }
inline bool read(const Value& v, std::string& to) {
  std::string_view text;
  if (v.get(text) != simdjson::SUCCESS) return false;
  to.assign(text);
  return true;
}
inline bool read(const Value& v, event::Seq& to) { return read(v, to.value); }
template <class Tag, class Int>
inline bool read(const Value& v, event::Id<Tag, Int>& to) {
  return read(v, to.value);
}
template <class T>
inline bool read(const Value& v, std::optional<T>& to) {
  to.reset();
  return v.is_null() || read(v, to.emplace());
}
// null leaves what the struct says for "not known" (0, -1, empty).
template <class T>
inline bool read_or_null(const Value& v, T& to) {
  return v.is_null() || read(v, to);
}

inline bool read_dim(const Value& v, event::Dim3& to) {
  std::string_view text;
  if (v.get(text) != simdjson::SUCCESS || text.size() < 2 || text.front() != '(' || text.back() != ')') return false;
  const char* at = text.data();
  const char* const end = text.data() + text.size() - 1;
  for (std::uint32_t* part : {&to.x, &to.y, &to.z}) {
    const auto [next, error] = std::from_chars(at + 1, end, *part);
    if (error != std::errc{}) return false;
    at = next;
    if (part != &to.z && (at == end || *at != ',')) return false;
  }
  return at == end;
}

inline bool read_hex(const Value& v, std::uint64_t& to, std::string_view prefix) {
  std::string_view text;
  if (v.get(text) != simdjson::SUCCESS || !text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to, 16);
  return error == std::errc{} && end == text.data() + text.size();
}

template <class Enum, std::size_t N>
inline bool read_name(const Value& v, Enum& to, const std::array<const char*, N>& names) {
  std::string_view text;
  if (v.get(text) != simdjson::SUCCESS) return false;
  const auto it = std::find(names.begin(), names.end(), text);
  if (it == names.end()) return false;
  to = static_cast<Enum>(it - names.begin());
  return true;
}

inline bool read_strings(const Value& v, std::vector<std::string>& to) {
  simdjson::dom::array array;
  if (v.get(array) != simdjson::SUCCESS) return false;
  for (const Value one : array) {
    if (!read(one, to.emplace_back())) return false;
  }
  return true;
}

// event::ApiCall; 0: this version does not know it.
inline std::uint32_t call_number(std::string_view name) {
  for (std::uint32_t i = 1; i < event::kApiCallCount; ++i) {
    if (name == event::kApiCalls[i].name) return i;
  }
  return 0;
}

inline bool ignore(const Value&) { return true; }

// A source that this version does not know says nothing of it.
inline bool read_time_source(const Value& v, bool& by_events) {
  std::string_view text;
  if (v.get(text) != simdjson::SUCCESS) return false;
  by_events = text == "events";
  return true;
}

template <class T>
struct Field {
  std::string_view key;
  bool required;
  bool (*read)(const Value&, T&);
};

// A key of the line `e`, its value being `v`.
#define GPUFLIGHT_FIELD(type, key, required, expression) \
  Field<type> { key, required, [](const Value& v, [[maybe_unused]] type& e) -> bool { return expression; } }

template <class T, std::size_t N, std::size_t M>
constexpr std::array<Field<T>, N + M> joined(const std::array<Field<T>, N>& a, const std::array<Field<T>, M>& b) {
  std::array<Field<T>, N + M> all{};
  std::copy(a.begin(), a.end(), all.begin());
  std::copy(b.begin(), b.end(), all.begin() + N);
  return all;
}

// Lines come in the table's order almost always: looked for from where the last key was found.
template <class T, std::size_t N>
FieldTrouble fill(const std::array<Field<T>, N>& fields, const simdjson::dom::object& object, T& to) {
  static_assert(N <= 64);
  FieldTrouble trouble;
  std::uint64_t seen = 0;
  std::size_t at = 0;
  for (const auto field : object) {
    const std::string_view key = field.key;
    std::size_t tried = 0;
    while (tried < N && fields[at].key != key) {
      at = at + 1 == N ? 0 : at + 1;
      ++tried;
    }
    if (tried == N) {
      if (key == "type") continue;
      if (trouble.unknown_keys++ == 0) trouble.unknown_key = key;
      continue;
    }
    if (!fields[at].read(field.value, to)) {
      trouble.bad_key = fields[at].key;
      return trouble;
    }
    seen |= std::uint64_t{1} << at;
    at = at + 1 == N ? 0 : at + 1;
  }
  for (std::size_t i = 0; i < N; ++i) {
    if (fields[i].required && !(seen >> i & 1)) trouble.missing_key = fields[i].key;
  }
  return trouble;
}

template <class T>
T& fresh(LogEvent& event) {
  if (T* same = std::get_if<T>(&event)) {
    *same = T{};
    return *same;
  }
  return event.emplace<T>();
}

}  // namespace gpuflight::log::fields
