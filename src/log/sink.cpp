#include "log/sink.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "log/compressor.h"
#include "log/encoder.h"

namespace gpuflight::log {
namespace {

constexpr int kMaxNames = 1000;
constexpr std::uint64_t kSegmentsPerBound = 16;
constexpr std::string_view kExtension = ".ndjson";

// Runs `body`, which may throw std::bad_alloc only; 0 or errno.
template <class Body>
int guarded(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return ENOMEM;
  }
}

std::string absolute(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  char* folder = getcwd(nullptr, 0);
  if (folder == nullptr) return path;
  std::string result = std::string(folder) + '/' + path;
  std::free(folder);
  return result;
}

std::uint64_t count_events(std::string_view lines) noexcept {
  std::uint64_t events = 0;
  while (!lines.empty()) {
    events += is_ring_event(lines);
    const std::size_t end = lines.find('\n');
    if (end == std::string_view::npos) break;
    lines.remove_prefix(end + 1);
  }
  return events;
}

std::uint64_t count_lines(std::string_view text) noexcept {
  std::uint64_t lines = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end && (at = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at))))) {
    ++lines;
    ++at;
  }
  return lines;
}

// As many whole lines as `room` holds; at least one.
std::string_view whole_lines_within(std::string_view lines, std::uint64_t room) noexcept {
  if (lines.size() <= room) return lines;
  std::size_t end = room == 0 ? std::string_view::npos : lines.rfind('\n', room - 1);
  if (end == std::string_view::npos) end = lines.find('\n');
  return end == std::string_view::npos ? lines : lines.substr(0, end + 1);
}

}  // namespace

LogSink::LogSink() = default;

LogSink::~LogSink() { close(0); }

int LogSink::open(const SinkOptions& options, SegmentPrologue* prologue) noexcept {
  if (open_) return EALREADY;
  return guarded([&] {
    options_ = options;
    prologue_ = prologue;
    path_ = absolute(options.path);
    const std::size_t slash = path_.rfind('/');
    if (slash == std::string::npos || slash + 1 == path_.size()) return EISDIR;
    folder_ = slash == 0 ? "/" : path_.substr(0, slash);
    name_ = path_.substr(slash + 1);
    const bool usual = name_.ends_with(kExtension) && name_.size() > kExtension.size();
    stem_ = usual ? name_.substr(0, name_.size() - kExtension.size()) : name_;
    extension_ = usual ? kExtension : "";

    segment_limit_ = options.segment_bytes;
    RetentionOptions bound;
    if (options.max_bytes != 0) {
      const std::uint64_t part = std::max<std::uint64_t>(options.max_bytes / kSegmentsPerBound, 1);
      segment_limit_ = segment_limit_ == 0 ? part : std::min(segment_limit_, part);
      // While a segment is compressed it is there twice, the second time at half its size at most.
      bound.max_bytes = options.max_bytes - (options.compress ? segment_limit_ / 2 : 0);
    }
    bound.segment_bytes = segment_limit_;
    bound.keep_ns = options.keep_ns;
    retention_ = Retention(bound);
    if (options.compress) compressor_ = std::make_shared<Compressor>();
    segment_ = 0;
    live_events_ = bytes_written_ = rotated_away_ = 0;

    const int error = begin_live();
    if (error != 0) return error;
    open_ = true;
    write_prologue();  // tried again before the first batch if the disk is full
    return 0;
  });
}

int LogSink::begin(SegmentPrologue& prologue) noexcept {
  prologue_ = &prologue;
  prologue_missing_ = true;
  return open_ ? guarded([&] { return write_prologue(); }) : EBADF;
}

// A live file that was not there before, empty.
int LogSink::begin_live() noexcept {
  return guarded([&] {
    if (const int error = ensure_folder()) return error;
    if (const int error = create_live()) return error;
    ++segment_;
    live_bytes_ = live_begin_ = live_events_ = 0;
    live_newest_ns_ = 0;
    torn_ = false;
    prologue_missing_ = prologue_ != nullptr;
    return 0;
  });
}

