// The few string functions that this library needs, its own: it is asked for names before any constructor has run, also
// by a sanitizer's runtime that is about to set up its own strcmp in place of libc's and crashes when that is called.
//
// Threads: any. Blocks, allocates: no.
#pragma once

#include <cstddef>

namespace gpuflight::hooks {

inline std::size_t length_of(const char* text) noexcept {
  std::size_t length = 0;
  while (text[length] != 0) ++length;
  return length;
}

inline bool equal(const char* a, const char* b) noexcept {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}

inline bool begins_with(const char* text, const char* start, std::size_t length) noexcept {
  for (std::size_t i = 0; i < length; ++i) {
    if (text[i] != start[i] || text[i] == 0) return false;
  }
  return true;
}

template <std::size_t N>
bool begins_with(const char* text, const char (&start)[N]) noexcept {
  return begins_with(text, start, N - 1);
}

// What follows the last slash.
inline const char* file_of(const char* path) noexcept {
  const char* file = path;
  for (; *path != 0; ++path) {
    if (*path == '/') file = path + 1;
  }
  return file;
}

}  // namespace gpuflight::hooks
