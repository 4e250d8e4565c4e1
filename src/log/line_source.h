// The lines of a row of files, plain or zstd, from disk or standard input, growing or not. Memory: one line.
// For tools. Threads: one owner. Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "log/decoder.h"

namespace gpuflight::log {

class LineSource {
 public:
  enum class Got { kLine, kTornLine, kLongLine, kWait, kEnd };
  // What went wrong, in which file, its line (0: none) and in words.
  using Report = std::function<void(Trouble, std::string_view)>;

  LineSource(std::vector<std::string> files, bool follow, std::size_t max_line_bytes, Report report);
  ~LineSource();

  int open_first();  // 0 or errno
  // kLine, kTornLine (the rest of a file without line end): `line` is valid until the next call, and at least
  // kPadding more bytes can be read behind it.
  Got next(std::string_view& line);

  static constexpr std::size_t kPadding = 64;
  const std::string& file() const { return files_.empty() ? none_ : files_[current_]; }
  std::uint64_t line_number() const { return line_number_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t total_file_bytes() const;

 private:
  class Bytes;  // one open file

  int open(const std::string& path);
  bool advance_file();
  bool fill();
  bool replaced() const;

  std::vector<std::string> files_;
  std::string none_;
  bool follow_;
  std::size_t max_line_bytes_;
  Report report_;
  std::size_t current_ = 0;
  std::unique_ptr<Bytes> input_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0, scanned_ = 0;  // scanned_: no line end before
  bool skipping_ = false;  // the rest of a line that is too long
  std::uint64_t line_number_ = 0, bytes_ = 0, file_bytes_ = 0;
};

}  // namespace gpuflight::log
