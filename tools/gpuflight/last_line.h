// The end of a log, without reading what is before it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gpuflight::cli {

// The session_end that a log ends with; null: it ends with another line, or cannot be read.
nlohmann::json last_session_end(const std::string& log_path);

}  // namespace gpuflight::cli
