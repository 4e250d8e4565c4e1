// Path patterns of the log and the flight file: "%p" and the like filled in. What is filled in comes from outside
// (environment, program name) and can never leave the directory that the pattern's author wrote.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuflight::config {

using GetVariable = const char* (*)(const char* name);  // as getenv: null when not set

struct PatternFields {
  std::uint64_t pid = 0;
  std::string_view host;
  std::string_view program;  // name without directory
  std::string_view rank;     // empty: not part of a group of processes
  GetVariable variable = nullptr;
};

struct ExpandResult {
  std::string path;   // empty when there is an error
  std::string error;  // one clear line
};

// %p process id, %h host, %e program, %r rank, %q{VAR} environment variable, %% a percent sign; anything else after a
// percent sign is an error. A value that is empty or not set becomes "none". In values, '/', control characters and a
// leading '.' become '_', and what is longer than 128 bytes is cut.
ExpandResult expand(std::string_view pattern, const PatternFields& fields) noexcept;

// RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK, the first that is set; empty when none is.
std::string_view rank_of(GetVariable variable) noexcept;

// "dir/a.1.ndjson" -> "dir/a.1.flight".
std::string flight_path_beside(std::string_view log_path) noexcept;

}  // namespace gpuflight::config
