// Where libgpuflight.so is: GPUFLIGHT_LIB, beside this executable (a build tree is laid out like an installed one), or
// where it was to be installed.
#pragma once

#include <string>
#include <vector>

namespace gpuflight::cli {

struct LibraryPath {
  std::string path;                 // absolute; empty: not found
  std::vector<std::string> searched;
};

// Throws Failure when GPUFLIGHT_LIB is set and is not a readable file.
LibraryPath find_library();

// As find_library, but not finding one is a Failure that lists where it was sought.
std::string require_library();

// The hooks library beside `library`; empty: there is none.
std::string hooks_beside(const std::string& library);

std::string own_executable();

// Version the library itself reports; empty when it cannot be loaded. Loading it starts nothing: its constructor only
// sets variables.
std::string library_version(const std::string& path);

}  // namespace gpuflight::cli
