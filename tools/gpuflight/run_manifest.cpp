#include "run_manifest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace gpuflight::cli {

RunManifest::RunManifest() {
  std::vector<std::string> places;
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    if (const char* dir = std::getenv(name); dir != nullptr && *dir == '/') places.emplace_back(dir);
  }
  places.emplace_back("/tmp");
  for (const std::string& place : places) {
    std::string name = place + "/gpuflight-run-XXXXXX";
    const int fd = ::mkostemp(name.data(), O_CLOEXEC);  // 0600
    if (fd < 0) continue;
    ::close(fd);
    path_ = name;
    return;
  }
}

RunManifest::~RunManifest() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

std::vector<RecordedProcess> RunManifest::processes() const {
  std::vector<RecordedProcess> all;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find('\t');
    if (first == std::string::npos) continue;
    const std::size_t second = std::min(line.find('\t', first + 1), line.size());
    RecordedProcess process;
    if (std::from_chars(line.data(), line.data() + first, process.pid).ec != std::errc{}) continue;
    process.log_path = line.substr(first + 1, second - first - 1);
    if (second < line.size()) process.flight_path = line.substr(second + 1);
    all.push_back(std::move(process));
  }
  return all;
}

}  // namespace gpuflight::cli
