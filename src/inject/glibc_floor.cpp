// Lets the library load where glibc is older than on the machine it was built on. A preloaded library that needs a
// newer symbol version than the process has ends every program, /bin/true included, so what it needs must be old.
//
// glibc 2.34 moved libpthread and libdl into libc and gave their functions new versions though nothing in them changed;
// a few functions that libstdc++.a, libgcc_eh.a and compilers' headers call are younger still. The linker is told
// (--wrap, by gpuflight_lower_glibc in cmake/injected_library.cmake, which reads the names off the OLD and OWN lines
// here) to send each such call, from our objects and from the static archives alike, to __wrap_NAME, which
//   OLD: jumps to the same function under its first version, or
//   OWN: is written here on older calls.
// A tail jump keeps the return address, by which dlsym(RTLD_NEXT) and dlopen know their caller, and needs no signature.
//
// What the library does not use is dropped with its section (--gc-sections). tests/inject checks the result.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define GPUFLIGHT_FIRST_VERSION "GLIBC_2.2.5"
#define GPUFLIGHT_VERSION(x86_64, aarch64) x86_64
#define GPUFLIGHT_JUMP(symbol) "endbr64\n\tjmp *" symbol "@GOTPCREL(%rip)\n"
#define GPUFLIGHT_FUNCTION "@function"
#elif defined(__aarch64__)
#define GPUFLIGHT_FIRST_VERSION "GLIBC_2.17"
#define GPUFLIGHT_VERSION(x86_64, aarch64) aarch64
#define GPUFLIGHT_JUMP(symbol) "b " symbol "\n"
#define GPUFLIGHT_FUNCTION "%function"
#else
#error "no floor is known for this machine: see the versions of pthread_create in its libc"
#endif