int LogSink::create_live() noexcept {
  return guarded([&] {
    int error = segment_ == 0 && segment_exists(stem_) ? EEXIST : create_file(name_);
    const std::string stem = stem_;
    for (int i = 2; error == EEXIST && i <= kMaxNames; ++i) {
      stem_ = stem + '.' + std::to_string(i);
      name_ = stem_ + extension_;
      error = segment_exists(stem_) ? EEXIST : create_file(name_);
    }
    path_ = (folder_ == "/" ? "" : folder_) + '/' + name_;
    return error;
  });
}

// Exclusively: what stands there already, a planted symlink included, is never opened.
int LogSink::create_file(const std::string& name) noexcept {
  int fd = openat(folder_fd_, name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  fd = move_high(fd);
  fchmod(fd, 0600);  // the umask may have taken even our own rights away
  FileState state;
  if (const int error = describe(fd, state)) {
    ::close(fd);
    return error;
  }
  fd_ = fd;
  id_ = state.id;
  return 0;
}

bool LogSink::segment_exists(const std::string& stem) const {
  FileState state;
  const std::string first = stem + ".0001" + extension_;
  return describe_at(folder_fd_, first.c_str(), state) == 0 ||
         describe_at(folder_fd_, (first + ".zst").c_str(), state) == 0;
}

std::string LogSink::segment_name(std::uint32_t number) const {
  std::string digits = std::to_string(number);
  if (digits.size() < 4) digits.insert(0, 4 - digits.size(), '0');
  return stem_ + '.' + digits + extension_;
}

// The folder is held by a descriptor, so that a host that changes its root or directory does not move the log.
int LogSink::ensure_folder() noexcept {
  FileState state;
  if (describe(folder_fd_, state) == 0 && state.id == folder_id_) {
    if (state.links != 0) return 0;
    ::close(folder_fd_);
  }
  folder_fd_ = -1;
  return guarded([&] {
    constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int fd = ::open(folder_.c_str(), kFlags);
    if (fd < 0) {
      if (const int error = make_folders(folder_)) return error;
      fd = ::open(folder_.c_str(), kFlags);
      if (fd < 0) return errno;
    }
    fd = move_high(fd);
    FileState opened;
    if (const int error = describe(fd, opened)) return error;
    folder_fd_ = fd;
    folder_id_ = opened.id;
    return 0;
  });
}

int LogSink::ensure_live(WriteOutcome& outcome) noexcept {
  FileState state;
  const bool ours = describe(fd_, state) == 0 && state.id == id_;
  if (ours && state.links != 0) return 0;
  const bool never_begun = fd_ < 0;
  if (ours) {  // deleted under us
    ::close(fd_);
    fd_ = -1;
  } else if (fd_ >= 0) {  // closed by the host, and perhaps a file of its own by now: left alone
    fd_ = -1;
    outcome.reopened = reopen_live() == 0;
    if (outcome.reopened) return 0;
  }
  forget_live_events();
  const int error = begin_live();
  outcome.recreated = error == 0 && !never_begun;
  return error;
}

int LogSink::reopen_live() noexcept {
  if (const int error = ensure_folder()) return error;
  // O_NONBLOCK: if there is a FIFO by that name now, this must not wait for its reader.
  int fd = openat(folder_fd_, name_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno;
  fd = move_high(fd);
  if (!is_file(fd, id_)) {
    ::close(fd);
    return ESTALE;
  }
  fd_ = fd;
  return 0;
}

int LogSink::write_prologue() noexcept {
  if (!prologue_missing_) return 0;
  Buffer text;
  prologue_->append_prologue(text, segment_);
  int error = 0;
  const std::uint64_t before = live_bytes_;
  make_room(text.size());  // the bound holds for what heads a segment too
  write_lines(text.view(), error);
  // All of it or nothing, so that the next try does not repeat lines.
  if (error != 0 && live_bytes_ != before && ftruncate(fd_, static_cast<off_t>(before)) == 0) {
    bytes_written_ -= live_bytes_ - before;
    live_bytes_ = before;
    torn_ = false;
  }
  if (error != 0) return error;
  prologue_missing_ = false;
  live_begin_ = live_bytes_;
  return 0;
}

WriteOutcome LogSink::write(std::string_view batch, std::uint64_t events, std::int64_t newest_ns) noexcept {
  WriteOutcome outcome;
  if (!open_) outcome.error = EBADF;
  collect_compressed();
  while (outcome.error == 0 && !batch.empty()) {
    outcome.error = ensure_live(outcome);
    if (outcome.error == 0) outcome.error = write_prologue();
    if (outcome.error != 0) break;
    const std::string_view piece = next_piece(batch, outcome);
    if (fd_ < 0) outcome.error = EIO;  // closed one segment, could not begin the next
    if (outcome.error != 0 || piece.empty()) continue;
    if (!make_room(piece.size())) {
      outcome.error = ENOSPC;
      break;
    }
    const std::uint64_t before = live_bytes_;
    const std::uint64_t kept = write_lines(piece, outcome.error);
    const std::string_view lines = batch.substr(0, kept);
    const std::uint64_t line_events = kept == batch.size() ? events : count_events(lines);
    outcome.lines_written += count_lines(lines);
    outcome.events_written += line_events;
    live_events_ += line_events;
    live_newest_ns_ = std::max(live_newest_ns_, newest_ns);
    events -= std::min(events, line_events);
    batch.remove_prefix(kept);
    // A limit on the size of files (RLIMIT_FSIZE): smaller segments stay below it. One that takes no line is too small.
    if (outcome.error == EFBIG && (before > live_begin_ || kept > 0)) {
      segment_limit_ = std::max<std::uint64_t>(live_bytes_, 1);
      outcome.error = rotate();
      outcome.rotated = outcome.error == 0;
    }
  }
  return outcome;
}

// What of the batch goes into the live segment; empty: that one was full and the next is begun.
std::string_view LogSink::next_piece(std::string_view batch, WriteOutcome& outcome) noexcept {
  if (segment_limit_ == 0) return batch;
  const std::uint64_t room = segment_limit_ - std::min(segment_limit_, live_bytes_);
  const std::string_view piece = whole_lines_within(batch, room);
  if (piece.size() <= room || live_bytes_ <= live_begin_) return piece;
  if (rotate() != 0) return batch;  // no new segment to be had: this one has to grow, within the bound
  outcome.rotated = true;
  return {};
}

int LogSink::rotate() noexcept {
  return guarded([&] {
    if (const int error = ensure_folder()) return error;
    FileState state;
    const int looked = describe_at(folder_fd_, name_.c_str(), state);
    if (looked != 0 && looked != ENOENT) return looked;  // rights dropped: the open file is all we have
    const bool in_place = looked == 0 && state.id == id_;
    if (in_place) {  // else somebody moved it away, and what it holds with it
      std::uint32_t number = segment_;
      std::string closed = segment_name(number);
      int error = rename_exclusively(folder_fd_, name_.c_str(), closed.c_str());
      while (error == EEXIST && number < segment_ + kMaxNames) {
        closed = segment_name(++number);
        error = rename_exclusively(folder_fd_, name_.c_str(), closed.c_str());
      }
      if (error != 0) return error;
      segment_ = number;
      account_closed(number, closed);
    }
    close_if(fd_, id_);
    live_events_ = 0;
    return begin_live();
  });
}

void LogSink::account_closed(std::uint32_t number, const std::string& name) noexcept {
  guarded([&] {
    retention_.add({number, live_bytes_, live_events_, live_newest_ns_});
    if (compressor_) {
      const std::string folder = folder_ == "/" ? "" : folder_;
      compressor_->submit({number, folder + '/' + name, id_, live_bytes_, live_bytes_ / 2});
    }
    return 0;
  });
}

// Deletes the oldest segments until `incoming` fits. False: it does not fit even so.
bool LogSink::make_room(std::uint64_t incoming) noexcept {
  while (const auto oldest = retention_.take_oldest_if_over(live_bytes_ + incoming)) {
    if (compressor_) compressor_->cancel(oldest->number);
    rotated_away_ += oldest->events;
    guarded([&] {
      if (const int error = ensure_folder()) return error;
      const std::string name = segment_name(oldest->number);
      unlinkat(folder_fd_, name.c_str(), 0);
      unlinkat(folder_fd_, (name + ".zst").c_str(), 0);
      return 0;
    });
  }
  return retention_.fits(live_bytes_ + incoming);
}

std::uint64_t LogSink::compressor_cpu_ns() const noexcept { return compressor_ ? compressor_->cpu_ns() : 0; }

void LogSink::collect_compressed() noexcept {
  Compressor::Done done;
  while (compressor_ && compressor_->take_done(done)) retention_.resize(done.number, done.bytes);
}

// Returns the bytes of the whole lines that are in the file afterwards.
std::uint64_t LogSink::write_lines(std::string_view bytes, int& error) noexcept {
  error = 0;
  if (torn_) {  // never go on in a line that another one was torn off in
    const ssize_t n = ::write(fd_, "\n", 1);
    if (n != 1) {
      error = n < 0 ? errno : EIO;
      return 0;
    }
    torn_ = false;
    ++live_bytes_;
    ++bytes_written_;
  }
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      error = n < 0 ? errno : EIO;
      break;
    }
    done += static_cast<std::uint64_t>(n);
  }
  const std::uint64_t kept = error == 0 ? done : keep_whole_lines(bytes, done);
  live_bytes_ += kept;
  bytes_written_ += kept;
  return kept;
}

