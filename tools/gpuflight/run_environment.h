// The environment a recorded program is started with: ours, plus the preload, the injection variable and the options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "elf_image.h"

namespace gpuflight::cli {

// What `run` has decided, and what it has to tell the user about it.
struct RunEnvironment {
  std::map<std::string, std::string> set;  // variables changed or added
  std::vector<std::string> remarks;        // one line each
  bool preloads = false;

  // Our own environment with `set` in it, as execve takes it.
  std::vector<std::string> merged() const;
};

// `library` is the absolute path of libgpuflight.so, `hooks` that of the hooks library (empty: launches are to be seen
// through CUPTI alone), `program` what is about to be started.
RunEnvironment plan_environment(const std::string& library, const ProgramImage& program,
                                const std::string& hooks = {});

}  // namespace gpuflight::cli
