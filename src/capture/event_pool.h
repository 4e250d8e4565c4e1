// Pairs of timing events of one context. A pair is free, in the hands of one thread, in flight (recorded and not read back
// yet), or read. Its state is one byte, taken and handed on without a lock. Events are never destroyed by us: with their
// context the driver takes them, and they are forgotten then.
//
// Threads: any; a pair that was taken is the taker's alone. drop by who destroys the context. Blocks: drop, for a bounded time. Allocates: no. Owned by EventTimer, never freed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <cuda.h>

namespace gpuflight::capture {

class EventPool {
 public:
  static constexpr std::uint32_t kPairs = 256;
  static constexpr std::uint32_t kNone = ~0u;

  enum class State : std::uint8_t {
    kEmpty,     // no events made
    kFree,
    kTaken,     // a launch is being timed, or its time read
    kInFlight,
    kRead,      // and not told yet
  };
  struct Pair {
    CUevent begin = nullptr, end = nullptr;
    std::uint32_t ticket = 0;      // 0: nothing between, to see how long that is
    std::int64_t call_ns = 0;      // host time that the two may lie apart for no other reason than ours
    std::int64_t duration_ns = -1, error_ns = -1;  // once read; -1: not known
  };

  // Of the context from here on.
  void open(CUcontext context, std::uint32_t uid) noexcept {
    context_ = context;
    gap_ns.store(-1, std::memory_order_relaxed);
    calibrations.store(0, std::memory_order_relaxed);
    broken.store(false, std::memory_order_relaxed);
    uid_.store(uid, std::memory_order_seq_cst);
  }
  std::uint32_t uid() const noexcept { return uid_.load(std::memory_order_seq_cst); }
  CUcontext context() const noexcept { return context_; }

  // Nobody touches its events from here on; who does still, is waited for. False: someone is stuck in the driver.
  bool drop() noexcept;
  // Driver calls on events of context `uid` may be made, until end_use; false: it is gone, or going.
  bool begin_use(std::uint32_t uid) noexcept {
    users_.fetch_add(1, std::memory_order_seq_cst);
    if (uid_.load(std::memory_order_seq_cst) == uid) return true;
    end_use();
    return false;
  }
  void end_use() noexcept { users_.fetch_sub(1, std::memory_order_release); }
  bool in_use() const noexcept { return users_.load(std::memory_order_seq_cst) != 0; }

  // A free pair, or an empty one of which `empty` says so; kNone: all are in use.
  std::uint32_t try_take(bool& empty) noexcept;
  std::uint32_t try_take_empty() noexcept;
  void give_back(std::uint32_t index) noexcept { set(index, State::kFree); }
  void give_back_empty(std::uint32_t index) noexcept { set(index, State::kEmpty); }
  void submit(std::uint32_t index) noexcept { set(index, State::kInFlight); }
  // One in flight, to be read or submitted again; one that was read, to be given back.
  bool try_take_in_flight(std::uint32_t index) noexcept { return try_take(index, State::kInFlight); }
  void note_read(std::uint32_t index) noexcept { set(index, State::kRead); }
  bool try_take_read(std::uint32_t index) noexcept { return try_take(index, State::kRead); }
  bool any(State state) const noexcept;
  bool empty() const noexcept;  // all are
  // The events went with their context.
  void forget_events() noexcept;

  Pair& operator[](std::uint32_t index) noexcept { return pairs_[index]; }

  std::atomic<std::int64_t> gap_ns{-1};  // least time between two events with nothing between; -1: not known yet
  std::atomic<std::uint32_t> calibrations{0};  // pairs recorded to see that
  std::atomic<bool> broken{false};       // the driver makes no events here, or the context is lost

 private:
  bool try_take(std::uint32_t index, State from) noexcept {
    return states_[index].load(std::memory_order_relaxed) == from &&
           states_[index].compare_exchange_strong(from, State::kTaken, std::memory_order_acquire);
  }
  void set(std::uint32_t index, State state) noexcept { states_[index].store(state, std::memory_order_release); }

  std::atomic<std::uint32_t> uid_{0};  // 0: of none
  std::atomic<std::uint32_t> users_{0};
  CUcontext context_ = nullptr;
  std::array<std::atomic<State>, kPairs> states_{};
  std::array<Pair, kPairs> pairs_{};
};

}  // namespace gpuflight::capture
