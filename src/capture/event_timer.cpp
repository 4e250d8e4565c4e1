#include "capture/event_timer.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <new>
#include <sched.h>

#include "capture/miss_guard.h"

namespace gpuflight::capture {
namespace {

constexpr std::int64_t kResolutionNs = 500;       // of event times, as documented by cuEventElapsedTime

CUstream as_stream(const void* stream) noexcept { return static_cast<CUstream>(const_cast<void*>(stream)); }

bool has_events(const DriverApi& driver) noexcept {
  return driver.event_create != nullptr && driver.event_record != nullptr && driver.event_query != nullptr &&
         driver.event_elapsed_time != nullptr && driver.ctx_push_current != nullptr && driver.ctx_pop_current != nullptr;
}

}  // namespace

EventTimer::EventTimer(const DriverApi& driver, const HotPage& page, const LaunchClock& clock, StreamTable& streams,
                       std::uint32_t every)
    : driver_(driver),
      page_(page),
      clock_(clock),
      streams_(streams),
      budget_(every),
      able_(every != 0 && has_events(driver)) {}

EventTimer::~EventTimer() {
  for (auto& pool : pools_) delete pool.load(std::memory_order_relaxed);
}

bool EventTimer::may_time(const ThreadState& thread, const ThreadState::StreamEntry& stream,
                          const LaunchCall& call) const noexcept {
  if (call.programmatic || stream.programmatic || call.one_of_several || thread.open_count != 0) return false;
  if (call.correlation != 0) return false;  // seen through CUPTI, which tells its time, while the hooks take over
  if (call.context == nullptr || page_.captures.load(std::memory_order_acquire) > 0) return false;
  const std::uint64_t bits = programmatic_[stream.id % kStreamBits / 64].load(std::memory_order_relaxed);
  return (bits >> stream.id % 64 & 1) == 0;
}

void EventTimer::begin(ThreadState& thread, const ThreadState::StreamEntry& stream, const LaunchCall& call) noexcept {
  cancel(thread);  // of a launch that another source has closed
  if (!may_time(thread, stream, call)) return;
  MissGuard guard(thread);
  const std::int64_t came_ns = clock_.now_ns();
  const auto context = static_cast<CUcontext>(const_cast<void*>(call.context));
  EventPool* const pool = pool_of(context, call.context_uid);
  if (pool == nullptr || pool->broken.load(std::memory_order_relaxed)) return;
  const Use use(*this, *pool, call.context_uid);
  if (!use) return;
  RelaxedCapture relaxed(driver_);
  const std::uint32_t index = take_pair(*pool);
  if (index == EventPool::kNone) return;
  EventPool::Pair& pair = (*pool)[index];
  bool recorded = false;
  std::int64_t began_ns = 0;
  if (streams_.begin_use(thread.stream_generation)) {
    if (of_context(call.stream, context)) {
      calibrate(*pool, call.stream, stream.kind == 2);
      began_ns = clock_.now_ns();
      recorded = record(pair.begin, call.stream, stream.kind == 2);
    }
    streams_.end_use();
  }
  if (!recorded) return pool->give_back(index);
  thread.timed = {pool, call.context_uid, index, call.stream, stream.kind == 2, began_ns};
  cost_ns_.fetch_add(clock_.now_ns() - came_ns, std::memory_order_relaxed);
}

// Whether the stream had come to the launch while the call ran decides what the call may have to do with the time.
std::uint32_t EventTimer::end(ThreadState& thread, bool succeeded) noexcept {
  ThreadState::TimedLaunch& timed = thread.timed;
  if (timed.pool == nullptr) return 0;
  MissGuard guard(thread);
  const std::int64_t came_ns = clock_.now_ns();
  EventPool& pool = *timed.pool;
  EventPool::Pair& pair = pool[timed.pair];
  bool recorded = false;
  {
    const Use use(*this, pool, timed.context_uid);
    // A capture that has just begun may be on this stream.
    if (use && succeeded && page_.captures.load(std::memory_order_acquire) <= 0 &&
        streams_.begin_use(thread.stream_generation)) {
      RelaxedCapture relaxed(driver_);
      const bool waits = driver_.event_query(pair.begin) == CUDA_ERROR_NOT_READY;
      recorded = record(pair.end, timed.stream, timed.per_thread);
      pair.call_ns = clock_.now_ns() - (waits ? came_ns : timed.began_ns);
      streams_.end_use();
    }
  }
  if (!recorded) {
    cancel(thread);
    return 0;
  }
  pair.ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed) | kTicketBit;
  begun_.fetch_add(1, std::memory_order_relaxed);
  cost_ns_.fetch_add(clock_.now_ns() - came_ns, std::memory_order_relaxed);
  return pair.ticket;
}

