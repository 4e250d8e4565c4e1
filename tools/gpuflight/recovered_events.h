// Events of NAME.recovered.ndjson files that their log does not have. Such a file may have been made while the program
// ran, so that the log got the same events later, and there may be several.
//
//   RecoveredEvents rest(files);
//   for each event of the log: rest.drop(event);
//   for each event of the files: if (rest.take(event)) ...
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "log/decoder.h"

namespace gpuflight::cli {

class RecoveredEvents {
 public:
  // Reads the numbers of all events in the files; of what cannot be read, nothing.
  explicit RecoveredEvents(const std::vector<std::string>& files);

  void drop(const log::LogEvent& event);
  bool take(const log::LogEvent& event);  // true: it is new, and not any more from now on

  static bool is_event(const log::LogEvent& event) { return log::thread_seq(event).has_value(); }

 private:
  std::unordered_set<std::uint64_t> missing_;
};

}  // namespace gpuflight::cli
