#include "recorder/detached_command.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace gpuflight::recorder {
namespace {

bool is_ours(const char* entry) {
  for (const char* const name : {"LD_PRELOAD=", "CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH=", "GPUFLIGHT_"}) {
    if (std::strncmp(entry, name, std::strlen(name)) == 0) return true;
  }
  return false;
}

struct ChildPlan {
  char* const* arguments;
  char* const* environment;
};

// In the new process, which shares our memory until it has become the command: system calls only.
int become_command(void* given) {
  const auto& plan = *static_cast<const ChildPlan*>(given);
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3 && null >= 0; ++fd) dup2(null, fd);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  execve("/bin/sh", plan.arguments, plan.environment);
  _exit(127);
}

}  // namespace

bool DetachedCommand::run(const std::string& command,
                          const std::vector<std::pair<std::string, std::string>>& facts) noexcept {
  try {
    // Everything is made ready before the clone: afterwards only async-signal-safe calls are allowed.
    std::vector<std::string> texts;
    for (const auto& [name, value] : facts) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      if (!is_ours(*entry)) environment.push_back(*entry);
    }
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    const char* const arguments[] = {"sh", "-c", command.c_str(), nullptr};
    running_.reserve(running_.size() + 1);

    // Exit signal 0: neither SIGCHLD nor a plain wait() of the host's ever sees it, and no fork handlers run. Shared
    // memory until the exec: a fork would copy the page tables of a process of any size.
    const ChildPlan plan{const_cast<char* const*>(arguments), environment.data()};
    std::vector<char> stack(64 * 1024);
    const auto top = reinterpret_cast<std::uintptr_t>(stack.data() + stack.size()) & ~std::uintptr_t{15};
    const int pid = clone(&become_command, reinterpret_cast<void*>(top), CLONE_VM | CLONE_VFORK,
                          const_cast<ChildPlan*>(&plan));
    if (pid < 0) return false;
    running_.push_back(pid);
    return true;
  } catch (...) {
    return false;
  }
}

void DetachedCommand::poll() noexcept {
  std::erase_if(running_, [](int pid) {
    int status = 0;
    return waitpid(pid, &status, WNOHANG | __WCLONE) != 0;
  });
}

}  // namespace gpuflight::recorder
