// How long kernels run, without CUPTI: a pair of timing events around every N-th launch of a configuration, read back by
// the recorder thread when the GPU has passed the second one. What lies between the two is more than the kernel: the gaps
// before and behind it, and, where the stream was idle, the host's launch call. So the time is never too short, and how
// much it may be too long is told with it.
//
// Threads: count, begin, end, submit, cancel on app threads, around a launch of theirs that is no cache hit; HeldOff and
// on_context_destroyed likewise, before the driver takes a context away: what has ended by then is read there; poll,
// note_launches on the recorder thread. Nothing waits for the GPU. begin makes driver calls and, the first time in a context, allocates and locks. Owned by the
// recorder, never destroyed.
//
// Events go where the host's work goes, so never: into a stream that may be being captured, beside programmatic dependent
// launches, around several launches of one call, into another context than the events'. In each of these cases, when all
// pairs are in flight, and when the driver refuses, the launch is simply not timed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "capture/driver_api.h"
#include "capture/event_budget.h"
#include "capture/event_pool.h"
#include "capture/launch_call.h"
#include "capture/launch_clock.h"
#include "capture/stream_table.h"
#include "capture/thread_state.h"

namespace gpuflight::capture {

class EventTimer {
 public:
  static constexpr std::size_t kMostContexts = 64;
  static constexpr std::uint32_t kTicketBit = 0x8000'0000;  // CUPTI's correlation ids do not come that far

  EventTimer(const DriverApi& driver, const HotPage& page, const LaunchClock& clock, StreamTable& streams,
             std::uint32_t every);
  ~EventTimer();  // for tests; a recorder's is never destroyed
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  // While a source sees launches that is told no times.
  void enable(bool on) noexcept { on_.store(on && able_, std::memory_order_release); }

  // Counts a launch that goes the long way; hits count themselves (launch_hit.h). True: this one is to be timed: the
  // second of a configuration and a thread, since the first may have to load its module, and each N-th after it.
  bool count(ThreadState::LaunchEntry& entry) noexcept {
    if (!on_.load(std::memory_order_acquire)) {
      entry.until_timed = 0;
      return false;
    }
    const std::uint32_t every = budget_.every();
    if (entry.until_timed == 0 || entry.until_timed > every) entry.until_timed = every < 2 ? every : 2;
    if (entry.until_timed > 1) {
      --entry.until_timed;
      return false;
    }
    entry.until_timed = every;
    return true;
  }

  // Right before a launch into a stream that is not being captured.
  void begin(ThreadState& thread, const ThreadState::StreamEntry& stream, const LaunchCall& call) noexcept;
  // Right after it. The number under which the time will come; 0: none will.
  std::uint32_t end(ThreadState& thread, bool succeeded) noexcept;
  // When the launch's record is whole.
  void submit(ThreadState& thread) noexcept;
  // The thread left the launch another way.
  void cancel(ThreadState& thread) noexcept;

  // From here on kernels of this stream may begin before the one ahead has ended.
  void note_programmatic(std::uint32_t stream) noexcept {
    programmatic_[stream % kStreamBits / 64].fetch_or(std::uint64_t{1} << stream % 64, std::memory_order_relaxed);
  }

  void on_context_destroyed(std::uint32_t uid) noexcept;

  // While it lives nothing is done with any event: a context may be going of which it is not known whether.
  class HeldOff {
   public:
    explicit HeldOff(EventTimer* timer) noexcept : timer_(timer) {
      if (timer_ == nullptr) return;
      timer_->read_all();
      timer_->hold_off();
    }
    ~HeldOff() {
      if (timer_ != nullptr) timer_->held_.fetch_sub(1, std::memory_order_seq_cst);
    }
    HeldOff(const HeldOff&) = delete;
    HeldOff& operator=(const HeldOff&) = delete;

   private:
    EventTimer* const timer_;
  };
  // For good: the driver is about to be taken down.
  void close() noexcept {
    enable(false);
    hold_off();
  }

  struct Time {
    std::uint32_t ticket = 0;
    event::MaybeNs duration_ns;  // null: it will not be known
    event::MaybeNs error_ns;     // the kernel may have taken so much less; null: not known
  };
  // Calls told(Time) for each launch whose time has come, or will not come.
  template <class Told>
  void poll(Told&& told) noexcept {
    const std::size_t used = pools_used_.load(std::memory_order_acquire);
    for (std::size_t p = 0; p < used; ++p) {
      EventPool& pool = *pools_[p].load(std::memory_order_acquire);
      if (pool.any(EventPool::State::kInFlight)) pool.uid() != 0 ? read(pool) : give_up(pool);
      if (pool.any(EventPool::State::kRead)) tell(pool, told);
    }
  }

