// The list of processes a `gpuflight run` recorded. Each recorder in the run appends one line to it when it opens its
// log: "pid\tlog path\tflight path\n". The file is private to the user and gone when the run ends.
#pragma once

#include <string>
#include <vector>

namespace gpuflight::cli {

inline constexpr const char* kManifestVariable = "GPUFLIGHT_RUN_MANIFEST";

struct RecordedProcess {
  long pid = 0;
  std::string log_path;
  std::string flight_path;
};

class RunManifest {
 public:
  RunManifest();   // creates the file; where no place takes it the path stays empty: a run without a summary
  ~RunManifest();  // removes it
  RunManifest(const RunManifest&) = delete;
  RunManifest& operator=(const RunManifest&) = delete;

  const std::string& path() const { return path_; }
  std::vector<RecordedProcess> processes() const;

 private:
  std::string path_;
};

}  // namespace gpuflight::cli
