#include "log/line_source.h"

#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace gpuflight::log {
namespace {
constexpr std::size_t kReadBytes = 256 * 1024;
constexpr std::array<unsigned char, 4> kZstdMagic = {0x28, 0xB5, 0x2F, 0xFD};
}  // namespace

class LineSource::Bytes {
 public:
  explicit Bytes(int fd) : fd_(fd) {}
  ~Bytes() {
    ZSTD_freeDStream(zstd_);
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  int fd() const { return fd_; }
  bool compressed() const { return zstd_ != nullptr; }
  const char* damage() const { return damage_; }  // nullptr: none
  std::uint64_t read_bytes() const { return read_bytes_; }

  // 0: nothing (more).
  std::size_t read(char* to, std::size_t room) {
    if (!looked_) look();
    if (zstd_ == nullptr) {
      if (head_at_ < head_.size()) {
        const std::size_t n = std::min(room, head_.size() - head_at_);
        std::memcpy(to, head_.data() + head_at_, n);
        head_at_ += n;
        return n;
      }
      return raw_read(to, room);
    }
    ZSTD_outBuffer out{to, room, 0};
    while (out.pos == 0 && damage_ == nullptr) {
      if (source_.pos == source_.size && !refill()) {
        // All input is taken, yet output may still be inside.
        const std::size_t before = out.pos;
        if (frame_left_ != 0) step(out);
        if (out.pos == before) {
          if (frame_left_ != 0 && damage_ == nullptr) damage_ = "compressed data ends early";
          break;
        }
        continue;
      }
      step(out);
    }
    return out.pos;
  }

 private:
  void look() {
    looked_ = true;
    std::array<char, 4> first;
    std::size_t got = 0;
    while (got < first.size()) {
      const std::size_t n = raw_read(first.data() + got, first.size() - got);
      if (n == 0) break;
      got += n;
    }
    head_.assign(first.data(), got);
    if (got < first.size()) {
      if (got == 0) looked_ = false;  // a file that may still grow
      return;
    }
    const bool skippable =
        (static_cast<unsigned char>(first[0]) & 0xF0) == 0x50 && std::memcmp(&first[1], "\x2A\x4D\x18", 3) == 0;
    if (!skippable && std::memcmp(first.data(), kZstdMagic.data(), 4) != 0) return;
    zstd_ = ZSTD_createDStream();
    if (zstd_ == nullptr) throw std::bad_alloc();
    in_.resize(ZSTD_DStreamInSize());
    std::memcpy(in_.data(), head_.data(), head_.size());
    source_ = {in_.data(), head_.size(), 0};
  }

  void step(ZSTD_outBuffer& out) {
    frame_left_ = ZSTD_decompressStream(zstd_, &out, &source_);
    if (ZSTD_isError(frame_left_)) damage_ = ZSTD_getErrorName(frame_left_);
  }

  bool refill() {
    source_ = {in_.data(), raw_read(in_.data(), in_.size()), 0};
    return source_.size != 0;
  }

  std::size_t raw_read(char* to, std::size_t room) {
    for (;;) {
      const ssize_t n = ::read(fd_, to, room);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) damage_ = std::strerror(errno);
      if (n <= 0) return 0;
      read_bytes_ += static_cast<std::uint64_t>(n);
      return static_cast<std::size_t>(n);
    }
  }

  int fd_;
  bool looked_ = false;
  std::string head_;
  std::size_t head_at_ = 0;
  ZSTD_DStream* zstd_ = nullptr;
  std::vector<char> in_;
  ZSTD_inBuffer source_{nullptr, 0, 0};
  std::size_t frame_left_ = 0;  // 0: at the end of a frame
  const char* damage_ = nullptr;
  std::uint64_t read_bytes_ = 0;
};

LineSource::LineSource(std::vector<std::string> files, bool follow, std::size_t max_line_bytes, Report report)
    : files_(std::move(files)), follow_(follow), max_line_bytes_(max_line_bytes), report_(std::move(report)) {}

