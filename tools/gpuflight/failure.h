// What a verb throws when it cannot go on. main turns each into one line on stderr and an exit code, so that no verb
// prints errors or exits by itself.
#pragma once

#include <stdexcept>
#include <string>

namespace gpuflight::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCannotStart = 125;    // run itself failed, the program was not started
inline constexpr int kExitNotExecutable = 126;  // as env, nohup and the shell say it
inline constexpr int kExitNotFound = 127;

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, int exit_code = kExitFailure)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The command line itself is wrong; `verb` (may be empty) says whose help to point to.
class UsageError : public Failure {
 public:
  UsageError(const std::string& message, std::string verb) : Failure(message, kExitUsage), verb_(std::move(verb)) {}
  const std::string& verb() const { return verb_; }

 private:
  std::string verb_;
};

}  // namespace gpuflight::cli
