/* An allocator that is preloaded, as jemalloc and tcmalloc are: it asks dlsym for libc's inside the first allocation, and
 * cannot allocate meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static void* (*real_malloc)(size_t);
static void (*real_free)(void*);
static int looking_up;

static void look_up(void) {
  if (looking_up) abort();  /* dlsym has allocated */
  looking_up = 1;
  real_malloc = dlsym(RTLD_NEXT, "malloc");
  real_free = dlsym(RTLD_NEXT, "free");
  looking_up = 0;
}

void* malloc(size_t size) {
  if (real_malloc == NULL) look_up();
  return real_malloc(size);
}

void free(void* block) {
  if (real_free == NULL) look_up();
  real_free(block);
}
