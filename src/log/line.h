// Builds JSON text key by key: whole lines of the rare types, and the parts that are rendered once.
// Threads, blocking, memory: as the Buffer written to.
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string_view>

#include "event/kernel_config.h"
#include "log/buffer.h"
#include "log/json_text.h"

namespace gpuflight::log {

// "(256,1,1)" without quotes; at most kMaxDimChars.
inline constexpr std::size_t kMaxDimChars = 34;
inline char* write_dim(char* to, event::Dim3 dim) noexcept {
  *to++ = '(';
  to = write_int(to, dim.x);
  *to++ = ',';
  to = write_int(to, dim.y);
  *to++ = ',';
  to = write_int(to, dim.z);
  *to++ = ')';
  return to;
}

// `"key":value` pairs, separated by commas. Keys are ours and need no escaping, but for text_pair.
class Members {
 public:
  Members(Buffer& out, bool first) noexcept : out_(out), first_(first) {}

  void key(std::string_view name) noexcept {
    separate();
    out_.append('"');
    out_.append(name);
    out_.append("\":");
  }
  void open(std::string_view name, char bracket) noexcept {
    key(name);
    out_.append(bracket);
    first_ = true;
  }
  void open_element(char bracket) noexcept {  // of an array
    separate();
    out_.append(bracket);
    first_ = true;
  }
  void close(char bracket) noexcept {
    out_.append(bracket);
    first_ = false;
  }
  void element(std::string_view text) noexcept {  // of an array
    separate();
    append_json_string(out_, text);
  }
  void text_pair(std::string_view name, std::string_view value) noexcept {  // the key comes from outside
    separate();
    append_json_string(out_, name);
    out_.append(':');
    append_json_string(out_, value);
  }

  void raw(std::string_view name, std::string_view json) noexcept {
    key(name);
    out_.append(json);
  }
  void rendered(std::string_view pairs) noexcept {  // without leading comma
    separate();
    out_.append(pairs);
  }
  void null(std::string_view name) noexcept { raw(name, "null"); }
  void boolean(std::string_view name, bool value) noexcept { raw(name, value ? "true" : "false"); }
  void text(std::string_view name, std::string_view value) noexcept {
    key(name);
    append_json_string(out_, value);
  }
  void text_or_null(std::string_view name, std::string_view value) noexcept {
    value.empty() ? null(name) : text(name, value);
  }
  template <std::integral T>
  void number(std::string_view name, T value) noexcept {
    char digits[kMaxIntChars];
    raw(name, {digits, static_cast<std::size_t>(write_int(digits, value) - digits)});
  }
  template <std::integral T>
  void maybe(std::string_view name, const std::optional<T>& value) noexcept {
    value ? number(name, *value) : null(name);
  }
  template <std::integral T>
  void id(std::string_view name, T value) noexcept {  // 0: none
    value != 0 ? number(name, value) : null(name);
  }
  template <std::integral T>
  void known(std::string_view name, T value) noexcept {  // below 0: not known
    value >= 0 ? number(name, value) : null(name);
  }
  // As share of `denominator`, at most 1; below 0 or of nothing: not known.
  void share(std::string_view name, std::int64_t numerator, std::int64_t denominator) noexcept {
    if (numerator < 0 || denominator <= 0) return null(name);
    char digits[kMaxRatioChars];
    const char* end = write_ratio(digits, static_cast<std::uint64_t>(std::min(numerator, denominator)),
                                  static_cast<std::uint64_t>(denominator));
    raw(name, {digits, static_cast<std::size_t>(end - digits)});
  }
  void dim(std::string_view name, event::Dim3 value) noexcept {
    char chars[kMaxDimChars];
    key(name);
    out_.append('"');
    out_.append({chars, static_cast<std::size_t>(write_dim(chars, value) - chars)});
    out_.append('"');
  }
  // 64 bits are too many for a JSON number.
  void hex(std::string_view name, std::string_view prefix, std::uint64_t value, int digits) noexcept {
    char text[16];
    for (int i = digits - 1; i >= 0; --i, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
    key(name);
    out_.append('"');
    out_.append(prefix);
    out_.append({text, static_cast<std::size_t>(digits)});
    out_.append('"');
  }

 protected:
  void separate() noexcept {
    if (!first_) out_.append(',');
    first_ = false;
  }
  Buffer& out_;
  bool first_;
};

class Line : public Members {
 public:
  Line(Buffer& out, std::string_view type) noexcept : Members(out, true) {
    out_.begin_line();
    out_.append('{');
    text("type", type);
  }
  bool end() noexcept {
    out_.append('}');
    return out_.end_line();
  }
};

}  // namespace gpuflight::log
