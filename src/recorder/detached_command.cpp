#include "recorder/detached_command.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/recorder_thread.h"

extern char** environ;

namespace gpuflight::recorder {
namespace {

bool is_ours(const char* entry) {
  for (const char* const name : {"LD_PRELOAD=", "CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH=", "GPUFLIGHT_"}) {
    if (std::strncmp(entry, name, std::strlen(name)) == 0) return true;
  }
  return false;
}

struct Stack {
  alignas(16) char bytes[64 * 1024];
  void* top() noexcept { return bytes + sizeof bytes; }
};

}  // namespace

struct DetachedCommand::Job {
  DetachedCommand* owner;
  int host_pid;
  std::string command;
  std::vector<std::string> texts;
  std::vector<char*> environment;
  const char* arguments[4];
  Stack of_minder, of_command;
};

// System calls only, from here on to the command: both processes share the host's memory.

int DetachedCommand::mind(void* given) noexcept {
  auto& job = *static_cast<Job*>(given);
  syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (syscall(SYS_getppid) != job.host_pid) syscall(SYS_exit_group, 1);  // it has ended already
  syscall(SYS_setsid);
  // A host that collects orphans (as process 1 of a container does) must not get the command's.
  syscall(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  // The host's pipes and sockets must not stay open for as long as the command runs.
  close_descriptors_from(0);
  const int pid =
      clone(&become_command, job.of_command.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, static_cast<void*>(&job));
  if (pid > 0) syscall(SYS_wait4, pid, nullptr, 0, nullptr);  // all signals are blocked: nothing cuts it short
  job.owner->running_.store(false, std::memory_order_release);
  while (syscall(SYS_wait4, -1, nullptr, 0, nullptr) > 0) {  // what the command left running
  }
  syscall(SYS_exit_group, 0);
  return 0;
}

int DetachedCommand::become_command(void* given) noexcept {
  const auto& job = *static_cast<const Job*>(given);
  for (int fd = 0; fd < 3; ++fd) syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
  // Back to what a shell expects. Ignored signals stay ignored, as with any child of the host's.
  const std::uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
  syscall(SYS_execve, "/bin/sh", job.arguments, job.environment.data());
  syscall(SYS_exit_group, 127);
  return 127;
}

void DetachedCommand::thread_main(void* given) noexcept {
  auto* const job = static_cast<Job*>(given);
  const int pid = clone(&mind, job->of_minder.top(), CLONE_VM | CLONE_VFORK, given);
  // Here the minder has ended.
  int status = 0;
  if (pid > 0) waitpid(pid, &status, __WCLONE);
  if (pid < 0) job->owner->running_.store(false, std::memory_order_release);
  delete job;
}

bool DetachedCommand::run(const std::string& command, const Variables& facts) noexcept {
  if (running_.exchange(true, std::memory_order_acq_rel)) return false;
  try {
    auto job = std::make_unique<Job>();
    job->owner = this;
    job->host_pid = static_cast<int>(getpid());
    job->command = command;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      if (!is_ours(*entry)) job->texts.push_back(*entry);
    }
    for (const auto& [name, value] : facts) job->texts.push_back(name + "=" + value);
    for (std::string& text : job->texts) job->environment.push_back(text.data());
    job->environment.push_back(nullptr);
    job->arguments[0] = "sh";
    job->arguments[1] = "-c";
    job->arguments[2] = job->command.c_str();
    job->arguments[3] = nullptr;
    // Never freed: its last act is to say that it is done. A few hundred bytes for each hang.
    auto* const thread = new RecorderThread;
    if (thread->start("gpuflight-hang", &DetachedCommand::thread_main, job.get())) {
      job.release();
      return true;
    }
    delete thread;
  } catch (...) {
  }
  running_.store(false, std::memory_order_release);
  return false;
}

}  // namespace gpuflight::recorder
