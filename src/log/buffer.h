// Bytes on their way to the log: grows with malloc, never throws. A line is kept or dropped as a whole: when memory
// runs out in its middle nothing of it stays, and it is counted.
// Threads: one owner (the recorder thread). Blocks: no. Allocates: while growing; clear() keeps the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gpuflight::log {

class Buffer {
 public:
  static constexpr std::size_t kNoLimit = ~std::size_t{0};

  // `max_bytes`: an append beyond it fails as if memory had run out.
  explicit Buffer(std::size_t max_bytes = kNoLimit) noexcept : max_bytes_(max_bytes) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Everything appended between the two is one line. end_line adds '\n'; false: the line was dropped.
  void begin_line() noexcept;
  bool end_line() noexcept;

  void append(std::string_view text) noexcept {
    if (char* to = reserve(text.size())) {
      std::memcpy(to, text.data(), text.size());
      size_ += text.size();
    }
  }
  void append(char c) noexcept {
    if (char* to = reserve(1)) {
      *to = c;
      ++size_;
    }
  }

  // Room for `bytes` more at the end, to be filled and then taken over by commit(); nullptr: no memory, failed().
  char* reserve(std::size_t bytes) noexcept {
    if (capacity_ - size_ >= bytes && data_ != nullptr) return data_ + size_;
    return grow(bytes);
  }
  void commit(std::size_t bytes) noexcept { size_ += bytes; }
  // A whole line, '\n' included, stands in reserved room.
  void commit_line(std::size_t bytes) noexcept {
    size_ += bytes;
    ++lines_;
  }
  // A line that could not be built, without begin_line.
  void drop_line() noexcept {
    ++dropped_lines_;
    failed_ = false;
  }

  std::string_view view() const noexcept { return {data_ != nullptr ? data_ : "", size_}; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return capacity_; }
  bool empty() const noexcept { return size_ == 0; }
  bool failed() const noexcept { return failed_; }                     // an append since begin_line or clear failed
  std::uint64_t lines() const noexcept { return lines_; }              // whole lines in here
  std::uint64_t dropped_lines() const noexcept { return dropped_lines_; }  // since construction

  void clear() noexcept;    // keeps the memory
  void release() noexcept;  // gives it back
  void shrink() noexcept;   // gives back what is not used

 private:
  char* grow(std::size_t bytes) noexcept;

  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::size_t max_bytes_ = kNoLimit;
  std::size_t line_start_ = 0;
  std::uint64_t lines_ = 0;
  std::uint64_t dropped_lines_ = 0;
  bool failed_ = false;
};

}  // namespace gpuflight::log
