/* Loads the probe as a CUDA program loads an injected library, or finds it preloaded, and lets it report. */
#include <dlfcn.h>
#include <stdio.h>

static int passed, failed;

static void report(const char* what, int ok) {
  printf("%s: %s\n", ok ? "ok" : "FAILED", what);
  ok ? ++passed : ++failed;
}

int main(int argc, char** argv) {
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : dlopen(NULL, RTLD_NOW);
  void (*probe)(void (*)(const char*, int)) = NULL;
  if (library != NULL) *(void**)&probe = dlsym(library, "gpuflight_probe");
  if (probe == NULL) {
    printf("no probe: %s\n", dlerror());
    return 1;
  }
  probe(report);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
