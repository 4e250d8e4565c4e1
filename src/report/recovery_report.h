// What `gpuflight recover` has to say: for people, or as JSON whose keys are described in docs/RECOVERY.md and stay.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/recovery.h"

namespace gpuflight::report {

struct RecoveryReportOptions {
  std::size_t width = 120;  // columns of the text form
  bool full_names = false;
  std::string written_to;   // where the recovered events went; empty: nowhere
};

inline constexpr int kRecoverySchema = 1;  // "recovery_schema" of the JSON form

std::string render_recovery_text(const analysis::Recovery& recovery, const RecoveryReportOptions& options);
// For the end of `gpuflight run`: the verdict and the streams with the latest launches, one line each.
std::vector<std::string> render_recovery_brief(const analysis::Recovery& recovery, std::size_t width);
std::string render_recovery_json(const analysis::Recovery& recovery, const RecoveryReportOptions& options);

// One line without line end: "stopped, cause unknown: ...".
std::string verdict_text(const analysis::RecoveryResult& result);

}  // namespace gpuflight::report
