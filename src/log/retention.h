// Which closed segments of a bounded log may go, and when events no longer fit: arithmetic only, no files.
// Threads: one owner (the recorder thread). Blocks: no. Allocates: in add() only, which may throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace gpuflight::log {

struct RetentionOptions {
  std::uint64_t max_bytes = 0;  // of all segments, the live one included; 0: no bound
  std::uint64_t segment_bytes = 0;
  std::int64_t keep_ns = 0;     // events younger than this are not deleted for newer ones; 0: they are
};

class Retention {
 public:
  struct Segment {
    std::uint32_t number = 0;
    std::uint64_t bytes = 0;
    std::uint64_t events = 0;
    std::int64_t newest_ns = 0;
  };

  explicit Retention(const RetentionOptions& options = {}) : options_(options) {}

  void add(const Segment& closed);  // numbers ascend
  void resize(std::uint32_t number, std::uint64_t bytes) noexcept;  // after compression
  std::uint64_t closed_bytes() const noexcept { return closed_bytes_; }
  std::size_t closed_count() const noexcept { return closed_.size(); }

  bool fits(std::uint64_t live_bytes) const noexcept {
    return options_.max_bytes == 0 || closed_bytes_ + live_bytes <= options_.max_bytes;
  }

  // The segment to delete so that `live_bytes` (with what is about to be written) fits; taken off the books.
  // Also one that still holds events younger than keep_ns: the bound is hard, what the caller must do about it is said
  // by must_summarise. nullopt: it fits, or nothing is left to delete.
  std::optional<Segment> take_oldest_if_over(std::uint64_t live_bytes) noexcept;

  // True from when the segment after the live one would push out events younger than keep_ns, until two would fit:
  // whoever writes must write summaries instead. Batches are taken to be no larger than a segment.
  bool must_summarise(std::uint64_t live_bytes, std::int64_t now_ns) noexcept;

 private:
  std::uint64_t expired_bytes(std::int64_t now_ns) const noexcept;

  RetentionOptions options_;
  std::deque<Segment> closed_;  // oldest first
  std::uint64_t closed_bytes_ = 0;
  bool summarising_ = false;
};

}  // namespace gpuflight::log
