// GPU times in the life of a recording: when they are asked for, fetched and given up, and the clocks they are told by.
//
// Threads: start, pause, resume by who controls the recording (serialised by the recorder); round and last_round on the
// recorder thread. No lock of ours is held across a CUPTI call.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "capture/activity_source.h"
#include "capture/notice_board.h"
#include "config/options.h"
#include "recorder/drain.h"

namespace gpuflight::recorder {

class GpuTiming {
 public:
  GpuTiming(const config::Options& options, std::int64_t t0_monotonic_ns, capture::NoticeBoard& notices);

  // `library`: the libcupti that the source of launches subscribed to. What cannot be had is said, and the recording
  // goes on without times.
  void start(const capture::SharedObject& library, std::uint32_t cupti_version) noexcept;
  void pause(std::int64_t now_ns) noexcept;
  void resume(std::int64_t now_ns) noexcept;
  // Times on or off while launches are recorded on. False: not while paused, or CUPTI refused, which is said.
  bool switch_to(bool on, std::int64_t now_ns) noexcept;

  // Before the rings are emptied: asks CUPTI for what is complete when that is due (`asked`: now), and says which of the
  // records in the rings will have times. `several`: more than one device is in use.
  void begin_round(Drain& drain, std::int64_t now_ns, bool asked, bool several) noexcept;
  // After it: hands what was complete to the join.
  void round(Drain& drain, std::int64_t now_ns) noexcept;
  // All that has ended, and what has not without times. Nothing comes after it.
  void last_round(Drain& drain, std::int64_t now_ns) noexcept;

  // As much has come while the last round was busy that the next one is to begin at once.
  bool behind() const noexcept { return source_.bytes_complete() > kBehindBytes; }
  bool on() const noexcept { return state_.load(std::memory_order_acquire) == State::kOn; }
  void write_clock(Drain& drain, const capture::LaunchClock& clock, std::int64_t now_ns) noexcept;  // when it is due

 private:
  static constexpr std::size_t kBehindBytes = 4u << 20;  // about 20,000 records, a fiftieth of a second

  enum class State : std::uint8_t { kOff, kOn, kPaused, kGivenUp, kSwitchedOff };

  void take(Drain& drain, std::int64_t now_ns) noexcept;
  void watch_bound(std::int64_t now_ns) noexcept;
  bool graphs_lose_their_ids() const noexcept;

  bool start_source() noexcept;
  void note_restarted() noexcept;

  const config::Timing timing_;
  capture::ActivitySource::Settings settings_;
  const std::int64_t t0_monotonic_ns_;
  capture::NoticeBoard& notices_;
  capture::SharedObject library_;
  std::uint32_t cupti_version_ = 0;
  capture::ActivitySource source_;
  std::atomic<State> state_{State::kOff};
  bool paused_ = false;  // of who controls the recording
  std::atomic<bool> resumed_{false};
  std::atomic<std::int64_t> until_ns_{INT64_MAX};  // launches from then on have no times
  // The last time in which they were seen and had no times.
  std::atomic<std::int64_t> untimed_from_ns_{INT64_MAX}, untimed_to_ns_{INT64_MAX};
  // The last time in which launches were not seen.
  std::atomic<std::int64_t> unseen_from_ns_{INT64_MAX}, unseen_to_ns_{INT64_MAX};
  bool said_lost_ = false;
  std::int64_t flushed_ns_ = 0;
  std::int64_t clock_due_ns_ = 0;
};

}  // namespace gpuflight::recorder
