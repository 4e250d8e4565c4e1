#include "library_path.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "failure.h"

namespace fs = std::filesystem;

namespace gpuflight::cli {
namespace {

constexpr const char* kLibraryFile = "libgpuflight.so";
constexpr const char* kHooksFile = "libgpuflight_hooks.so";

bool usable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), R_OK) == 0;
}

}  // namespace

std::string own_executable() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Failure(fmt::format("cannot find my own executable: {}", error.message()));
  return self.string();
}

LibraryPath find_library() {
  if (const char* named = std::getenv("GPUFLIGHT_LIB"); named != nullptr && *named != '\0') {
    if (!usable(named)) throw Failure(fmt::format("GPUFLIGHT_LIB is '{}', which is not a readable file", named),
                    kExitCannotStart);
    return {fs::canonical(named).string(), {named}};
  }
  const fs::path here = fs::path(own_executable()).parent_path();
  const fs::path candidates[] = {
      here / kLibraryFile,
      here / ".." / GPUFLIGHT_RELATIVE_LIBDIR / kLibraryFile,
      here / "../lib" / kLibraryFile,
      here / "../lib64" / kLibraryFile,
      fs::path(GPUFLIGHT_INSTALL_LIBDIR) / kLibraryFile,
  };
  LibraryPath found;
  for (const fs::path& candidate : candidates) {
    const std::string normal = candidate.lexically_normal().string();
    if (std::find(found.searched.begin(), found.searched.end(), normal) != found.searched.end()) continue;
    found.searched.push_back(normal);
    if (usable(candidate)) {
      found.path = fs::canonical(candidate).string();
      break;
    }
  }
  return found;
}

std::string require_library() {
  const LibraryPath found = find_library();
  if (!found.path.empty()) return found.path;
  throw Failure(fmt::format("{} not found; sought {}. Set GPUFLIGHT_LIB to its path", kLibraryFile,
                            fmt::join(found.searched, ", ")),
                kExitCannotStart);
}

std::string hooks_beside(const std::string& library) {
  const fs::path path = fs::path(library).parent_path() / kHooksFile;
  return usable(path) ? path.string() : std::string();
}

std::string library_version(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {};
  using VersionFunction = const char* (*)();
  const auto version = reinterpret_cast<VersionFunction>(::dlsym(handle, "gpuflight_version"));
  return version == nullptr ? std::string() : std::string(version());  // the handle stays: it is NODELETE anyway
}

}  // namespace gpuflight::cli
