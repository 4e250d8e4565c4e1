// The same as activity_text.h for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "analysis/log_summary.h"

namespace gpuflight::report {

// Adds the keys `device_times`, `copies`, `fills`, `calls`, `memory` and `graphs` to the report.
void add_activity(nlohmann::ordered_json& report, const analysis::LogSummary& summary);

// Adds what one log says of times to its entry.
void add_time_facts(nlohmann::ordered_json& log, const analysis::LogFacts& facts);

nlohmann::ordered_json durations_json(const analysis::Durations& durations);  // null: none known
nlohmann::ordered_json spread_json(const analysis::SpreadDurations& durations);

}  // namespace gpuflight::report
