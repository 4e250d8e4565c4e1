/* What a preload costs a program that never uses CUDA: /bin/true, run in turns with and without it. Prints medians of
 * the wall time from fork to exit, and of the peak resident memory, as one JSON line.
 *
 *   spawn_cost LIBRARY [RUNS] [PROGRAM]
 *
 * Linked statically and kept small: a child's peak counts the memory its parent had at the fork.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMostRuns = 2000 };

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double quantile(double* values, int count, double share) {
  qsort(values, (size_t)count, sizeof(double), by_value);
  return values[(int)((count - 1) * share + 0.5)];
}

static int run(const char* program, char* const* environment, double* ms, double* kb) {
  char* const arguments[] = {(char*)program, NULL};
  const double begin = now_ms();
  const pid_t child = fork();
  if (child == 0) {
    execve(program, arguments, environment);
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return -1;
  *ms = now_ms() - begin;
  *kb = (double)usage.ru_maxrss;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char** argv) {
  static double ms[2][kMostRuns], kb[2][kMostRuns], difference[kMostRuns];
  if (argc < 2) {
    fprintf(stderr, "usage: spawn_cost LIBRARY [RUNS] [PROGRAM]\n");
    return 2;
  }
  const int runs = argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) <= kMostRuns ? atoi(argv[2]) : 200;
  const char* program = argc > 3 ? argv[3] : "/bin/true";
  static char preload[4096];
  snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[1]);
  char* const without[] = {"PATH=/usr/bin:/bin", NULL};
  char* const with[] = {"PATH=/usr/bin:/bin", preload, NULL};
  for (int i = -5; i < runs; ++i) { /* five to warm up */
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + i) & 1;
      double took = 0, peak = 0;
      if (run(program, which ? with : without, &took, &peak) != 0) {
        fprintf(stderr, "%s failed%s\n", program, which ? " under the preload" : "");
        return 1;
      }
      if (i >= 0) ms[which][i] = took, kb[which][i] = peak;
    }
  }
  for (int i = 0; i < runs; ++i) difference[i] = ms[1][i] - ms[0][i];
  printf("{\"runs\":%d,\"plain_ms\":%.4f,\"preloaded_ms\":%.4f,\"added_ms\":%.4f,\"added_ms_q1\":%.4f,"
         "\"added_ms_q3\":%.4f,",
         runs, quantile(ms[0], runs, 0.5), quantile(ms[1], runs, 0.5), quantile(difference, runs, 0.5),
         quantile(difference, runs, 0.25), quantile(difference, runs, 0.75));
  const double plain = quantile(kb[0], runs, 0.5), loaded = quantile(kb[1], runs, 0.5);
  printf("\"plain_kb\":%.0f,\"preloaded_kb\":%.0f,\"added_kb\":%.0f}\n", plain, loaded, loaded - plain);
  return 0;
}
