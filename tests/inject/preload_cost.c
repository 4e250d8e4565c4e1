/* What a process that never calls CUDA pays for the preload: /bin/true with and without it, taken in turn, lower
 * quartiles, since what others do on the machine only ever adds.
 *   preload_cost LIBRARY LIMIT_MS LIMIT_KIB
 * Exit 0 within the limits, 1 beyond. A busy machine gets three tries. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { kRounds = 300, kTries = 3 };

struct cost {
  double ms;
  double kib;
};

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static struct cost run_true(char** environment) {
  char* arguments[] = {"true", NULL};
  struct rusage usage;
  pid_t child;
  int status;
  const double begin = now_ms();
  if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment) != 0 ||
      wait4(child, &status, 0, &usage) != child || status != 0) {
    printf("FAILED: /bin/true did not end with 0\n");
    exit(1);
  }
  const struct cost cost = {now_ms() - begin, (double)usage.ru_maxrss};
  return cost;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double quartile(double* values) {
  qsort(values, kRounds, sizeof *values, by_value);
  return values[kRounds / 4];
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const double limit_ms = atof(argv[2]), limit_kib = atof(argv[3]);
  char preload[4096];
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[1]);
  char* bare[] = {"LC_ALL=C", NULL};
  char* loaded[] = {preload, NULL};
  double ms[2][kRounds], kib[2][kRounds];
  for (int attempt = 0; attempt < kTries; ++attempt) {
    for (int round = 0; round < kRounds; ++round) {
      const struct cost without = run_true(bare), with = run_true(loaded);
      ms[0][round] = without.ms, kib[0][round] = without.kib;
      ms[1][round] = with.ms, kib[1][round] = with.kib;
    }
    const double bare_ms = quartile(ms[0]), bare_kib = quartile(kib[0]);
    const double more_ms = quartile(ms[1]) - bare_ms, more_kib = quartile(kib[1]) - bare_kib;
    printf("/bin/true: %.3f ms, %.0f KiB; under the preload %+.3f ms (limit %.3f), %+.0f KiB (limit %.0f)\n", bare_ms,
           bare_kib, more_ms, limit_ms, more_kib, limit_kib);
    if (more_ms <= limit_ms && more_kib <= limit_kib) return 0;
  }
  return 1;
}
