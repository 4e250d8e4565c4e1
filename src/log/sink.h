// The log's files: one live file that keeps its name, closed segments beside it (NAME.0001.ndjson, compressed to
// NAME.0001.ndjson.zst in the background), the oldest deleted when the bound is reached.
// It runs in somebody else's process: a host may close our descriptor, delete our files, fill the disk, change its
// directory. Before each write the descriptor's identity is checked; a file that went away is made anew.
//
// Threads: one owner (the recorder thread), which must have all signals blocked (SIGXFSZ). Blocks: in write(2).
// Allocates: at open and rotation. Never throws, never prints, changes no process-wide state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "log/buffer.h"
#include "log/posix_file.h"
#include "log/retention.h"

namespace gpuflight::log {

class Compressor;

struct SinkOptions {
  std::string path;                       // pattern already expanded; parent folders are made
  std::uint64_t segment_bytes = 64 << 20;  // rotate beyond; with a bound at most 1/16 of it; 0: no other limit
  std::uint64_t max_bytes = 0;            // of all files of this log; 0: no bound
  std::int64_t keep_ns = 0;               // see Retention
  bool compress = true;
};

// What makes a segment readable alone: session_start with the segment's number, device_info, stream_info of all known
// streams. Called on the owner's thread, from open() and write().
class SegmentPrologue {
 public:
  virtual ~SegmentPrologue() = default;
  virtual void append_prologue(Buffer& out, std::uint32_t segment) noexcept = 0;
};

struct WriteOutcome {
  int error = 0;                     // errno; 0: everything was written
  std::uint64_t lines_written = 0;   // whole lines of the batch in the file
  std::uint64_t events_written = 0;  // of these: lines the ledger counts (is_ring_event)
  bool recreated = false;            // the file had been deleted and was made anew
  bool reopened = false;             // the descriptor had been closed or taken by the host
  bool rotated = false;
};

class LogSink {
 public:
  LogSink();
  ~LogSink();
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

  // 0 or errno. A file that exists, a symlink included, is left alone: NAME.2.ndjson, NAME.3.ndjson ... is taken.
  // `prologue` must outlive the sink; nullptr: none.
  int open(const SinkOptions& options, SegmentPrologue* prologue) noexcept;
  // For an owner that opens first and knows what to say at the head of a segment later: nothing has been written yet.
  // 0 or errno; on an error it is tried again before the first batch.
  int begin(SegmentPrologue& prologue) noexcept;
  bool is_open() const noexcept { return open_; }
  const std::string& path() const noexcept { return path_; }  // absolute, as really taken

  // `batch`: whole lines; `events` of its lines are ring events; `newest_ns`: the latest time in it. On an error the
  // lines that did not get in are the caller's to count (write_failed); the next call tries again.
  WriteOutcome write(std::string_view batch, std::uint64_t events, std::int64_t newest_ns) noexcept;

  // Whether events no longer fit and summaries are to be written instead. `now_ns` on the clock of `newest_ns`.
  bool must_summarise(std::int64_t now_ns) noexcept;

  // Begins the next segment and deletes old ones now as far as the next write of up to `bytes` would.
  void make_way(std::uint64_t bytes) noexcept;
  std::uint64_t segment_limit() const noexcept { return segment_limit_; }  // 0: none

  // Events that went away with deleted segments since the last call.
  std::uint64_t take_rotated_away() noexcept;
  std::uint64_t bytes_written() const noexcept { return bytes_written_; }
  std::uint32_t segment() const noexcept { return segment_; }
  std::uint64_t compressor_cpu_ns() const noexcept;

  // Closes; waits at most `compress_timeout_ms` for the compression in progress, what is not done stays plain.
  void close(std::uint32_t compress_timeout_ms) noexcept;
  // In a forked child: lets go of everything inherited without touching the parent's files. It can be opened anew.
  void forget_after_fork() noexcept;

 private:
  int begin_live() noexcept;
  int create_live() noexcept;
  int create_file(const std::string& name) noexcept;
  bool segment_exists(const std::string& stem) const;
  int ensure_folder() noexcept;
  int ensure_live(WriteOutcome& outcome) noexcept;
  int reopen_live() noexcept;
  int write_prologue() noexcept;
  int rotate() noexcept;
  void account_closed(std::uint32_t number, const std::string& name) noexcept;
  std::string_view next_piece(std::string_view batch, WriteOutcome& outcome) noexcept;
  std::uint64_t write_lines(std::string_view bytes, int& error) noexcept;
  std::uint64_t keep_whole_lines(std::string_view bytes, std::uint64_t done) noexcept;
  bool make_room(std::uint64_t incoming) noexcept;
  void collect_compressed() noexcept;
  void forget_live_events() noexcept;
  std::string segment_name(std::uint32_t number) const;

  SinkOptions options_;
  SegmentPrologue* prologue_ = nullptr;
  Retention retention_;
  std::shared_ptr<Compressor> compressor_;
  std::string path_, folder_, name_, stem_, extension_;  // path_ = folder_/name_, name_ = stem_ extension_
  int fd_ = -1;
  int folder_fd_ = -1;
  FileId id_, folder_id_;
  bool open_ = false;
  bool torn_ = false;              // the live file ends in a part of a line
  bool prologue_missing_ = false;  // the live file could not be begun properly yet
  std::uint32_t segment_ = 0;
  std::uint64_t segment_limit_ = 0;  // 0: no rotation
  std::uint64_t live_bytes_ = 0;
  std::uint64_t live_begin_ = 0;  // bytes of its prologue
  std::uint64_t live_events_ = 0;
  std::int64_t live_newest_ns_ = 0;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t rotated_away_ = 0;
};

}  // namespace gpuflight::log
