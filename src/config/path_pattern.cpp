#include "config/path_pattern.h"

#include <algorithm>
#include <limits.h>

namespace gpuflight::config {
namespace {

constexpr std::size_t kMaxValueBytes = 128;
constexpr const char* kRankVariables[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};

void append_value(std::string& path, std::string_view value) {
  if (value.empty()) value = "none";
  value = value.substr(0, kMaxValueBytes);
  bool first = true;
  for (char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    const bool unsafe = c == '/' || byte < 0x20 || byte == 0x7f || (first && c == '.');
    path += unsafe ? '_' : c;
    first = false;
  }
}

std::string quoted(std::string_view text) {
  std::string shown = "\"";
  for (char c : text.substr(0, 200)) {
    shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return shown + '"';
}

std::string_view variable_or_empty(const PatternFields& fields, const std::string& name) {
  const char* value = fields.variable != nullptr ? fields.variable(name.c_str()) : nullptr;
  return value != nullptr ? std::string_view(value) : std::string_view();
}

// Handles what follows a '%' at `rest`; returns how many characters it took, 0 when it is no known sequence.
std::size_t append_field(std::string& path, std::string_view rest, const PatternFields& fields) {
  switch (rest.empty() ? '\0' : rest.front()) {
    case 'p': append_value(path, std::to_string(fields.pid)); return 1;
    case 'h': append_value(path, fields.host); return 1;
    case 'e': append_value(path, fields.program); return 1;
    case 'r': append_value(path, fields.rank); return 1;
    case '%': path += '%'; return 1;
    case 'q': break;
    default: return 0;
  }
  const std::size_t close = rest.find('}');
  if (rest.size() < 3 || rest[1] != '{' || close == std::string_view::npos || close == 2) return 0;
  append_value(path, variable_or_empty(fields, std::string(rest.substr(2, close - 2))));
  return close + 1;
}

const char* refusal(std::string_view path) {
  if (path.empty()) return "is empty";
  if (path.find('\0') != std::string_view::npos) return "holds a NUL";
  if (path.size() >= PATH_MAX) return "is too long when filled in";
  if (path.back() == '/') return "names a directory, not a file";
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    if (slash > NAME_MAX) return "has a part too long for a file name when filled in";
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return nullptr;
}

}  // namespace

ExpandResult expand(std::string_view pattern, const PatternFields& fields) noexcept try {
  ExpandResult result;
  for (std::size_t i = 0; i < pattern.size();) {
    if (pattern[i] != '%') {
      result.path += pattern[i++];
      continue;
    }
    const std::size_t used = append_field(result.path, pattern.substr(i + 1), fields);
    if (used == 0) {
      const std::string_view sequence = pattern.substr(i, 2);
      return {{}, "path pattern " + quoted(pattern) + ": " + quoted(sequence) + (sequence == "%q" ? " needs {VARIABLE}"
                      : " is not known; there are %p %h %e %r %q{VARIABLE} and %%")};
    }
    i += 1 + used;
  }
  if (const char* why = refusal(result.path)) return {{}, "path pattern " + quoted(pattern) + " " + why};
  return result;
} catch (...) {
  return {};  // no memory even for the error: an empty path says enough
}

std::string_view rank_of(GetVariable variable) noexcept {
  for (const char* name : kRankVariables) {
    const char* value = variable != nullptr ? variable(name) : nullptr;
    if (value != nullptr && *value != 0) return value;
  }
  return {};
}

std::string flight_path_beside(std::string_view log_path) noexcept try {
  constexpr std::string_view kLogSuffix = ".ndjson";
  if (log_path.ends_with(kLogSuffix)) log_path.remove_suffix(kLogSuffix.size());
  return std::string(log_path) + ".flight";
} catch (...) {
  return {};
}

}  // namespace gpuflight::config
