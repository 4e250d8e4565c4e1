#include "recovered_events.h"

namespace gpuflight::cli {
namespace {

// What a hostile file can make us remember. A flight file holds half a million events with the default options.
constexpr std::size_t kMostEvents = std::size_t{1} << 24;

}  // namespace

RecoveredEvents::RecoveredEvents(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    log::LogReader reader(std::vector<std::string>{file}, {});
    if (reader.open() != 0) continue;
    for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) {
      const auto seq = log::thread_seq(event);
      if (seq && missing_.size() < kMostEvents) missing_.insert(seq->value);
    }
  }
}

void RecoveredEvents::drop(const log::LogEvent& event) {
  if (missing_.empty()) return;
  if (const auto seq = log::thread_seq(event)) missing_.erase(seq->value);
}

bool RecoveredEvents::take(const log::LogEvent& event) {
  const auto seq = log::thread_seq(event);
  return seq && missing_.erase(seq->value) > 0;
}

}  // namespace gpuflight::cli
