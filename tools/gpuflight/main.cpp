// gpuflight: the command line. Finds the verb, turns what it throws into one line and an exit code.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "failure.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

int dispatch(const Arguments& all) {
  if (all.empty()) {
    say_text(short_help());
    return kExitUsage;
  }
  std::string name = all.front();
  Arguments rest(all.begin() + 1, all.end());
  if (name == "--help" || name == "-h" || name == "help") {
    if (rest.empty() || name != "help") {
      fmt::print("{}", short_help());
      return kExitOk;
    }
    name = rest.front();  // gpuflight help VERB
    rest = {"--help"};
  }
  if (name == "--version") name = "version";
  if (const Verb* verb = find_verb(name)) return verb->call(rest);

  std::vector<std::string> known;
  for (const Verb& verb : verbs()) {
    if (verb.use != nullptr) known.emplace_back(verb.name);
  }
  const std::string nearest = nearest_word(name, known);
  throw UsageError(nearest.empty() ? fmt::format("unknown verb '{}'", name)
                                   : fmt::format("unknown verb '{}', did you mean '{}'?", name, nearest),
                   "");
}

int guarded(const Arguments& all) {
  try {
    return dispatch(all);
  } catch (const UsageError& error) {
    const std::string verb = error.verb().empty() ? "" : " " + error.verb();
    say("gpuflight{}: {} (see 'gpuflight{} --help')\n", verb, error.what(), verb);
    return error.exit_code();
  } catch (const Failure& error) {
    say("gpuflight: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    say("gpuflight: out of memory\n");
    return kExitFailure;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) {  // fmt throws then
      say("gpuflight: cannot write the output\n");
      return kExitFailure;
    }
    say("gpuflight: internal error: {}\n", error.what());
    return kExitFailure;
  }
}

}  // namespace
}  // namespace gpuflight::cli

int main(int argc, char** argv) {
  gpuflight::cli::occupy_standard_descriptors();
  const int code = gpuflight::cli::guarded({argv + 1, argv + argc});
  // `gpuflight report | head` closes our output early: that is the reader's good right, not an error of ours. A full
  // disk behind it is one, and may show only now.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  gpuflight::cli::say("gpuflight: cannot write the output\n");
  return code != 0 ? code : gpuflight::cli::kExitFailure;
}
