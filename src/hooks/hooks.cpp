// Finds the driver's functions and hands out the entry points of entry_points.S in their place.
//
// Threads: any, also before constructors and while others launch. Takes no lock of ours; blocks and allocates as dlsym
// does. A process that never asks for a driver function pays for a look at the first two letters of a name.
#include "hooks/hook_table.h"

#include <dlfcn.h>
#include <link.h>

#include "hooks/byte_text.h"
#include "hooks/libc_symbols.h"

#define GPUFLIGHT_HIDDEN __attribute__((visibility("hidden")))

extern "C" {
extern gpuflight::hooks::HookRow gpuflight_hooks_first_row[] GPUFLIGHT_HIDDEN;
extern gpuflight::hooks::HookRow gpuflight_hooks_rows_end[] GPUFLIGHT_HIDDEN;
void* gpuflight_hooks_dlsym(void* handle, const char* name) noexcept GPUFLIGHT_HIDDEN;  // what is exported as dlsym
}

namespace gpuflight::hooks {
namespace {

using Dlsym = void* (*)(void* handle, const char* name);
using Dlvsym = void* (*)(void* handle, const char* name, const char* version);

constexpr int kNotFound = 500, kNotInitialized = 3;  // CUresult
constexpr std::uint64_t kPerThreadStreams = 2;       // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
// The CUDA versions whose entry points hook_names.inc knows. A newer one may mean another function by the same name.
constexpr int kFirstUnknownCuda = 14000;

// Base names that from a CUDA version on mean a function of another name.
struct Renamed {
  const char* base;
  int since;
  const char* name;
};
constexpr Renamed kRenamed[] = {{"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"}};

constinit HookTable g_table{HookTable::kVersion, sizeof(HookRow), 0, gpuflight_hooks_first_row, 0, 0, 0};
constinit Dlsym g_dlsym = nullptr;
constinit Dlvsym g_dlvsym = nullptr;

template <class T>
T load(const T& place) noexcept {
  return __atomic_load_n(&place, __ATOMIC_ACQUIRE);
}

Dlvsym real_dlvsym() noexcept {
  if (const Dlvsym known = load(g_dlvsym)) return known;
  const auto found = reinterpret_cast<Dlvsym>(libc_symbol("dlvsym"));
  __atomic_store_n(&g_dlvsym, found, __ATOMIC_RELEASE);
  return found;
}

// The next dlsym behind ours: another interposer's, or libc's.
Dlsym real_dlsym() noexcept {
  if (const Dlsym known = load(g_dlsym)) return known;
  // The first versions are in every glibc: a look-up that fails would allocate, and an allocator may be who asks.
#if defined(__x86_64__)
  constexpr const char* kVersions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#else
  constexpr const char* kVersions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif
  Dlsym libc = nullptr;
  const Dlvsym versioned = real_dlvsym();
  if (versioned == nullptr) return nullptr;
  for (const char* const version : kVersions) {
    libc = reinterpret_cast<Dlsym>(versioned(RTLD_NEXT, "dlsym", version));
    if (libc != nullptr) break;
    dlerror();
  }
  if (libc == nullptr) return nullptr;
  auto next = reinterpret_cast<Dlsym>(libc(RTLD_NEXT, "dlsym"));
  if (next == nullptr) next = libc;
  __atomic_store_n(&g_dlsym, next, __ATOMIC_RELEASE);
  return next;
}

HookRow* row_of(const char* name) noexcept {
  if (name == nullptr || name[0] != 'c' || name[1] != 'u') return nullptr;
  for (HookRow* row = gpuflight_hooks_first_row; row != gpuflight_hooks_rows_end; ++row) {
    if (equal(row->name, name)) return row;
  }
  return nullptr;
}

// What is known first stays: the driver has one function of a name, in one library.
void learn(HookRow& row, void* real) noexcept {
  void* expected = row.lazy;
  __atomic_compare_exchange_n(&row.real, &expected, real, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  expected = row.lazy;
  __atomic_compare_exchange_n(&row.target, &expected, load(row.real), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// Whether `function` is the driver's own, and not that of a tool that has put one of its own in between.
bool is_drivers(void* function) noexcept {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* const file = file_of(info.dli_fname);
  return begins_with(file, "libcuda.so") || begins_with(file, "libcuda-");
}

// `found` is what a look-up without us would give. Where another interposer stands behind us, the row leads to it; when it
// then asks for the driver's own function it must get that, not itself again.
void* hand_out(HookRow& row, void* found) noexcept {
  learn(row, found);
  void* const real = load(row.real);
  if (real != found && is_drivers(found) != is_drivers(real)) return found;
  __atomic_fetch_add(&g_table.handed_out, 1, __ATOMIC_RELAXED);
  return row.entry;
}

// The driver's function, or null: there is no driver in the process.
void* find_real(HookRow& row) noexcept {
  if (void* const known = load(row.real); known != row.lazy) return known;
  const Dlsym real = real_dlsym();
  if (real == nullptr) return nullptr;
  // Called from here, RTLD_NEXT is what a program would get without us.
  void* found = real(RTLD_NEXT, row.name);
  if (found == nullptr) {
    dlerror();
    if (void* const libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
      found = real(libcuda, row.name);
      dlclose(libcuda);
    }
    if (found == nullptr) dlerror();
  }
  if (found != nullptr && found != row.entry) learn(row, found);
  return found != row.entry ? found : nullptr;
}

// dlsym of a name that has a hook, in a library that was named.
void* hooked_dlsym(void* handle, const char* name) noexcept {
  HookRow* const row = row_of(name);
  void* const found = real_dlsym()(handle, name);
  if (found == nullptr || row == nullptr || found == row->entry) return found;
  return hand_out(*row, found);
}

void* hooked_dlvsym(void* handle, const char* name, const char* version) noexcept {
  HookRow* const row = row_of(name);
  void* const found = real_dlvsym()(handle, name, version);
  return found == nullptr || row == nullptr || found == row->entry ? found : hand_out(*row, found);
}

// Whether `caller` is code of an object that stands before this library in the order of look-ups.
bool is_before_us(void* caller) noexcept {
  Dl_info info{};
  link_map *theirs = nullptr, *ours = nullptr;
  if (dladdr1(caller, &info, reinterpret_cast<void**>(&theirs), RTLD_DL_LINKMAP) == 0 ||
      dladdr1(&g_table, &info, reinterpret_cast<void**>(&ours), RTLD_DL_LINKMAP) == 0) {
    return false;
  }
  for (const link_map* one = ours != nullptr ? ours->l_prev : nullptr; one != nullptr; one = one->l_prev) {
    if (one == theirs) return true;
  }
  return false;
}

// Another interposer before us asks so for libc's dlsym, to go on to: it gets ours, which goes on in its turn.
void* own_dlsym(void*, const char*, const char*) noexcept { return reinterpret_cast<void*>(&gpuflight_hooks_dlsym); }

// A name that only our own export would answer: said to be missing, as it is without us.
void* refused_dlsym(void*, const char* name) noexcept {
  void* found = real_dlsym()(RTLD_NEXT, name);
  __asm__ volatile("" : "+r"(found));  // as a tail call it would be the program's RTLD_NEXT, which finds us
  return found;
}

void* no_dlsym(void*, const char*) noexcept { return nullptr; }

int no_driver() noexcept { return kNotFound; }

// `base` is `name` without its version and without the ending of per-thread default streams.
bool is_base_of(const char* base, std::size_t length, const char* name, bool& per_thread) noexcept {
  if (!begins_with(name, base, length)) return false;
  const char* rest = name + length;
  if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9') rest += 3;
  per_thread = equal(rest, "_ptsz") || equal(rest, "_ptds");
  return *rest == 0 || per_thread;
}

// What cuGetProcAddress has answered with: by its address where the driver exports it, else by what was asked.
void* instead_of(const char* symbol, void* real, int cuda_version, std::uint64_t flags) noexcept {
  if (symbol == nullptr || symbol[0] != 'c' || symbol[1] != 'u') return real;
  for (const Renamed& renamed : kRenamed) {
    if (cuda_version < renamed.since || !equal(symbol, renamed.base)) continue;
    HookRow& row = *row_of(renamed.name);
    return find_real(row) == real ? hand_out(row, real) : real;  // by its name it would be taken for an older one
  }
  const std::size_t length = length_of(symbol);
  const bool wants_per_thread = (flags & kPerThreadStreams) != 0;
  HookRow* best = nullptr;
  bool best_per_thread = false;
  for (HookRow* row = gpuflight_hooks_first_row; row != gpuflight_hooks_rows_end; ++row) {
    bool per_thread = false;
    if (!is_base_of(symbol, length, row->name, per_thread)) continue;
    if (load(row->real) == real) return hand_out(*row, real);
    if (per_thread && !wants_per_thread) continue;
    if (row->since > static_cast<std::uint64_t>(cuda_version < 0 ? 0 : cuda_version)) continue;
    const bool better = best == nullptr || (per_thread && !best_per_thread) ||
                        (per_thread == best_per_thread && row->since > best->since);
    if (better) {
      best = row;
      best_per_thread = per_thread;
    }
  }
  if (best == nullptr || cuda_version >= kFirstUnknownCuda) return real;
  return hand_out(*best, real);
}

HookRow& own_row(const char* name) noexcept { return *row_of(name); }

// Once: where the driver's injection variable is another tool's, or was cleared, nobody else starts the recorder.
void start_recorder() noexcept {
  if (__atomic_exchange_n(&g_table.start_tried, 1u, __ATOMIC_ACQ_REL) != 0) return;
  const Dlsym real = real_dlsym();
  if (real == nullptr) return;
  using Init = int (*)(const void* options, std::size_t count);
  const auto init = reinterpret_cast<Init>(real(RTLD_DEFAULT, "gpuflight_init"));
  if (init != nullptr) {
    init(nullptr, 0);
  } else {
    dlerror();
  }
}

}  // namespace
}  // namespace gpuflight::hooks

using namespace gpuflight::hooks;

extern "C" {

HookTable* gpuflight_hooks() noexcept {
  g_table.rows = static_cast<std::uint32_t>(gpuflight_hooks_rows_end - gpuflight_hooks_first_row);
  return &g_table;
}

// What a hook whose driver function is not known goes on to.
GPUFLIGHT_HIDDEN void* gpuflight_hooks_resolve(HookRow* row) noexcept {
  void* const found = find_real(*row);
  return found != nullptr ? found : reinterpret_cast<void*>(&no_driver);
}

// What a dlsym goes on to, with its arguments and its return address.
GPUFLIGHT_HIDDEN void* gpuflight_hooks_choose_dlsym(void* handle, const char* name) noexcept {
  const Dlsym real = real_dlsym();
  if (real == nullptr) return reinterpret_cast<void*>(&no_dlsym);
  HookRow* const row = row_of(name);
  if (row == nullptr) [[likely]] return reinterpret_cast<void*>(real);
  if (handle != RTLD_DEFAULT && handle != RTLD_NEXT) return reinterpret_cast<void*>(&hooked_dlsym);
  // These two find our own exports in their turn, as the order of the libraries has it.
  return find_real(*row) != nullptr ? reinterpret_cast<void*>(real) : reinterpret_cast<void*>(&refused_dlsym);
}

// Likewise of dlvsym, with the address that it returns to.
GPUFLIGHT_HIDDEN void* gpuflight_hooks_choose_dlvsym(void* handle, const char* name, const char*,
                                                     void* caller) noexcept {
  const Dlvsym real = real_dlvsym();
  if (real == nullptr) return reinterpret_cast<void*>(&no_dlsym);
  if (handle == RTLD_NEXT && name != nullptr && equal(name, "dlsym") && is_before_us(caller)) {
    return reinterpret_cast<void*>(&own_dlsym);
  }
  const bool named = handle != RTLD_DEFAULT && handle != RTLD_NEXT && row_of(name) != nullptr;
  return named ? reinterpret_cast<void*>(&hooked_dlvsym) : reinterpret_cast<void*>(real);
}

GPUFLIGHT_HIDDEN int gpuflight_hooks_init(unsigned flags) noexcept {
  HookRow& row = own_row("cuInit");
  if (find_real(row) == nullptr) return kNotInitialized;
  __atomic_store_n(&g_table.init_seen, 1u, __ATOMIC_RELAXED);
  const int result = reinterpret_cast<int (*)(unsigned)>(load(row.real))(flags);
  if (result == 0 && load(g_table.start_tried) == 0) start_recorder();
  return result;
}

GPUFLIGHT_HIDDEN int gpuflight_hooks_get_proc_address(const char* symbol, void** function, int cuda_version,
                                                      std::uint64_t flags) noexcept {
  HookRow& row = own_row("cuGetProcAddress");
  if (find_real(row) == nullptr) return kNotFound;
  using Real = int (*)(const char*, void**, int, std::uint64_t);
  const int result = reinterpret_cast<Real>(load(row.real))(symbol, function, cuda_version, flags);
  if (result == 0 && function != nullptr && *function != nullptr) {
    *function = instead_of(symbol, *function, cuda_version, flags);
  }
  return result;
}

GPUFLIGHT_HIDDEN int gpuflight_hooks_get_proc_address_v2(const char* symbol, void** function, int cuda_version,
                                                         std::uint64_t flags, int* found) noexcept {
  HookRow& row = own_row("cuGetProcAddress_v2");
  if (find_real(row) == nullptr) return kNotFound;
  using Real = int (*)(const char*, void**, int, std::uint64_t, int*);
  const int result = reinterpret_cast<Real>(load(row.real))(symbol, function, cuda_version, flags, found);
  if (result == 0 && function != nullptr && *function != nullptr) {
    *function = instead_of(symbol, *function, cuda_version, flags);
  }
  return result;
}

}  // extern "C"
