// Host programs that fork, exec, spawn and clone around their launches. process_test.py says what must be seen.
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
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

// What a process has of its own: threads, descriptors, mappings of ours.
void say_belongings(const char* who) {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  std::ifstream maps("/proc/self/maps");
  int flight = 0;
  for (std::string line; std::getline(maps, line);) flight += line.ends_with(".flight") ? 1 : 0;
  std::printf("%s %d\n%s_threads %ld\n%s_descriptors %ld\n%s_flight_maps %d\n", who, getpid(), who,
              static_cast<long>(entries("/proc/self/task")), who, static_cast<long>(entries("/proc/self/fd")), who,
              flight);
  std::fflush(stdout);
}

// Workers that use no CUDA, as a data loader has them, while the parent launches; one of them forks again.
int workers(int count) {
  say_belongings("before");
  const Cuda cuda({kernel_named("parent")});
  for (int i = 0; i < count; ++i) {
    cuda.launch_times(50, 1);
    const pid_t child = fork();
    if (child == 0) {
      say_belongings(("worker" + std::to_string(i)).c_str());
      if (i == 0) {
        const pid_t grandchild = fork();
        if (grandchild == 0) _exit(0);
        wait_for(grandchild);
      }
      _exit(0);
    }
    wait_for(child);
  }
  if (std::system("exit 0") != 0) fail("system");
  vfork_true();
  cuda.launch_times(50, 2);
  say("parent");
  return 0;
}

// As daemon(3) and its likes: two forks, a session of its own, no descriptors, another directory.
int daemonise(const char* said_at) {
  const std::string where = said_at;
  if (const pid_t child = fork(); child != 0) {
    wait_for(child);
    return 0;
  }
  setsid();
  if (fork() != 0) _exit(0);
  if (chdir("/") != 0) fail("chdir");
  umask(0);
  for (int fd = 0; fd < 1024; ++fd) close(fd);
  {
    const Cuda cuda({kernel_named("daemon")});
    cuda.launch_times(70, 1);
    for (int fd = 0; fd < 1024; ++fd) close(fd);  // once more, where a library may have opened some
    cuda.launch_times(30, 2);
  }
  std::ofstream(where + ".part") << getpid() << "\n";
  std::filesystem::rename(where + ".part", where);
  std::exit(0);
}

// For programs in other languages: a module that the simulated driver loads.
int image(const char* kernel) {
  gpuflight::sim::ModuleImage image;
  image.kernels = {kernel_named(kernel)};
  const std::string text = gpuflight::sim::write_image(image);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

// Launches, says so, and stays.
int linger() {
  const Cuda cuda({kernel_named("lingering")});
  cuda.launch_times(25, 1);
  say("lingering");
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "fork_after") return fork_after();
  if (verb == "fork_first") return fork_first();
  if (verb == "raw_clone") return raw_clone();
  if (verb == "exec" && argc > 2) return exec(argv + 2);
  if (verb == "spawn") return spawn();
  if (verb == "workers" && argc > 2) return workers(std::atoi(argv[2]));
  if (verb == "daemon" && argc > 2) return daemonise(argv[2]);
  if (verb == "image" && argc > 2) return image(argv[2]);
  if (verb == "linger") return linger();
  if (verb == "launch") {
    const Cuda cuda({kernel_named("launched")});
    cuda.launch_times(argc > 2 ? std::atoi(argv[2]) : 1, 1);
    return 0;
  }
  std::fprintf(stderr, "usage: process_host VERB\n");
  return 2;
}
