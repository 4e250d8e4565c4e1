// Program arguments as they may stand in a log: values that look like secrets are replaced.
#pragma once

#include <string>
#include <vector>

namespace gpuflight::recorder {

inline constexpr const char* kMasked = "***";

struct MaskedArguments {
  std::vector<std::string> args;
  bool masked = false;  // something was replaced
};

// `all`: every argument but the program's own name.
MaskedArguments mask_arguments(std::vector<std::string> args, bool all);

}  // namespace gpuflight::recorder
