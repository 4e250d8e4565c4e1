#include "child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "analysis/process_state.h"
#include "failure.h"

namespace gpuflight::cli {
namespace {

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

// Blocks what we wait for with sigwaitinfo; the destructor puts everything back as it was.
class WaitedSignals {
 public:
  WaitedSignals() {
    sigemptyset(&waited_);
    for (const int number : kForwarded) sigaddset(&waited_, number);
    sigaddset(&waited_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &waited_, &before_);
    // An inherited "ignore" would make the kernel reap the child before we ask for its exit code.
    struct sigaction fresh {};
    fresh.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &fresh, &child_before_);
  }
  ~WaitedSignals() { restore(); }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  void restore() const {
    sigaction(SIGCHLD, &child_before_, nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  const sigset_t* waited() const { return &waited_; }

 private:
  sigset_t waited_{};
  sigset_t before_{};
  struct sigaction child_before_ {};
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

// A terminal's stop that our own parent shell must learn of. SIGSTOP is not among them: who freezes the program alone
// will thaw it alone, and would not know to wake us.
bool is_terminal_stop(int number) { return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU; }

void stop_with_child(pid_t child) {
  raise(SIGSTOP);
  kill(child, SIGCONT);
}

// Waits until the child has ended; passes signals on meanwhile.
int supervise(ChildResult& result, const WaitedSignals& signals) {
  const pid_t child = result.pid;
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(child, &status, WNOHANG | WUNTRACED);
    if (got == child && !WIFSTOPPED(status)) return status;
    if (got == child && is_terminal_stop(WSTOPSIG(status))) {
      stop_with_child(child);
      continue;
    }
    if (got < 0 && errno != EINTR) throw Failure(fmt::format("cannot wait for the program: {}", strerror(errno)));
    if (got == child) continue;

    siginfo_t info{};
    const int number = sigwaitinfo(signals.waited(), &info);
    if (number < 0 || number == SIGCHLD) continue;
    // From the kernel: the terminal, which has sent it to the whole foreground group, the program among it.
    if (info.si_code == SI_KERNEL) {
      sigaddset(&result.from_terminal, number);
      continue;
    }
    sigaddset(&result.passed_on, number);
    kill(child, number);
  }
}

// While the child cannot be another one yet: it has not been waited for.
std::uint64_t start_ticks(pid_t child) {
  std::ifstream file("/proc/" + std::to_string(child) + "/stat");
  std::string line;
  std::getline(file, line);
  std::size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(line.c_str() + at + 1, nullptr, 10);
}

// Where the child could not exec: its errno through a pipe that exec closes.
int read_errno(int fd) {
  int value = 0;
  ssize_t got = 0;
  while ((got = read(fd, &value, sizeof(value))) < 0 && errno == EINTR) {
  }
  return got == sizeof(value) ? value : 0;
}

}  // namespace

int ChildResult::exit_code() const {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : kExitFailure;
}

ChildResult run_child(const std::string& path, const std::vector<std::string>& argv,
                      const std::vector<std::string>& environment) {
  const std::vector<char*> arguments = pointers(argv);
  const std::vector<char*> variables = pointers(environment);
  int channel[2];
  if (pipe2(channel, O_CLOEXEC) != 0) throw Failure(fmt::format("cannot create a pipe: {}", strerror(errno)));

  const WaitedSignals signals;
  const auto begin = std::chrono::steady_clock::now();
  ChildResult result;
  result.pid = fork();
  if (result.pid < 0) throw Failure(fmt::format("cannot start a process: {}", strerror(errno)));
  if (result.pid == 0) {
    signals.restore();
    execvpe(path.c_str(), arguments.data(), variables.data());  // "p": a script without "#!" goes to /bin/sh
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(channel[1], &error, sizeof(error));
    _exit(kExitNotExecutable);
  }
  close(channel[1]);
  const int error = read_errno(channel[0]);
  close(channel[0]);
  result.start_ticks = start_ticks(result.pid);
  result.wait_status = supervise(result, signals);
  result.wall_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  result.ended_monotonic_ns = analysis::monotonic_ns();
  if (error != 0) {
    throw Failure(fmt::format("cannot run '{}': {}", argv.front(), strerror(error)),
                  error == ENOENT ? kExitNotFound : kExitNotExecutable);
  }
  return result;
}

}  // namespace gpuflight::cli
