#include "capture/event_pool.h"

#include <sched.h>

namespace gpuflight::capture {

// The driver may be holding a lock that the stuck one waits for, so the wait is bounded.
bool EventPool::drop() noexcept {
  constexpr int kMostYields = 10'000;
  uid_.store(0, std::memory_order_seq_cst);
  for (int i = 0; i < kMostYields && in_use(); ++i) sched_yield();
  return !in_use();
}

std::uint32_t EventPool::try_take(bool& empty) noexcept {
  empty = false;
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    if (try_take(i, State::kFree)) return i;
    if (states_[i].load(std::memory_order_relaxed) == State::kEmpty) break;  // none behind it has events
  }
  empty = true;
  return try_take_empty();
}

std::uint32_t EventPool::try_take_empty() noexcept {
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    if (try_take(i, State::kEmpty)) return i;
  }
  return kNone;
}

bool EventPool::any(State state) const noexcept {
  for (const auto& one : states_) {
    if (one.load(std::memory_order_acquire) == state) return true;
  }
  return false;
}

bool EventPool::empty() const noexcept {
  for (const auto& one : states_) {
    if (one.load(std::memory_order_acquire) != State::kEmpty) return false;
  }
  return true;
}

void EventPool::forget_events() noexcept {
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    if (!try_take(i, State::kFree)) continue;
    pairs_[i] = {};
    give_back_empty(i);
  }
}

}  // namespace gpuflight::capture
