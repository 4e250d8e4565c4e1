// What `doctor` learns of the hooks: whether launches could be seen without CUPTI, and who else stands before the
// loader's calls or the allocator.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "doctor_checks.h"

namespace gpuflight::cli {

// What a process with the hooks preloaded found out.
struct HooksProbe {
  nlohmann::ordered_json facts;  // what it printed; null: it failed
  std::string capture, reason;   // of its session_start
  std::string problem;           // the first warning or error in its log
  std::string failure;           // why there are no facts
};

// `hooks`: their path; empty: not found. `probe` starts a process with them, and is asked where CUDA works only.
Findings check_hooks(const std::string& library, const std::string& hooks, bool cuda_works,
                     const std::function<HooksProbe()>& probe, nlohmann::ordered_json& facts);

}  // namespace gpuflight::cli
