// gpuflight doctor-probe: what doctor starts, with libgpuflight.so preloaded, to look at CUDA from the inside. Prints
// one JSON object. Calls the driver through its own entry points by name: no CUDA header is needed.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "failure.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

using Json = nlohmann::ordered_json;

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

std::string path_of(void* library) {
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  char resolved[4096];
  return ::realpath(map->l_name, resolved) != nullptr ? resolved : map->l_name;
}

Json devices(void* driver) {
  Json list = Json::array();
  const auto count_of = symbol<int (*)(int*)>(driver, "cuDeviceGetCount");
  const auto name_of = symbol<int (*)(char*, int, int)>(driver, "cuDeviceGetName");
  int count = 0;
  if (count_of == nullptr || name_of == nullptr || count_of(&count) != 0) return list;
  for (int device = 0; device < count && device < 256; ++device) {
    char name[256] = {};
    if (name_of(name, sizeof(name) - 1, device) == 0) list.push_back(name);
  }
  return list;
}

Json driver_facts() {
  const char* named = std::getenv("GPUFLIGHT_LIBCUDA");
  void* driver = ::dlopen(named != nullptr && *named != '\0' ? named : "libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return Json{{"path", nullptr}, {"error", ::dlerror()}};
  Json facts{{"path", path_of(driver)}};
  const auto version_of = symbol<int (*)(int*)>(driver, "cuDriverGetVersion");
  const auto init = symbol<int (*)(unsigned)>(driver, "cuInit");
  int version = 0;
  facts["version"] = version_of != nullptr && version_of(&version) == 0 ? Json(version) : Json(nullptr);
  if (init == nullptr) {
    facts["error"] = "cuInit is missing: this is not a driver";
    return facts;
  }
  const int status = init(0);
  facts["init"] = status;
  const auto name_of = symbol<int (*)(int, const char**)>(driver, "cuGetErrorName");
  const char* name = nullptr;
  if (status != 0 && name_of != nullptr && name_of(status, &name) == 0 && name != nullptr) facts["init_error"] = name;
  if (status == 0) facts["devices"] = devices(driver);
  return facts;
}

Json nvml_facts() {
  void* nvml = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml == nullptr) return Json{{"path", nullptr}, {"error", ::dlerror()}};
  Json facts{{"path", path_of(nvml)}};
  const auto init = symbol<int (*)()>(nvml, "nvmlInit_v2");
  const auto version_of = symbol<int (*)(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion");
  char version[128] = {};
  const int status = init == nullptr ? -1 : init();
  facts["init"] = status;
  if (status == 0 && version_of != nullptr && version_of(version, sizeof(version) - 1) == 0) {
    facts["driver_version"] = version;
  }
  return facts;
}

// The beginning of the C API's gpuflight_stats, whose `size` says how much of it there is. Only the status that comes
// back is of interest here, so the tool gets by without the library's header.
struct StatsHead {
  std::size_t size = sizeof(StatsHead);
  std::uint64_t counters[5] = {};  // seen, written, summarised, pending, lost
};

Json recorder_facts() {
  const auto version_of = symbol<const char* (*)()>(RTLD_DEFAULT, "gpuflight_version");
  if (version_of == nullptr) return nullptr;  // the preload did not come through
  Json facts{{"version", version_of()}};
  const auto stats_of = symbol<int (*)(StatsHead*)>(RTLD_DEFAULT, "gpuflight_get_stats");
  const auto text_of = symbol<const char* (*)(int)>(RTLD_DEFAULT, "gpuflight_status_string");
  const auto log_of = symbol<const char* (*)()>(RTLD_DEFAULT, "gpuflight_log_path");
  StatsHead stats;
  const int status = stats_of != nullptr ? stats_of(&stats) : -1;
  facts["status"] = status;
  if (text_of != nullptr && status >= 0) facts["status_text"] = text_of(status);
  if (log_of != nullptr) facts["log"] = log_of();
  return facts;
}

// Whether `path`, which is in the process, itself has a function of that name.
bool defines(const char* path, const char* name) {
  void* const library = ::dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  Dl_info info{};
  void* const found = ::dlsym(library, name);
  const bool own = found != nullptr && ::dladdr(found, &info) != 0 && std::string_view(info.dli_fname) == path;
  ::dlclose(library);
  return own;
}

// Who stands before libc, besides us: objects of the process that have functions of libc's names.
Json loader_facts() {
  Json facts{{"hooks", nullptr}, {"interposers", Json::array()}};
  link_map* object = nullptr;
  void* const self = ::dlopen(nullptr, RTLD_LAZY);
  if (self == nullptr || ::dlinfo(self, RTLD_DI_LINKMAP, &object) != 0) return facts;
  for (; object != nullptr; object = object->l_next) {
    const std::string_view path = object->l_name != nullptr ? object->l_name : "";
    const std::string_view file = path.substr(path.find_last_of('/') + 1);
    const bool libc = file.starts_with("libc.so") || file.starts_with("libdl.so") || file.starts_with("ld-");
    if (path.empty() || libc) continue;
    if (defines(object->l_name, "gpuflight_hooks")) {
      facts["hooks"] = path;
      continue;
    }
    const bool loader = defines(object->l_name, "dlsym"), allocator = defines(object->l_name, "malloc");
    if (loader || allocator) {
      facts["interposers"].push_back(Json{{"path", path}, {"dlsym", loader}, {"malloc", allocator}});
    }
  }
  return facts;
}

}  // namespace

int doctor_probe_verb(const Arguments&) {
  Json out;
  out["driver"] = driver_facts();
  out["nvml"] = nvml_facts();
  out["recorder"] = recorder_facts();
  out["loader"] = loader_facts();
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
  return kExitOk;
}

}  // namespace gpuflight::cli