// `target` under `version` is what calls of `name` become.
#define GPUFLIGHT_OLD(name, target, version)                                                     \
  __asm__(".pushsection .text.glibc_floor." #name ",\"ax\"\n"                                    \
          ".symver gpuflight_floor_" #name "," #target "@" version "\n"                          \
          ".globl __wrap_" #name "\n.hidden __wrap_" #name "\n"                                  \
          ".type __wrap_" #name "," GPUFLIGHT_FUNCTION "\n"                                      \
          "__wrap_" #name ":\n\t" GPUFLIGHT_JUMP("gpuflight_floor_" #name)                       \
          ".size __wrap_" #name ",.-__wrap_" #name "\n.popsection\n")

#define OLD(name) GPUFLIGHT_OLD(name, name, GPUFLIGHT_FIRST_VERSION)
#define OLD_SINCE(name, x86_64, aarch64) GPUFLIGHT_OLD(name, name, GPUFLIGHT_VERSION(x86_64, aarch64))
#define OLD_NAMED(name, target) GPUFLIGHT_OLD(name, target, GPUFLIGHT_FIRST_VERSION)

// --- libpthread, moved into libc by 2.34 (pthread_sigmask and pthread_getattr_np by 2.32, some by 2.30) ---
OLD(__pthread_key_create);
OLD(pthread_attr_getguardsize);
OLD(pthread_attr_getstack);
OLD(pthread_attr_getstacksize);
OLD(pthread_attr_setguardsize);
OLD(pthread_attr_setstack);
OLD(pthread_attr_setstacksize);
OLD(pthread_barrier_destroy);
OLD(pthread_barrier_init);
OLD(pthread_barrier_wait);
OLD(pthread_cancel);
OLD_SINCE(pthread_condattr_getclock, "GLIBC_2.3.3", "GLIBC_2.17");
OLD_SINCE(pthread_condattr_setclock, "GLIBC_2.3.3", "GLIBC_2.17");
OLD(pthread_condattr_setpshared);
OLD(pthread_create);
OLD(pthread_detach);
OLD_SINCE(pthread_getaffinity_np, "GLIBC_2.3.4", "GLIBC_2.17");
OLD(pthread_getattr_np);
OLD(pthread_getcpuclockid);
OLD_SINCE(pthread_getname_np, "GLIBC_2.12", "GLIBC_2.17");
OLD(pthread_getspecific);
OLD(pthread_join);
OLD(pthread_key_create);
OLD(pthread_key_delete);
OLD(pthread_kill);
OLD_SINCE(pthread_mutex_consistent, "GLIBC_2.12", "GLIBC_2.17");
OLD(pthread_mutex_timedlock);
OLD(pthread_mutex_trylock);
OLD(pthread_mutexattr_destroy);
OLD(pthread_mutexattr_init);
OLD(pthread_mutexattr_setpshared);
OLD_SINCE(pthread_mutexattr_setrobust, "GLIBC_2.12", "GLIBC_2.17");
OLD(pthread_mutexattr_settype);
OLD(pthread_once);
OLD(pthread_rwlock_destroy);
OLD(pthread_rwlock_init);
OLD(pthread_rwlock_rdlock);
OLD(pthread_rwlock_timedrdlock);
OLD(pthread_rwlock_timedwrlock);
OLD(pthread_rwlock_tryrdlock);
OLD(pthread_rwlock_trywrlock);
OLD(pthread_rwlock_unlock);
OLD(pthread_rwlock_wrlock);
OLD_SINCE(pthread_setaffinity_np, "GLIBC_2.3.4", "GLIBC_2.17");
OLD_SINCE(pthread_setname_np, "GLIBC_2.12", "GLIBC_2.17");
OLD(pthread_setspecific);
OLD(pthread_sigmask);
OLD(pthread_spin_destroy);
OLD(pthread_spin_init);
OLD(pthread_spin_lock);
OLD(pthread_spin_trylock);
OLD(pthread_spin_unlock);
OLD(pthread_testcancel);
OLD_SINCE(pthread_timedjoin_np, "GLIBC_2.3.3", "GLIBC_2.17");
OLD_SINCE(pthread_tryjoin_np, "GLIBC_2.3.3", "GLIBC_2.17");
OLD(sem_destroy);
OLD(sem_getvalue);
OLD(sem_init);
OLD(sem_post);
OLD(sem_timedwait);
OLD(sem_trywait);
OLD(sem_wait);

// --- libdl, moved into libc by 2.34 ---
OLD(dladdr);
OLD_SINCE(dladdr1, "GLIBC_2.3.3", "GLIBC_2.17");
OLD(dlclose);
OLD(dlerror);
OLD_SINCE(dlinfo, "GLIBC_2.3.3", "GLIBC_2.17");
OLD_SINCE(dlmopen, "GLIBC_2.3.4", "GLIBC_2.17");
OLD(dlopen);
OLD(dlsym);
OLD(dlvsym);

// --- libm: new versions only differ in how they report errors to a matherr hook ---
OLD(exp);
OLD(exp2);
OLD(fmod);
OLD(hypot);
OLD(log);
OLD(log2);
OLD(pow);

// --- headers of glibc 2.38 and later turn these into forms that also read binary literals ---
OLD_NAMED(__isoc23_strtol, strtol);
OLD_NAMED(__isoc23_strtoll, strtoll);
OLD_NAMED(__isoc23_strtoul, strtoul);
OLD_NAMED(__isoc23_strtoull, strtoull);

#define OWN(name) __wrap_##name
#define GPUFLIGHT_OWN_LINKAGE extern "C" __attribute__((visibility("hidden")))

namespace {

// How long until `deadline` on `clock`, added to the realtime clock: the older calls know only that one. Both ends are
// read late, so that a step of the realtime clock can only disturb a wait that is under way.
timespec on_realtime_clock(clockid_t clock, const timespec& deadline) {
  timespec now{}, realtime{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &realtime);
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t left = (deadline.tv_sec - now.tv_sec) * kSecond + (deadline.tv_nsec - now.tv_nsec);
  if (left < 0) left = 0;
  const int64_t nanoseconds = realtime.tv_nsec + left % kSecond;
  return {static_cast<time_t>(realtime.tv_sec + left / kSecond + nanoseconds / kSecond),
          static_cast<long>(nanoseconds % kSecond)};
}

bool reached(clockid_t clock, const timespec& deadline) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec != deadline.tv_sec ? now.tv_sec > deadline.tv_sec : now.tv_nsec >= deadline.tv_nsec;
}

// Waits again while the timeout came early because the realtime clock was stepped.
template <class Wait>
int wait_until(clockid_t clock, const timespec& deadline, Wait wait) {
  for (;;) {
    const timespec until = on_realtime_clock(clock, deadline);
    const int result = wait(&until);
    if (result != ETIMEDOUT || reached(clock, deadline)) return result;
  }
}

}  // namespace

// --- younger than the floor, in terms of older calls ---

// libstdc++ asks whether it may leave out atomics. Never: threads come and go in a host process.
GPUFLIGHT_OWN_LINKAGE char OWN(__libc_single_threaded);
char OWN(__libc_single_threaded) = 0;

GPUFLIGHT_OWN_LINKAGE pid_t OWN(gettid)() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// On 64-bit machines the kernel's struct stat is the C library's.
GPUFLIGHT_OWN_LINKAGE int OWN(stat)(const char* path, struct stat* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
GPUFLIGHT_OWN_LINKAGE int OWN(stat64)(const char* path, struct stat64* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
GPUFLIGHT_OWN_LINKAGE int OWN(lstat)(const char* path, struct stat* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
GPUFLIGHT_OWN_LINKAGE int OWN(lstat64)(const char* path, struct stat64* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
GPUFLIGHT_OWN_LINKAGE int OWN(fstat)(int fd, struct stat* out) {
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}
GPUFLIGHT_OWN_LINKAGE int OWN(fstat64)(int fd, struct stat64* out) {
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}
GPUFLIGHT_OWN_LINKAGE int OWN(fstatat)(int fd, const char* path, struct stat* out, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, fd, path, out, flags));
}
GPUFLIGHT_OWN_LINKAGE int OWN(fstatat64)(int fd, const char* path, struct stat64* out, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, fd, path, out, flags));
}

