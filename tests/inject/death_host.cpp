// A program with signal handlers of its own, some set before it first uses CUDA and some after, that says what it finds
// and in which order they run. death_test.py compares what it says with and without the recorder.
//
//   death_host handlers       what sigaction, the masks and the alternate stack say; the handlers' order; ends by SIGSEGV
//   death_host exit-in-handler  a SIGTERM handler that calls exit(7)
//   death_host eat MIB        launches, then takes memory until somebody stops it, or MIB are taken
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "sim_program.h"

namespace {

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

constexpr int kSignals = 65;

void say(const char* text) { [[maybe_unused]] const ssize_t n = write(STDOUT_FILENO, text, std::strlen(text)); }

struct sigaction old_term {}, old_segv {};

void first(int number) {
  say(number == SIGTERM ? "term first\n" : "segv first\n");
  if (number == SIGSEGV) signal(SIGSEGV, SIG_DFL);  // the fault happens again, and ends us
}

void second(int number, siginfo_t*, void*) {
  say(number == SIGTERM ? "term second\n" : "segv second\n");
  (number == SIGTERM ? old_term : old_segv).sa_handler(number);
}

// One line for each signal whose disposition is not the default one, and what else of signals a library could change.
void say_dispositions(const char* when) {
  say(when);
  for (int number = 1; number < kSignals; ++number) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) != 0) continue;
    if (now.sa_handler == SIG_DFL && now.sa_flags == 0) continue;
    const char* const who = now.sa_handler == SIG_DFL   ? "default"
                            : now.sa_handler == SIG_IGN ? "ignored"
                            : now.sa_handler == &first  ? "first"
                            : now.sa_sigaction == &second ? "second"
                                                          : "SOMEBODY ELSE";
    say((" " + std::to_string(number) + " " + who + " flags " + std::to_string(now.sa_flags)).c_str());
  }
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number < kSignals; ++number) {
    if (sigismember(&mask, number) == 1) say((" blocked " + std::to_string(number)).c_str());
  }
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  say((" alternate stack " + std::to_string(stack.ss_size) + "\n").c_str());
}

int handlers() {
  say_dispositions("at first:");
  static char room[64 * 1024];
  stack_t stack{};
  stack.ss_sp = room;
  stack.ss_size = sizeof room;
  sigaltstack(&stack, nullptr);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGTERM, SIGSEGV}) {
    struct sigaction action {};
    action.sa_handler = &first;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(number, &action, nullptr);
  }
  say_dispositions("before CUDA:");
  {
    const Cuda cuda({kernel_named("launched")});
    cuda.launch_times(100, 1);
    say_dispositions("with CUDA:");
    struct sigaction action {};
    action.sa_sigaction = &second;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    sigaction(SIGTERM, &action, &old_term);
    sigaction(SIGSEGV, &action, &old_segv);
    if (old_term.sa_handler != &first || old_segv.sa_handler != &first) say("SOMEBODY CAME BETWEEN\n");
    cuda.launch_times(100, 2);
    say_dispositions("after all:");
    raise(SIGTERM);
    cuda.launch_times(100, 3);
    *static_cast<volatile int*>(nullptr) = 1;
  }
  return 0;
}

int exit_in_handler() {
  const Cuda cuda({kernel_named("launched")});
  cuda.launch_times(100, 1);
  signal(SIGTERM, [](int) { std::exit(7); });
  raise(SIGTERM);
  return 0;
}

int eat(std::size_t mib) {
  const Cuda cuda({kernel_named("launched")});
  cuda.launch_times(500, 1);
  for (std::size_t i = 0; i < mib; ++i) {
    constexpr std::size_t kMib = 1 << 20;
    void* const more = mmap(nullptr, kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED) fail("mmap");
    std::memset(more, static_cast<int>(i % 255) + 1, kMib);
    cuda.launch(2);
  }
  return 5;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "handlers") return handlers();
  if (verb == "exit-in-handler") return exit_in_handler();
  if (verb == "eat" && argc > 2) return eat(static_cast<std::size_t>(std::atoi(argv[2])));
  std::fprintf(stderr, "usage: death_host handlers | exit-in-handler | eat MIB\n");
  return 2;
}