  // So many launches in all: what the timed ones cost is held against them.
  void note_launches(std::uint64_t launches) noexcept {
    budget_.note(launches, cost_ns_.load(std::memory_order_relaxed));
  }

  struct Counts {
    std::uint64_t begun = 0;     // launches around which events were recorded
    std::uint64_t no_pair = 0;   // not timed: all pairs were in flight
    std::uint64_t given_up = 0;  // their context went first
    std::int64_t cost_ns = 0;    // of the host's time
    std::uint32_t every = 0;     // as it is now
  };
  Counts counts() const noexcept;

 private:
  static constexpr std::uint32_t kStreamBits = 4096;  // more streams share them
  static constexpr std::uint32_t kCalibrations = 4;
  static constexpr std::uint32_t kMadeAtOnce = 8;

  // Ends the use of a pool on its own.
  class Use {
   public:
    Use(EventTimer& timer, EventPool& pool, std::uint32_t uid) noexcept : pool_(pool) {
      good_ = uid != 0 && pool.begin_use(uid);
      if (good_ && timer.held_.load(std::memory_order_seq_cst) != 0) {
        pool.end_use();
        good_ = false;
      }
    }
    ~Use() {
      if (good_) pool_.end_use();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const noexcept { return good_; }

   private:
    EventPool& pool_;
    bool good_;
  };

  bool may_time(const ThreadState& thread, const ThreadState::StreamEntry& stream,
                const LaunchCall& call) const noexcept;
  EventPool* pool_of(CUcontext context, std::uint32_t uid) noexcept;
  EventPool* find_pool(std::uint32_t uid) noexcept;
  std::uint32_t take_pair(EventPool& pool) noexcept;
  bool make_events(EventPool::Pair& pair) noexcept;
  bool record(CUevent event, const void* stream, bool per_thread) noexcept;
  bool of_context(const void* stream, CUcontext context) noexcept;
  void calibrate(EventPool& pool, const void* stream, bool per_thread) noexcept;
  void hold_off() noexcept;

  enum class Answer : std::uint8_t { kDone, kNotYet, kNever };
  Answer ask(EventPool::Pair& pair, std::int64_t& elapsed_ns) noexcept;
  // With the pool in use and its context current: what the two events say, or that they will say nothing.
  Answer read_pair(EventPool& pool, EventPool::Pair& pair) noexcept;
  void read(EventPool& pool) noexcept;  // what has ended
  void read_all() noexcept;
  void give_up(EventPool& pool) noexcept;  // the context is gone

  template <class Told>
  void tell(EventPool& pool, Told&& told) noexcept {
    const auto known = [](std::int64_t ns) { return ns >= 0 ? event::MaybeNs(ns) : std::nullopt; };
    for (std::uint32_t i = 0; i < EventPool::kPairs; ++i) {
      if (!pool.try_take_read(i)) continue;
      EventPool::Pair& pair = pool[i];
      if (pair.ticket != 0) told(Time{pair.ticket, known(pair.duration_ns), known(pair.error_ns)});
      release(pool, i, pool.uid());
    }
  }
  // Its events are worth keeping while their context lives.
  static void release(EventPool& pool, std::uint32_t index, std::uint32_t context_uid) noexcept;

  const DriverApi& driver_;
  const HotPage& page_;
  const LaunchClock& clock_;
  StreamTable& streams_;
  EventBudget budget_;
  const bool able_;  // the driver has what it takes
  std::atomic<bool> on_{false};
  std::atomic<std::uint32_t> held_{0};
  std::mutex mutex_;  // of making pools
  std::array<std::atomic<EventPool*>, kMostContexts> pools_{};
  std::atomic<std::size_t> pools_used_{0};
  std::array<std::atomic<std::uint64_t>, kStreamBits / 64> programmatic_{};
  std::atomic<std::uint32_t> next_ticket_{0};
  std::atomic<std::int64_t> cost_ns_{0};
  std::atomic<std::uint64_t> begun_{0}, no_pair_{0}, given_up_{0};
};

}  // namespace gpuflight::capture