GPUFLIGHT_OWN_LINKAGE uint32_t OWN(arc4random)() {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) < 0 && errno == EINTR) {
  }
  return value;
}

GPUFLIGHT_OWN_LINKAGE int OWN(pthread_cond_clockwait)(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                                      clockid_t clock, const timespec* deadline) {
  const timespec until = clock == CLOCK_REALTIME ? *deadline : on_realtime_clock(clock, *deadline);
  const int result = pthread_cond_timedwait(condition, mutex, &until);
  // Woken early by a clock step: a spurious wake-up, which every caller must expect.
  return result == ETIMEDOUT && !reached(clock, *deadline) ? 0 : result;
}
GPUFLIGHT_OWN_LINKAGE int OWN(pthread_mutex_clocklock)(pthread_mutex_t* mutex, clockid_t clock,
                                                       const timespec* deadline) {
  return wait_until(clock, *deadline, [&](const timespec* until) { return pthread_mutex_timedlock(mutex, until); });
}
GPUFLIGHT_OWN_LINKAGE int OWN(pthread_rwlock_clockrdlock)(pthread_rwlock_t* lock, clockid_t clock,
                                                          const timespec* deadline) {
  return wait_until(clock, *deadline, [&](const timespec* until) { return pthread_rwlock_timedrdlock(lock, until); });
}
GPUFLIGHT_OWN_LINKAGE int OWN(pthread_rwlock_clockwrlock)(pthread_rwlock_t* lock, clockid_t clock,
                                                          const timespec* deadline) {
  return wait_until(clock, *deadline, [&](const timespec* until) { return pthread_rwlock_timedwrlock(lock, until); });
}
GPUFLIGHT_OWN_LINKAGE int OWN(sem_clockwait)(sem_t* semaphore, clockid_t clock, const timespec* deadline) {
  const int error = wait_until(clock, *deadline, [&](const timespec* until) {
    return sem_timedwait(semaphore, until) == 0 ? 0 : errno;
  });
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// --- the unwinder's question "which object is this address in" (glibc 2.35) ---

namespace {

// Layout of glibc's struct dl_find_object on 64-bit machines; libgcc reads eh_frame.
struct FoundObject {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  struct link_map* link_map;
  void* eh_frame;  // the object's PT_GNU_EH_FRAME
  unsigned long long reserved[7];
};

struct Search {
  uintptr_t address;
  FoundObject* found;
};

bool find_in(uintptr_t base, const ElfW(Phdr) * headers, unsigned count, const Search& search) {
  const ElfW(Phdr)* eh_frame = nullptr;
  bool inside = false;
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (const ElfW(Phdr)* header = headers; header != headers + count; ++header) {
    const uintptr_t start = base + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) eh_frame = header;
    if (header->p_type != PT_LOAD) continue;
    if (search.address - start < header->p_memsz) inside = true;
    if (start < low) low = start;
    if (start + header->p_memsz > high) high = start + header->p_memsz;
  }
  if (!inside || eh_frame == nullptr) return false;
  *search.found = {};
  search.found->map_start = reinterpret_cast<void*>(low);
  search.found->map_end = reinterpret_cast<void*>(high);
  search.found->eh_frame = reinterpret_cast<void*>(base + eh_frame->p_vaddr);
  return true;
}

int visit_object(struct dl_phdr_info* info, size_t, void* search) {
  return find_in(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, *static_cast<const Search*>(search)) ? 1 : 0;
}

}  // namespace

extern "C" const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));  // by the linker: our own first byte

GPUFLIGHT_OWN_LINKAGE int OWN(_dl_find_object)(void* address, FoundObject* found) {
  const Search search{reinterpret_cast<uintptr_t>(address), found};
  // Our exceptions are thrown and caught in our own code: found here, without the loader's lock.
  const auto own_base = reinterpret_cast<uintptr_t>(&__ehdr_start);
  const auto* own_headers = reinterpret_cast<const ElfW(Phdr)*>(own_base + __ehdr_start.e_phoff);
  if (find_in(own_base, own_headers, __ehdr_start.e_phnum, search)) return 0;
  return dl_iterate_phdr(visit_object, const_cast<Search*>(&search)) == 1 ? 0 : -1;
}
