/* A library that asks the loader, for interpose_host: what it finds depends on where it stands itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

/* Not by a jump: the loader goes by the address that it returns to. */
#define RETURNED(call)                  \
  void* found = call;                   \
  __asm__ volatile("" : "+r"(found));   \
  return found

void asked_for(void) {}
void* asker_next(void) { RETURNED(dlsym(RTLD_NEXT, "asked_for")); }
void* asker_default(void) { RETURNED(dlsym(RTLD_DEFAULT, "malloc")); }
void* asker_dlsym(void) { RETURNED(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5")); }
/* Loaded with RTLD_DEEPBIND, its own libc comes before any preload: this is libc's dlsym then. */
void* asker_lookup(void* handle, const char* name) { RETURNED(dlsym(handle, name)); }
