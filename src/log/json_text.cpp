#include "log/json_text.h"

#include <cstring>

namespace gpuflight::log {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

// Length of the sequence at `p` if it is valid UTF-8 beyond ASCII; else minus the length of the maximal invalid part,
// as the Unicode standard (chapter 3, "U+FFFD substitution of maximal subparts") recommends.
int multibyte_length(const unsigned char* p, const unsigned char* end) {
  const unsigned char first = *p;
  int length = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return -1;
  }
  for (int i = 1; i < length; ++i) {
    if (p + i == end || p[i] < low || p[i] > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

// `to` has room for 6.
char* write_escape(char* to, unsigned char c) {
  *to++ = '\\';
  switch (c) {
    case '"': case '\\': *to++ = static_cast<char>(c); return to;
    case '\n': *to++ = 'n'; return to;
    case '\t': *to++ = 't'; return to;
    case '\r': *to++ = 'r'; return to;
    case '\b': *to++ = 'b'; return to;
    case '\f': *to++ = 'f'; return to;
    default: break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  std::memcpy(to, "u00", 3);
  to[3] = kHex[c >> 4];
  to[4] = kHex[c & 15];
  return to + 5;
}

}  // namespace

void append_json_string(Buffer& out, std::string_view text) noexcept {
  out.append('"');
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p != end) {
    const auto* run = p;
    while (p != end) {
      if (is_plain(*p)) {
        ++p;
      } else if (*p >= 0x80) {
        const int length = multibyte_length(p, end);
        if (length < 0) break;
        p += length;
      } else {
        break;
      }
    }
    out.append({reinterpret_cast<const char*>(run), static_cast<std::size_t>(p - run)});
    if (p == end) break;
    if (*p >= 0x80) {
      out.append(kReplacement);
      p += -multibyte_length(p, end);
    } else {
      char escape[6];
      out.append({escape, static_cast<std::size_t>(write_escape(escape, *p) - escape)});
      ++p;
    }
  }
  out.append('"');
}

char* write_ratio(char* to, std::uint64_t numerator, std::uint64_t denominator) noexcept {
  constexpr std::uint64_t kScale = 1'000'000;
  std::uint64_t whole = numerator / denominator;
  __extension__ using Wide = unsigned __int128;  // the remainder times 10^6 can pass 64 bits
  const Wide scaled = Wide{numerator % denominator} * kScale;
  auto fraction = static_cast<std::uint64_t>((scaled + denominator / 2) / denominator);
  if (fraction == kScale) {
    ++whole;
    fraction = 0;
  }
  to = write_int(to, whole);
  *to++ = '.';
  char digits[6];
  for (int i = 5; i >= 0; --i) {
    digits[i] = static_cast<char>('0' + fraction % 10);
    fraction /= 10;
  }
  int count = 6;
  while (count > 1 && digits[count - 1] == '0') --count;
  std::memcpy(to, digits, static_cast<std::size_t>(count));
  return to + count;
}

}  // namespace gpuflight::log
