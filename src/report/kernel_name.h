// Kernel names as a person reads them. Names come from logs and may hold anything: nothing here trusts them, and what
// comes out holds no control characters and is valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

namespace gpuflight::report {

// Control characters and bytes that are not UTF-8 become '?', so that a name cannot steer the terminal.
std::string printable(std::string_view text);

// Code points, which is what a terminal's columns are for the letters in names.
std::size_t display_width(std::string_view text);

// The demangled name, or the name itself where it is not mangled or demangles to something unreasonable: a few hundred
// bytes can stand for terabytes.
std::string demangled(std::string_view mangled);

// Without return type, parameters and clone suffix: "at::native::kernel<4, float>".
std::string without_signature(std::string_view demangled_name);

// Fits `width` columns: template arguments are folded from the inside out, then namespaces dropped, then the middle.
std::string shortened(std::string_view name, std::size_t width);

// Names already worked out; a log repeats few names very often.
class KernelNames {
 public:
  explicit KernelNames(std::size_t width, bool full = false) : width_(width), full_(full) {}
  const std::string& of(std::string_view mangled);

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::size_t width_;
  bool full_;
  std::unordered_map<std::string, std::string, TextHash, std::equal_to<>> known_;
};

}  // namespace gpuflight::report
