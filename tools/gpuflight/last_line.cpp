#include "last_line.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace gpuflight::cli {

namespace {

std::string end_of(const std::string& path, std::streamoff most_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return {};
  file.seekg(std::max<std::streamoff>(0, size - most_bytes));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

std::string late_notice(const std::string& log_path, const std::string& code) {
  constexpr std::streamoff kMostBytes = 4 << 20;
  const std::string text = end_of(log_path, kMostBytes);
  const std::size_t at = text.rfind("\"code\":\"" + code + "\"");
  if (at == std::string::npos) return {};
  const std::size_t begin = text.rfind('\n', at);
  if (begin == std::string::npos) return {};
  const nlohmann::json line =
      nlohmann::json::parse(text.substr(begin + 1, text.find('\n', at) - begin - 1), nullptr, false);
  return line.is_object() && line.value("type", "") == "notice_event" ? line.value("message", "") : std::string();
}

nlohmann::json last_session_end(const std::string& log_path) {
  constexpr std::streamoff kMostBytes = 16 << 10;
  std::string text = end_of(log_path, kMostBytes);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  nlohmann::json line = nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  return line.is_object() && line.value("type", "") == "session_end" ? line : nlohmann::json();
}

}  // namespace gpuflight::cli
