#include "config/program_filter.h"

#include <fnmatch.h>

#include <algorithm>
#include <string>

namespace gpuflight::config {
namespace {

bool matches_any(std::string_view globs, const std::string& program) {
  while (!globs.empty()) {
    const std::size_t comma = std::min(globs.find(','), globs.size());
    const std::string glob(globs.substr(0, comma));
    if (!glob.empty() && fnmatch(glob.c_str(), program.c_str(), 0) == 0) return true;
    globs.remove_prefix(std::min(comma + 1, globs.size()));
  }
  return false;
}

}  // namespace

bool program_selected(const Options& options, std::string_view program) noexcept try {
  const std::string name(program);
  return (options.include.empty() || matches_any(options.include, name)) && !matches_any(options.exclude, name);
} catch (...) {
  return false;
}

}  // namespace gpuflight::config