LineSource::~LineSource() = default;

int LineSource::open(const std::string& path) {
  int fd = STDIN_FILENO;
  if (path != "-") {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) fd = ::open((path + ".zst").c_str(), O_RDONLY | O_CLOEXEC);  // compressed meanwhile
    if (fd < 0) return errno;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
      ::close(fd);
      return EISDIR;
    }
  }
  input_ = std::make_unique<Bytes>(fd);
  begin_ = end_ = scanned_ = 0;
  skipping_ = false;
  line_number_ = 0;
  return 0;
}

int LineSource::open_first() { return files_.empty() ? ENOENT : open(files_.front()); }

bool LineSource::advance_file() {
  if (input_) {
    if (const char* damage = input_->damage()) report_(Trouble::kTruncated, damage);
    input_.reset();
  }
  while (current_ + 1 < files_.size()) {
    ++current_;
    line_number_ = 0;
    const int error = open(files_[current_]);
    if (error == 0) return true;
    report_(Trouble::kUnreadableFile, std::strerror(error));
  }
  return false;
}

// Reads on behind what is there. False: nothing came.
bool LineSource::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    scanned_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kReadBytes + kPadding) buffer_.resize(end_ + kReadBytes + kPadding);
  const std::uint64_t before = input_->read_bytes();
  const std::size_t n = input_->read(buffer_.data() + end_, kReadBytes);
  file_bytes_ += input_->read_bytes() - before;
  bytes_ += n;
  end_ += n;
  return n > 0;
}

// While following: whether the name stands for another file by now.
bool LineSource::replaced() const {
  struct stat open_file, named;
  return input_ && input_->fd() != STDIN_FILENO && fstat(input_->fd(), &open_file) == 0 &&
         ::stat(file().c_str(), &named) == 0 &&
         (open_file.st_dev != named.st_dev || open_file.st_ino != named.st_ino);
}

LineSource::Got LineSource::next(std::string_view& line) {
  for (;;) {
    if (!input_) return Got::kEnd;
    const char* data = buffer_.data();
    const void* found = end_ > scanned_ ? std::memchr(data + scanned_, '\n', end_ - scanned_) : nullptr;
    if (found != nullptr) {
      const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - data);
      line = {data + begin_, at - begin_};
      begin_ = scanned_ = at + 1;
      ++line_number_;
      if (std::exchange(skipping_, false) || line.size() > max_line_bytes_) return Got::kLongLine;
      return Got::kLine;
    }
    scanned_ = end_;
    if (skipping_ || end_ - begin_ > max_line_bytes_) {
      skipping_ = true;
      begin_ = scanned_ = end_;
    }
    if (fill()) continue;

    const bool last = current_ + 1 == files_.size();
    const bool may_grow = follow_ && last && input_->fd() != STDIN_FILENO && !input_->compressed() &&
                          input_->damage() == nullptr;
    bool reopen = false;
    if (may_grow) {
      if (!replaced()) return Got::kWait;
      if (fill()) continue;  // written between the last read and the rotation
      reopen = true;
    }
    const std::string_view rest{buffer_.data() + begin_, end_ - begin_};
    const bool was_long = std::exchange(skipping_, false);
    begin_ = scanned_ = end_;
    if (!rest.empty() || was_long) {
      line = rest;
      ++line_number_;
      return was_long ? Got::kLongLine : Got::kTornLine;  // the file's end comes at the next call
    }
    if (reopen) {
      if (open(file()) != 0) return Got::kWait;
      continue;
    }
    if (!advance_file()) return Got::kEnd;
  }
}

std::uint64_t LineSource::total_file_bytes() const {
  std::uint64_t total = 0;
  for (const auto& file : files_) {
    struct stat st;
    if (::stat(file.c_str(), &st) == 0 && S_ISREG(st.st_mode)) total += static_cast<std::uint64_t>(st.st_size);
  }
  return total;
}

}  // namespace gpuflight::log