// After a write that ended in the middle of `bytes`: cuts the part of a line off, or remembers that it is there.
std::uint64_t LogSink::keep_whole_lines(std::string_view bytes, std::uint64_t done) noexcept {
  const std::size_t end = done == 0 ? std::string_view::npos : bytes.rfind('\n', done - 1);
  const std::uint64_t whole = end == std::string_view::npos ? 0 : end + 1;
  const std::uint64_t part = done - whole;
  if (part == 0) return whole;
  FileState state;
  const bool alone = describe(fd_, state) == 0 && state.id == id_ && state.bytes == live_bytes_ + done;
  if (!alone || ftruncate(fd_, static_cast<off_t>(live_bytes_ + whole)) != 0) {
    torn_ = true;
    live_bytes_ += part;
    bytes_written_ += part;
  }
  return whole;
}

bool LogSink::must_summarise(std::int64_t now_ns) noexcept {
  collect_compressed();
  return retention_.must_summarise(live_bytes_, now_ns);
}

void LogSink::make_way(std::uint64_t bytes) noexcept {
  collect_compressed();
  WriteOutcome outcome;
  if (!open_ || ensure_live(outcome) != 0 || write_prologue() != 0) return;
  const bool full = segment_limit_ != 0 && live_bytes_ + bytes > segment_limit_ && live_bytes_ > live_begin_;
  if (full && (rotate() != 0 || write_prologue() != 0)) return;
  make_room(bytes);
}

std::uint64_t LogSink::take_rotated_away() noexcept { return std::exchange(rotated_away_, 0); }

void LogSink::forget_live_events() noexcept { rotated_away_ += std::exchange(live_events_, 0); }

void LogSink::close(std::uint32_t compress_timeout_ms) noexcept {
  if (compressor_) compressor_->stop(compress_timeout_ms);
  compressor_.reset();
  close_if(fd_, id_);
  close_if(folder_fd_, folder_id_);
  open_ = false;
}

void LogSink::forget_after_fork() noexcept {
  // Its thread is not in this process and may have held its mutex: neither used nor destroyed.
  if (compressor_) new (std::nothrow) std::shared_ptr<Compressor>(std::move(compressor_));
  compressor_.reset();
  close_if(fd_, id_);
  close_if(folder_fd_, folder_id_);
  open_ = false;
  retention_ = Retention();
}

}  // namespace gpuflight::log