void EventTimer::submit(ThreadState& thread) noexcept {
  if (thread.timed.pool != nullptr) thread.timed.pool->submit(thread.timed.pair);
  thread.timed = {};
}

// An event may be recorded again before the GPU has passed it. One whose context is gone is forgotten instead.
void EventTimer::cancel(ThreadState& thread) noexcept {
  if (thread.timed.pool != nullptr) release(*thread.timed.pool, thread.timed.pair, thread.timed.context_uid);
  thread.timed = {};
}

EventPool* EventTimer::find_pool(std::uint32_t uid) noexcept {
  const std::size_t used = pools_used_.load(std::memory_order_acquire);
  for (std::size_t p = 0; p < used; ++p) {
    EventPool* const pool = pools_[p].load(std::memory_order_acquire);
    if (pool->uid() == uid) return pool;
  }
  return nullptr;
}

EventPool* EventTimer::pool_of(CUcontext context, std::uint32_t uid) noexcept {
  if (uid == 0) return nullptr;
  if (EventPool* const known = find_pool(uid)) return known;
  try {
    const std::lock_guard lock(mutex_);
    if (EventPool* const known = find_pool(uid)) return known;
    const std::size_t used = pools_used_.load(std::memory_order_relaxed);
    for (std::size_t p = 0; p < used; ++p) {
      EventPool& pool = *pools_[p].load(std::memory_order_relaxed);
      if (pool.uid() != 0 || pool.in_use()) continue;
      pool.forget_events();
      if (!pool.empty()) continue;  // some are still on their way; of a pool of no context an empty one stays so
      pool.open(context, uid);
      return &pool;
    }
    if (used == kMostContexts) return nullptr;
    auto* const pool = new (std::nothrow) EventPool;
    if (pool == nullptr) return nullptr;
    pool->open(context, uid);
    pools_[used].store(pool, std::memory_order_release);
    pools_used_.store(used + 1, std::memory_order_release);
    return pool;
  } catch (...) {
    return nullptr;
  }
}

