#include "capture/cupti_locator.h"

#include <algorithm>
#include <cstdlib>
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <new>
#include <unistd.h>

namespace gpuflight::capture {
namespace {

// Nothing may be thrown through the C library's frames: it would end the host.
std::vector<std::string> loaded_objects() {
  std::vector<std::string> paths;
  const auto note = [](dl_phdr_info* info, std::size_t, void* list) {
    try {
      if (info->dlpi_name != nullptr) static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
      return 0;
    } catch (...) {
      return 1;
    }
  };
  if (dl_iterate_phdr(note, &paths) != 0) throw std::bad_alloc();
  return paths;
}

bool readable(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

class Candidates {
 public:
  explicit Candidates(int driver_major) {
    // Newest that the driver can carry first; an older CUPTI works on a newer driver.
    for (int major = driver_major > 0 ? driver_major : 13; major >= 12; --major) {
      names_.push_back("libcupti.so." + std::to_string(major));
    }
  }

  void add_loaded() {
    std::vector<std::string> names = names_;
    names.push_back("libcupti.so");
    for (const std::string& name : names) {
      if (void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
        dlclose(handle);
        add(name, "already in the process", true);
      } else {
        dlerror();
      }
    }
    // Also one that was loaded under another name: by its path.
    for (const std::string& path : loaded_objects()) {
      const auto slash = path.rfind('/');
      if (slash != std::string::npos && path.compare(slash + 1, 12, "libcupti.so.") == 0) {
        add(path, "already in the process", true);
      }
    }
  }

  void add_file(const std::string& path, const std::string& reason) { add(path, reason, false); }

  void add_folder(const std::string& folder, const std::string& reason) {
    for (const std::string& name : names_) {
      if (readable(folder + "/" + name)) add(folder + "/" + name, reason, false);
    }
  }

  void add_toolkit(const std::string& root, const std::string& reason) {
    for (const char* const sub : {"/extras/CUPTI/lib64", "/lib64", "/targets/x86_64-linux/lib",
                                  "/targets/sbsa-linux/lib"}) {
      add_folder(root + sub, reason);
    }
  }

  // Beside the CUDA libraries of a pip installation that are in the process: .../nvidia/cu13/lib and
  // .../nvidia/cuda_runtime/lib -> .../nvidia/cuda_cupti/lib.
  void add_pip() {
    for (const std::string& path : loaded_objects()) {
      auto at = path.find("/nvidia/");
      std::string packages;
      if (at != std::string::npos) {
        packages = path.substr(0, at);
      } else if (at = path.find("/site-packages/"); at != std::string::npos) {
        packages = path.substr(0, at + 14);
      } else if (at = path.find("/dist-packages/"); at != std::string::npos) {
        packages = path.substr(0, at + 14);
      }
      if (!packages.empty()) add_packages(packages);
    }
    if (const char* const environment = std::getenv("VIRTUAL_ENV")) add_python_prefix(environment);
  }

  void add_loader_search() {
    for (const std::string& name : names_) add(name, "found by the loader", false);
  }

  std::vector<CuptiCandidate> take() { return std::move(list_); }

 private:
  void add(const std::string& path, const std::string& reason, bool loaded) {
    // The same file by way of several links is one candidate, and stands once in the message.
    std::string real = path;
    if (char* const resolved = realpath(path.c_str(), nullptr)) {
      real = resolved;
      std::free(resolved);
    }
    if (std::find(seen_.begin(), seen_.end(), real) != seen_.end()) return;
    seen_.push_back(real);
    list_.push_back({path, reason, loaded});
  }

  void add_packages(const std::string& packages) {
    add_folder(packages + "/nvidia/cu13/lib", "pip package");
    add_folder(packages + "/nvidia/cuda_cupti/lib", "pip package");
  }

  void add_python_prefix(const std::string& prefix) {
    const std::string lib = prefix + "/lib";
    DIR* const dir = opendir(lib.c_str());
    if (dir == nullptr) return;
    while (const dirent* const entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name.rfind("python3", 0) == 0) add_packages(lib + "/" + name + "/site-packages");
    }
    closedir(dir);
  }

  std::vector<std::string> names_;
  std::vector<CuptiCandidate> list_;
  std::vector<std::string> seen_;
};

}  // namespace

std::vector<CuptiCandidate> find_cupti_candidates(const std::string& explicit_path, int driver_version) {
  Candidates candidates(driver_version / 1000);
  candidates.add_loaded();
  if (!explicit_path.empty()) candidates.add_file(explicit_path, "option cupti");
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* const root = std::getenv(variable)) {
      candidates.add_toolkit(root, std::string("toolkit in ") + variable);
    }
  }
  candidates.add_pip();
  // An exact match with the driver before whatever the link /usr/local/cuda shows to.
  if (driver_version > 0) {
    candidates.add_toolkit("/usr/local/cuda-" + std::to_string(driver_version / 1000) + "." +
                               std::to_string(driver_version % 1000 / 10),
                           "toolkit of the driver's version");
  }
  candidates.add_toolkit("/usr/local/cuda", "toolkit in /usr/local/cuda");
  candidates.add_loader_search();
  return candidates.take();
}

}  // namespace gpuflight::capture
