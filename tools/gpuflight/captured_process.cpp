#include "captured_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace gpuflight::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostOutput = 1 << 20;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

// False: the other end is closed.
bool take(int fd, std::string& into) {
  char bytes[4096];
  const ssize_t got = ::read(fd, bytes, sizeof(bytes));
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got > 0 && into.size() < kMostOutput) into.append(bytes, static_cast<std::size_t>(got));
  return got > 0;
}

// What is still in the pipe; a grandchild that holds its other end is not waited for.
void drain(int fd, bool open, std::string& into) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  while (open) {
    errno = 0;
    open = take(fd, into) && errno != EAGAIN;
  }
  ::close(fd);
}

[[noreturn]] void become(const std::vector<char*>& argv, const std::vector<char*>& environment, int out, int err) {
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::setpgid(0, 0);  // so that whatever it starts ends with it
  ::execve(argv.front(), argv.data(), environment.data());
  ::_exit(127);
}

}  // namespace

CapturedProcess run_captured(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                             std::chrono::milliseconds limit) {
  CapturedProcess process;
  const std::vector<char*> arguments = pointers(argv);
  const std::vector<char*> variables = pointers(environment);
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return process;
  if (::pipe2(err, O_CLOEXEC) != 0) {
    ::close(out[0]);
    ::close(out[1]);
    return process;
  }
  const pid_t child = ::fork();
  if (child == 0) become(arguments, variables, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  process.started = child > 0;
  const auto deadline = Clock::now() + limit;
  bool out_open = process.started, err_open = process.started, ended = !process.started;
  while (!ended) {
    pollfd fds[2] = {{out_open ? out[0] : -1, POLLIN, 0}, {err_open ? err[0] : -1, POLLIN, 0}};
    ::poll(fds, 2, 20);
    if (fds[0].revents != 0) out_open = take(out[0], process.output);
    if (fds[1].revents != 0) err_open = take(err[0], process.errors);
    // Ended is when the process has ended, not when a grandchild lets go of its output.
    if (::waitpid(child, &process.wait_status, WNOHANG) == child) ended = true;
    if (!ended && Clock::now() > deadline) {
      process.timed_out = true;
      ::kill(-child, SIGKILL);
      ::kill(child, SIGKILL);
      ended = ::waitpid(child, &process.wait_status, 0) == child;
    }
  }
  drain(out[0], out_open, process.output);
  drain(err[0], err_open, process.errors);
  return process;
}

}  // namespace gpuflight::cli
