#include "capture/shared_object.h"

#include <cstdlib>
#include <dlfcn.h>
#include <link.h>

namespace gpuflight::capture {

bool SharedObject::adopt(const char* name) noexcept {
  handle_ = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle_ == nullptr) {
    dlerror();  // not ours to leave behind for the host's next dlerror()
    return false;
  }
  resolve_path();
  return true;
}

bool SharedObject::open(const char* name) noexcept {
  handle_ = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* const why = dlerror();
    try {
      error_ = why != nullptr ? why : "unknown error";
    } catch (...) {
    }
    return false;
  }
  resolve_path();
  return true;
}

void* SharedObject::symbol(const char* name) const noexcept {
  void* const address = dlsym(handle_, name);
  if (address == nullptr) dlerror();
  return address;
}

void SharedObject::resolve_path() noexcept {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr) return;
  try {
    if (char* const real = realpath(map->l_name, nullptr)) {
      path_ = real;
      std::free(real);
    } else {
      path_ = map->l_name;
    }
  } catch (...) {
  }
}

}  // namespace gpuflight::capture
