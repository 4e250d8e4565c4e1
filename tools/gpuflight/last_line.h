// The end of a log, without reading what is before it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gpuflight::cli {

// The session_end that a log ends with; null: it ends with another line, or cannot be read.
nlohmann::json last_session_end(const std::string& log_path);

// The message of a notice with this code among the last megabytes of a log; empty: there is none.
std::string late_notice(const std::string& log_path, const std::string& code);

}  // namespace gpuflight::cli