bool EventTimer::make_events(EventPool::Pair& pair) noexcept {
  return driver_.event_create(&pair.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
         driver_.event_create(&pair.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
}

// Some more are made with the first that is wanted, so that not every launch that finds none pays for it.
std::uint32_t EventTimer::take_pair(EventPool& pool) noexcept {
  bool empty = false;
  const std::uint32_t index = pool.try_take(empty);
  if (index == EventPool::kNone) no_pair_.fetch_add(1, std::memory_order_relaxed);
  if (index == EventPool::kNone || !empty) return index;
  if (!make_events(pool[index])) {
    pool.broken.store(true, std::memory_order_relaxed);
    pool[index] = {};
    pool.give_back_empty(index);
    return EventPool::kNone;
  }
  for (std::uint32_t more = 1; more < kMadeAtOnce; ++more) {
    const std::uint32_t other = pool.try_take_empty();
    if (other == EventPool::kNone) break;
    if (make_events(pool[other])) {
      pool.give_back(other);
      continue;
    }
    pool[other] = {};
    pool.give_back_empty(other);
    break;
  }
  return index;
}

bool EventTimer::record(CUevent event, const void* stream, bool per_thread) noexcept {
  const auto call = per_thread && driver_.event_record_ptsz != nullptr ? driver_.event_record_ptsz : driver_.event_record;
  return call(event, as_stream(stream)) == CUDA_SUCCESS;
}

bool EventTimer::of_context(const void* stream, CUcontext context) noexcept {
  if (ThreadState::is_default(stream)) return true;  // of the current one
  CUcontext owner = nullptr;
  return driver_.stream_get_ctx != nullptr && driver_.stream_get_ctx(as_stream(stream), &owner) == CUDA_SUCCESS &&
         owner == context;
}

void EventTimer::calibrate(EventPool& pool, const void* stream, bool per_thread) noexcept {
  if (pool.calibrations.load(std::memory_order_relaxed) >= kCalibrations) return;
  bool empty = false;
  const std::uint32_t index = pool.try_take(empty);
  if (index == EventPool::kNone) return;
  EventPool::Pair& pair = pool[index];
  if (empty && !make_events(pair)) {
    pair = {};
    return pool.give_back_empty(index);
  }
  if (!record(pair.begin, stream, per_thread) || !record(pair.end, stream, per_thread)) return pool.give_back(index);
  pair.ticket = 0;
  pool.calibrations.fetch_add(1, std::memory_order_relaxed);
  pool.submit(index);
}

void EventTimer::on_context_destroyed(std::uint32_t uid) noexcept {
  if (uid == 0) return;
  EventPool* const pool = find_pool(uid);
  if (pool == nullptr) return;
  read(*pool);
  pool->drop();
}

// Like StreamTable::invalidate: who is stuck in the driver is not waited for.
void EventTimer::hold_off() noexcept {
  constexpr int kMostYields = 10'000;
  held_.fetch_add(1, std::memory_order_seq_cst);
  const std::size_t used = pools_used_.load(std::memory_order_acquire);
  for (std::size_t p = 0; p < used; ++p) {
    const EventPool& pool = *pools_[p].load(std::memory_order_acquire);
    for (int i = 0; i < kMostYields && pool.in_use(); ++i) sched_yield();
  }
}

EventTimer::Answer EventTimer::ask(EventPool::Pair& pair, std::int64_t& elapsed_ns) noexcept {
  const CUresult passed = driver_.event_query(pair.end);
  if (passed == CUDA_ERROR_NOT_READY) return Answer::kNotYet;
  float ms = 0;
  if (passed != CUDA_SUCCESS || driver_.event_elapsed_time(&ms, pair.begin, pair.end) != CUDA_SUCCESS || !(ms >= 0)) {
    return Answer::kNever;
  }
  elapsed_ns = std::llround(static_cast<double>(ms) * 1e6);
  return Answer::kDone;
}

EventTimer::Answer EventTimer::read_pair(EventPool& pool, EventPool::Pair& pair) noexcept {
  std::int64_t elapsed_ns = 0;
  const Answer answer = ask(pair, elapsed_ns);
  if (answer == Answer::kNotYet) return answer;
  pair.duration_ns = pair.error_ns = -1;
  const std::int64_t gap_ns = pool.gap_ns.load(std::memory_order_relaxed);
  if (answer == Answer::kNever) {
    if (pair.ticket == 0) return answer;
    pool.broken.store(true, std::memory_order_relaxed);  // most likely the context is lost to an error
    given_up_.fetch_add(1, std::memory_order_relaxed);
  } else if (pair.ticket == 0) {
    pool.gap_ns.store(gap_ns < 0 ? elapsed_ns : std::min(gap_ns, elapsed_ns), std::memory_order_relaxed);
  } else {
    pair.duration_ns = elapsed_ns;
    // One gap before the kernel, one behind it.
    if (gap_ns >= 0) pair.error_ns = std::min(elapsed_ns, 2 * gap_ns + pair.call_ns + kResolutionNs);
  }
  return answer;
}

void EventTimer::read(EventPool& pool) noexcept {
  const Use use(*this, pool, pool.uid());
  if (!use) return;
  const int host_errno = errno;
  RelaxedCapture relaxed(driver_);
  // The recorder thread has no context of its own, and on a thread of the host's another may be current.
  if (driver_.ctx_push_current(pool.context()) != CUDA_SUCCESS) {
    errno = host_errno;
    return;
  }
  // What tells the gap first: the others' error goes by it.
  for (const bool calibrations : {true, false}) {
    for (std::uint32_t i = 0; i < EventPool::kPairs; ++i) {
      if (!pool.try_take_in_flight(i)) continue;
      EventPool::Pair& pair = pool[i];
      if ((pair.ticket == 0) == calibrations && read_pair(pool, pair) != Answer::kNotYet) {
        pool.note_read(i);
      } else {
        pool.submit(i);
      }
    }
  }
  CUcontext ours = nullptr;
  driver_.ctx_pop_current(&ours);
  errno = host_errno;
}

void EventTimer::read_all() noexcept {
  const std::size_t used = pools_used_.load(std::memory_order_acquire);
  for (std::size_t p = 0; p < used; ++p) {
    EventPool& pool = *pools_[p].load(std::memory_order_acquire);
    if (pool.any(EventPool::State::kInFlight)) read(pool);
  }
}

void EventTimer::give_up(EventPool& pool) noexcept {
  for (std::uint32_t i = 0; i < EventPool::kPairs; ++i) {
    if (!pool.try_take_in_flight(i)) continue;
    pool[i].duration_ns = pool[i].error_ns = -1;
    if (pool[i].ticket != 0) given_up_.fetch_add(1, std::memory_order_relaxed);
    pool.note_read(i);
  }
}

void EventTimer::release(EventPool& pool, std::uint32_t index, std::uint32_t context_uid) noexcept {
  if (context_uid != 0 && pool.uid() == context_uid) return pool.give_back(index);
  pool[index] = {};
  pool.give_back_empty(index);
}

EventTimer::Counts EventTimer::counts() const noexcept {
  return {begun_.load(std::memory_order_relaxed), no_pair_.load(std::memory_order_relaxed),
          given_up_.load(std::memory_order_relaxed), cost_ns_.load(std::memory_order_relaxed), budget_.every()};
}

}  // namespace gpuflight::capture
