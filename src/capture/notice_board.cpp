#include "capture/notice_board.h"

#include <algorithm>
#include <utility>

namespace gpuflight::capture {

void NoticeBoard::post(event::Severity severity, std::string_view code, std::string message) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (said_.size() >= kMaxCodes || std::find(said_.begin(), said_.end(), code) != said_.end()) return;
    said_.emplace_back(code);
    event::Notice notice;
    notice.severity = severity;
    notice.code = code;
    notice.message = std::move(message);
    waiting_.push_back(std::move(notice));
  } catch (...) {  // out of memory: there is no other place to say it
  }
}

std::vector<event::Notice> NoticeBoard::take() noexcept {
  std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

}  // namespace gpuflight::capture
