// A flight file as the log it belongs to: the log's own files, and behind them one more segment with the events that
// only the flight file has. For verbs that read logs and are given a .flight file.
//
//   FlightLog both(path);
//   log::LogReader reader(both.files(), options);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/recovery.h"

namespace gpuflight::analysis {

// The whole text, or std::system_error.
void write_all(int fd, std::string_view bytes);

class FlightLog {
 public:
  // Throws as Recovery::run, and std::system_error when there is no room for the recovered lines.
  explicit FlightLog(const std::string& flight_path, RecoveryOptions options = {});
  ~FlightLog();
  FlightLog(const FlightLog&) = delete;
  FlightLog& operator=(const FlightLog&) = delete;

  // Oldest first. The last one is a name for an unlinked temporary file: good as long as this object lives.
  const std::vector<std::string>& files() const { return files_; }
  const RecoveryResult& result() const { return recovery_.result(); }
  const Recovery& recovery() const { return recovery_; }

 private:
  Recovery recovery_;
  std::vector<std::string> files_;
  int fd_ = -1;
};

}  // namespace gpuflight::analysis
