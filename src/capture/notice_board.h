// What capture has to say, on its way to the log. Bounded, and each code is said once: a fault at every launch must not
// fill the log.
//
// Threads: any posts, the recorder thread takes. Locks and allocates: never on a hit.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "event/events.h"

namespace gpuflight::capture {

class NoticeBoard {
 public:
  void post(event::Severity severity, std::string_view code, std::string message) noexcept;
  std::vector<event::Notice> take() noexcept;  // without seq and time

 private:
  static constexpr std::size_t kMaxCodes = 256;

  std::mutex mutex_;
  std::vector<event::Notice> waiting_;
  std::vector<std::string> said_;
};

}  // namespace gpuflight::capture
