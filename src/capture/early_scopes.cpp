#include "capture/early_scopes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <pthread.h>

namespace gpuflight::capture {
namespace {

constinit thread_local EarlyScopes* t_early __attribute__((tls_model("initial-exec"))) = nullptr;

pthread_key_t g_key;
pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
bool g_key_made = false;

void on_thread_exit(void* value) {
  auto* const early = static_cast<EarlyScopes*>(value);
  if (early == t_early) t_early = nullptr;
  delete early;
}

}  // namespace

EarlyScopes* EarlyScopes::of_this_thread(bool make) noexcept {
  if (t_early != nullptr || !make) return t_early;
  const int saved = errno;
  pthread_once(&g_key_once, [] { g_key_made = pthread_key_create(&g_key, on_thread_exit) == 0; });
  // Without the key nobody would free it: such a thread's early scopes are not kept.
  if (g_key_made) t_early = new (std::nothrow) EarlyScopes;
  if (t_early != nullptr && pthread_setspecific(g_key, t_early) != 0) {
    delete t_early;
    t_early = nullptr;
  }
  errno = saved;
  return t_early;
}

std::unique_ptr<EarlyScopes> EarlyScopes::take() noexcept {
  if (t_early == nullptr) return nullptr;
  pthread_setspecific(g_key, nullptr);
  std::unique_ptr<EarlyScopes> taken(t_early);
  t_early = nullptr;
  return taken;
}

void EarlyScopes::push(const ScopeDomain& domain, std::string_view name) noexcept {
  if (depth < kMax) {
    Level& level = levels[depth];
    level.domain = domain;
    level.length = static_cast<std::uint16_t>(std::min(name.size(), sizeof level.name));
    std::memcpy(level.name, name.data(), level.length);
  }
  ++depth;
}

void EarlyScopes::pop(std::uint32_t tag) noexcept {
  if (depth > kMax) {
    --depth;
    return;
  }
  for (std::uint32_t i = depth; i-- > 0;) {
    if (levels[i].domain.tag != tag) continue;
    std::copy(levels + i + 1, levels + depth, levels + i);
    --depth;
    return;
  }
}

}  // namespace gpuflight::capture
