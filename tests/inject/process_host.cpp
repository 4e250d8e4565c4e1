// Host programs that fork, exec, spawn and clone around their launches. process_test.py says what must be seen.
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

namespace {

void wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("child ended with " + std::to_string(status));
}

void say(const char* text) {
  std::printf("%s %d\n", text, getpid());
  std::fflush(stdout);
}

// The child of a process that has CUDA must not use it, and ends in every way a child may.
int fork_after() {
  const Cuda cuda({kernel_named("parent")});
  cuda.launch_times(100, 1);
  std::thread busy([&] {
    cuda.use();
    cuda.launch_times(2000, 2);
  });
  for (int how = 0; how < 4; ++how) {
    if (how == 3) busy.join();  // a lock of the driver's, held by that thread, would never be free in the child
    const pid_t child = fork();
    if (child == 0) {
      if (how == 0) std::exit(0);
      if (how == 1) _exit(0);
      if (how == 2) {  // what a child of a careless program does: threads, memory, and then out
        std::thread([] { std::vector<int> memory(100'000, 1); }).join();
        std::exit(0);
      }
      // Launches in a child whose parent had CUDA are undefined; they must not reach the parent's log.
      for (int i = 0; i < 50; ++i) cuda.launch(77);
      std::exit(0);
    }
    wait_for(child);
  }
  cuda.launch_times(100, 3);
  say("parent");
  return 0;
}

int fork_first() {
  const pid_t child = fork();
  if (child == 0) {
    const Cuda cuda({kernel_named("child")});
    cuda.launch_times(30, 1);
    say("child");
    std::exit(0);
  }
  wait_for(child);
  const Cuda cuda({kernel_named("parent")});
  cuda.launch_times(20, 1);
  say("parent");
  return 0;
}

// No fork handler runs for a raw clone.
int raw_clone() {
  const Cuda cuda({kernel_named("parent")});
  cuda.launch_times(100, 1);
  const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    for (int i = 0; i < 50; ++i) cuda.launch(77);
    std::exit(0);
  }
  wait_for(static_cast<pid_t>(child));
  cuda.launch_times(100, 3);
  say("parent");
  return 0;
}

int exec(char** command) {
  const Cuda cuda({kernel_named("before_exec")});
  cuda.launch_times(10, 1);
  // As long as a line may take to be in the file.
  usleep(400'000);
  say("before_exec");
  execv(command[0], command);
  fail(std::strerror(errno));
}

// A child that borrows our memory until it execs.
void vfork_true() {
  static char path[] = "/bin/true";
  static char* arguments[] = {path, nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    execv(path, arguments);
    _exit(1);
  }
  wait_for(child);
}

int spawn() {
  const Cuda cuda({kernel_named("parent")});
  cuda.launch_times(10, 1);
  char path[] = "/bin/true";
  char* arguments[] = {path, nullptr};
  for (int i = 0; i < 5; ++i) {
    pid_t child = 0;
    if (posix_spawn(&child, path, nullptr, nullptr, arguments, environ) != 0) fail("posix_spawn");
    wait_for(child);
    if (std::system("exit 0") != 0) fail("system");
    vfork_true();
    cuda.launch_times(10, 2);
  }
  say("parent");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "fork_after") return fork_after();
  if (verb == "fork_first") return fork_first();
  if (verb == "raw_clone") return raw_clone();
  if (verb == "exec" && argc > 2) return exec(argv + 2);
  if (verb == "spawn") return spawn();
  if (verb == "launch") {
    const Cuda cuda({kernel_named("launched")});
    cuda.launch_times(argc > 2 ? std::atoi(argv[2]) : 1, 1);
    return 0;
  }
  std::fprintf(stderr, "usage: process_host VERB\n");
  return 2;
}
