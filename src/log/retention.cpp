#include "log/retention.h"

#include <algorithm>

namespace gpuflight::log {

void Retention::add(const Segment& closed) {
  if (options_.max_bytes == 0) return;  // nothing is ever deleted: no need to remember
  closed_.push_back(closed);
  closed_bytes_ += closed.bytes;
}

void Retention::resize(std::uint32_t number, std::uint64_t bytes) noexcept {
  const auto it = std::lower_bound(closed_.begin(), closed_.end(), number,
                                   [](const Segment& s, std::uint32_t n) { return s.number < n; });
  if (it == closed_.end() || it->number != number) return;
  closed_bytes_ = closed_bytes_ - it->bytes + bytes;
  it->bytes = bytes;
}

std::optional<Retention::Segment> Retention::take_oldest_if_over(std::uint64_t live_bytes) noexcept {
  if (fits(live_bytes) || closed_.empty()) return std::nullopt;
  const Segment oldest = closed_.front();
  closed_.pop_front();
  closed_bytes_ -= oldest.bytes;
  return oldest;
}

bool Retention::must_summarise(std::uint64_t live_bytes, std::int64_t now_ns) noexcept {
  if (options_.max_bytes == 0 || options_.keep_ns == 0) return false;
  // The live segment when it is full, and one that the next batch may begin. Leaving takes room for one more than
  // entering, so that it does not go back and forth at the brink.
  const std::uint64_t needed = closed_bytes_ - expired_bytes(now_ns) + std::max(live_bytes, options_.segment_bytes);
  const std::uint64_t spare = options_.segment_bytes * (summarising_ ? 2 : 1);
  summarising_ = needed + spare > options_.max_bytes;
  return summarising_;
}

std::uint64_t Retention::expired_bytes(std::int64_t now_ns) const noexcept {
  std::uint64_t bytes = 0;
  for (const Segment& segment : closed_) {
    if (now_ns - segment.newest_ns < options_.keep_ns) break;
    bytes += segment.bytes;
  }
  return bytes;
}

}  // namespace gpuflight::log
