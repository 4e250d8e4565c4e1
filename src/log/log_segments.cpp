#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "log/decoder.h"

namespace gpuflight::log {
namespace {
constexpr std::string_view kExtension = ".ndjson";
constexpr std::string_view kCompressed = ".zst";

// NAME.0001.ndjson[.zst] -> 1; 0: not a closed segment of `stem`.
std::uint64_t segment_number(std::string_view file, std::string_view stem, std::string_view extension) {
  if (file.ends_with(kCompressed)) file.remove_suffix(kCompressed.size());
  if (!file.starts_with(stem) || !file.ends_with(extension)) return 0;
  if (file.size() < stem.size() + extension.size() + 5) return 0;
  file = file.substr(stem.size(), file.size() - stem.size() - extension.size());
  if (file[0] != '.') return 0;
  file.remove_prefix(1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), number);
  return error == std::errc{} && end == file.data() + file.size() ? number : 0;
}
}  // namespace

std::vector<std::string> log_segments(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code error;
  const fs::path live(path);
  std::string stem = live.filename().string();
  std::string_view extension;
  if (stem.ends_with(kExtension)) {
    stem.resize(stem.size() - kExtension.size());
    extension = kExtension;
  }
  const fs::path folder = live.has_parent_path() ? live.parent_path() : fs::path(".");
  std::map<std::uint64_t, std::string> closed;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::uint64_t number = segment_number(name, stem, extension);
    if (number == 0) continue;
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;  // a pipe of that name would be waited for
    std::string& known = closed[number];
    // Both: its compression has just ended, and that file is whole.
    if (known.empty() || name.ends_with(kCompressed)) known = (live.parent_path() / name).string();
  }
  for (auto& [number, file] : closed) files.push_back(std::move(file));
  if (files.empty() || fs::exists(live, error)) files.push_back(path);
  return files;
}

}  // namespace gpuflight::log
