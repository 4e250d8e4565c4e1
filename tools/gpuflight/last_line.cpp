#include "last_line.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace gpuflight::cli {

nlohmann::json last_session_end(const std::string& log_path) {
  constexpr std::streamoff kMostBytes = 16 << 10;
  std::ifstream file(log_path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return {};
  file.seekg(std::max<std::streamoff>(0, size - kMostBytes));
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  nlohmann::json line = nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  return line.is_object() && line.value("type", "") == "session_end" ? line : nlohmann::json();
}

}  // namespace gpuflight::cli
