#include "log/buffer.h"

#include <cstdlib>
#include <utility>

namespace gpuflight::log {
namespace {
constexpr std::size_t kFirstBytes = 4096;
}

Buffer::~Buffer() { std::free(data_); }

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  std::free(data_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  max_bytes_ = other.max_bytes_;
  line_start_ = std::exchange(other.line_start_, 0);
  lines_ = std::exchange(other.lines_, 0);
  dropped_lines_ = std::exchange(other.dropped_lines_, 0);
  failed_ = std::exchange(other.failed_, false);
  return *this;
}

void Buffer::begin_line() noexcept {
  line_start_ = size_;
  failed_ = false;
}

bool Buffer::end_line() noexcept {
  append('\n');
  if (failed_) {
    size_ = line_start_;
    drop_line();
    return false;
  }
  ++lines_;
  return true;
}

void Buffer::clear() noexcept {
  size_ = 0;
  line_start_ = 0;
  lines_ = 0;
  failed_ = false;
}

void Buffer::release() noexcept {
  clear();
  std::free(data_);
  data_ = nullptr;
  capacity_ = 0;
}

void Buffer::shrink() noexcept {
  if (size_ == 0 || size_ == capacity_) return;
  if (auto* data = static_cast<char*>(std::realloc(data_, size_))) {
    data_ = data;
    capacity_ = size_;
  }
}

char* Buffer::grow(std::size_t bytes) noexcept {
  if (bytes > max_bytes_ - size_) {
    failed_ = true;
    return nullptr;
  }
  const std::size_t needed = size_ + bytes;
  std::size_t capacity = capacity_ < kFirstBytes ? kFirstBytes : capacity_ * 2;
  if (capacity < needed) capacity = needed;
  if (capacity > max_bytes_) capacity = max_bytes_;
  if (capacity == 0) capacity = 1;  // malloc(0) may be nullptr without being a failure
  auto* data = static_cast<char*>(std::realloc(data_, capacity));
  if (data == nullptr) {
    failed_ = true;
    return nullptr;
  }
  data_ = data;
  capacity_ = capacity;
  return data_ + size_;
}

}  // namespace gpuflight::log
