#include "capture/activity_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <new>
#include <utility>

namespace gpuflight::capture {
namespace {

constexpr std::size_t kPageBytes = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// CUPTI runs us inside the host's calls.
class KeepErrno {
 public:
  KeepErrno() noexcept : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }

 private:
  const int saved_;
};

}  // namespace

// So many records took so long; how many to try next. Half way, in terms of the logarithm: CUPTI may ask for a buffer
// ahead of its use, and what is seen is then the rate of the one before. The whole way would swing for ever.
std::uint32_t BufferRates::towards(std::uint32_t from, std::int64_t took_ns) const noexcept {
  const auto took = static_cast<double>(std::max<std::int64_t>(took_ns, 1));
  const double factor = std::sqrt(static_cast<double>(held_ns_) / took);
  const double wanted = from * std::min(factor, static_cast<double>(kMostGrowth));
  return std::clamp(static_cast<std::uint32_t>(std::lround(std::min<double>(wanted, capacity_))), kFewest, capacity_);
}

// Buffers that do not come back (beside a kernel that hangs CUPTI gives none of them) tell nothing of how their work ran:
// after a few of them what is known is taken for out of date, else each would hold a handful of records only.
std::uint32_t BufferRates::allowed(std::uint32_t runs, const Slot& slot) const noexcept {
  const std::uint32_t unheard =
      slot.serial.load(std::memory_order_relaxed) - slot.heard.load(std::memory_order_relaxed);
  if (unheard <= kUnheard) return runs;
  return std::min(capacity_, runs << std::min(unheard - kUnheard, 16u));
}

BufferRates::Grant BufferRates::grant(std::uint64_t thread, std::int64_t now_ns) noexcept {
  // Thread handles are addresses of equal low bits: the product's upper bits tell them apart.
  const auto index = static_cast<std::uint32_t>((thread * 0x9e3779b97f4a7c15u) >> 56) % kSlots;
  Slot& slot = slots_[index];
  std::uint32_t records = kFirst;
  if (slot.thread.load(std::memory_order_relaxed) == thread) {
    const std::uint32_t given = slot.granted.load(std::memory_order_relaxed);
    const std::uint32_t came = slot.filled.load(std::memory_order_relaxed);
    records = towards(came != 0 ? came : given, now_ns - slot.asked_ns.load(std::memory_order_relaxed));
    const std::uint32_t runs = slot.runs.load(std::memory_order_relaxed);
    if (runs != 0) records = std::min(records, allowed(runs, slot));
  } else {
    slot.runs.store(0, std::memory_order_relaxed);
  }
  const std::uint32_t serial = slot.serial.fetch_add(1, std::memory_order_relaxed) + 1;
  slot.thread.store(thread, std::memory_order_relaxed);
  slot.asked_ns.store(now_ns, std::memory_order_relaxed);
  slot.granted.store(records, std::memory_order_relaxed);
  slot.filled.store(0, std::memory_order_relaxed);
  return {records < capacity_ ? records : 0, index, serial};
}

void BufferRates::filled(const Grant& grant, std::uint32_t records) noexcept {
  Slot& slot = slots_[grant.slot % kSlots];
  if (slot.serial.load(std::memory_order_relaxed) != grant.serial) return;
  slot.filled.store(std::max(records, 1u), std::memory_order_relaxed);
}

void BufferRates::ran(const Grant& grant, std::uint32_t records, std::int64_t start_ns, std::int64_t end_ns) noexcept {
  Slot& slot = slots_[grant.slot % kSlots];
  // Time in which the GPU had nothing of this thread's to do, before, is not theirs.
  const std::int64_t from = std::max(start_ns, slot.ended_ns.load(std::memory_order_relaxed));
  slot.ended_ns.store(end_ns, std::memory_order_relaxed);
  slot.runs.store(towards(records, end_ns - from), std::memory_order_relaxed);
  slot.heard.store(slot.serial.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

ActivityBuffers::ActivityBuffers(std::size_t buffer_bytes, std::size_t memory_bound, RecordCounter counter) noexcept
    : mapped_bytes_(whole_pages(std::max(buffer_bytes, kPageBytes))),
      memory_bound_(memory_bound),
      counter_(counter),
      rates_(static_cast<std::uint32_t>((mapped_bytes_ - sizeof(Buffer)) / kRecordBytes)) {}

// Buffers that CUPTI still holds stay mapped: it may write to them.
ActivityBuffers::~ActivityBuffers() {
  for (auto& slot : ready_) {
    if (Buffer* buffer = slot.exchange(nullptr)) unmap(buffer);
  }
  for (auto& slot : reserve_) {
    if (Buffer* buffer = slot.exchange(nullptr)) unmap(buffer);
  }
  for (Buffer* buffer = take_completed(); buffer != nullptr;) unmap(std::exchange(buffer, buffer->next));
}

bool ActivityBuffers::reserve() noexcept {
  for (auto& slot : reserve_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    Buffer* buffer = map(true);  // untouched pages would be missing when they are needed
    if (buffer == nullptr) return false;
    slot.store(buffer, std::memory_order_release);
  }
  replenish();
  return true;
}

ActivityBuffers::Buffer* ActivityBuffers::map(bool touch) noexcept {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (touch ? MAP_POPULATE : 0);
  void* memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  bytes_held_.fetch_add(mapped_bytes_, std::memory_order_relaxed);
  Buffer* buffer = new (memory) Buffer;
  buffer->mapped_bytes = mapped_bytes_;
  return buffer;
}

void ActivityBuffers::unmap(Buffer* buffer) noexcept {
  bytes_held_.fetch_sub(mapped_bytes_, std::memory_order_relaxed);
  munmap(buffer, mapped_bytes_);
}

template <std::size_t kCount>
ActivityBuffers::Buffer* ActivityBuffers::take_one(std::array<std::atomic<Buffer*>, kCount>& slots,
                                                   std::size_t from) noexcept {
  for (std::size_t i = 0; i < kCount; ++i) {
    std::atomic<Buffer*>& slot = slots[(from + i) % kCount];
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    if (Buffer* buffer = slot.exchange(nullptr, std::memory_order_acquire)) return buffer;
  }
  return nullptr;
}

ActivityBuffers::Buffer* ActivityBuffers::hand_out(std::uint64_t thread, std::int64_t now_ns) noexcept {
  const KeepErrno keep;
  requested_.fetch_add(1, std::memory_order_relaxed);
  Buffer* buffer = take_ready(ready_hint_.fetch_add(1, std::memory_order_relaxed));
  if (buffer == nullptr && bytes_held() + mapped_bytes_ > 2 * memory_bound_) buffer = take_back();
  if (buffer == nullptr) buffer = map(false);
  if (buffer == nullptr) buffer = take_one(reserve_, 0);
  if (buffer == nullptr) return nullptr;
  const std::ptrdiff_t out = out_bytes_.fetch_add(static_cast<std::ptrdiff_t>(mapped_bytes_), std::memory_order_relaxed);
  if (out + static_cast<std::ptrdiff_t>(mapped_bytes_) > static_cast<std::ptrdiff_t>(memory_bound_)) {
    over_bound_.fetch_add(1, std::memory_order_relaxed);
  }
  buffer->grant = rates_.grant(thread, now_ns);
  return buffer;
}

// One that is complete and not read yet, and what is in it with it.
ActivityBuffers::Buffer* ActivityBuffers::take_back() noexcept {
  Buffer* const newest = completed_.exchange(nullptr, std::memory_order_acquire);
  if (newest == nullptr) return nullptr;
  if (Buffer* const rest = std::exchange(newest->next, nullptr)) {
    Buffer* oldest = rest;
    while (oldest->next != nullptr) oldest = oldest->next;
    Buffer* head = completed_.load(std::memory_order_relaxed);
    do {
      oldest->next = head;
    } while (!completed_.compare_exchange_weak(head, rest, std::memory_order_release, std::memory_order_relaxed));
  }
  newest->complete = false;
  complete_bytes_.fetch_sub(newest->mapped_bytes, std::memory_order_relaxed);
  const RecordCounts lost = counter_.count != nullptr
                                ? counter_.count(counter_.context, newest->data(), newest->valid_bytes)
                                : RecordCounts{newest->valid_bytes / kRecordBytes, 0};
  unread_single_.fetch_add(lost.single, std::memory_order_relaxed);
  unread_nodes_.fetch_add(lost.nodes, std::memory_order_relaxed);
  newest->valid_bytes = 0;
  return newest;
}

void ActivityBuffers::complete(std::uint8_t* data, std::size_t valid_bytes) noexcept {
  if (data == nullptr) return;
  Buffer* buffer = reinterpret_cast<Buffer*>(data) - 1;
  buffer->valid_bytes = std::min(valid_bytes, buffer->capacity());
  out_bytes_.fetch_sub(static_cast<std::ptrdiff_t>(buffer->mapped_bytes), std::memory_order_relaxed);
  buffer->complete = true;
  complete_bytes_.fetch_add(buffer->mapped_bytes, std::memory_order_relaxed);
  rates_.filled(buffer->grant, static_cast<std::uint32_t>(buffer->valid_bytes / kRecordBytes));
  Buffer* head = completed_.load(std::memory_order_relaxed);
  do {
    buffer->next = head;
  } while (!completed_.compare_exchange_weak(head, buffer, std::memory_order_release, std::memory_order_relaxed));
}

ActivityBuffers::Buffer* ActivityBuffers::take_completed() noexcept {
  Buffer* newest = completed_.exchange(nullptr, std::memory_order_acquire);
  Buffer* oldest = nullptr;
  while (newest != nullptr) {
    Buffer* const older = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = older;
  }
  return oldest;
}

// A page that is mapped anew costs the launching thread a fault, and unmapping one interrupts it: while records come
// faster than they are read, buffers go round up to the bound of both kinds. trim() gives back what was too much.
void ActivityBuffers::recycle(Buffer* buffer) noexcept {
  if (std::exchange(buffer->complete, false)) complete_bytes_.fetch_sub(buffer->mapped_bytes, std::memory_order_relaxed);
  buffer->valid_bytes = 0;
  if (bytes_held() > 2 * memory_bound_ || !put_ready(buffer)) unmap(buffer);
}

bool ActivityBuffers::put_ready(Buffer* buffer) noexcept {
  for (std::size_t i = 0; i < kReadySlots; ++i) {
    std::atomic<Buffer*>& slot = ready_[put_hint_++ % kReadySlots];
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    slot.store(buffer, std::memory_order_release);  // only this thread fills slots
    ready_count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

ActivityBuffers::Buffer* ActivityBuffers::take_ready(std::size_t from) noexcept {
  if (ready_count_.load(std::memory_order_relaxed) <= 0) return nullptr;
  Buffer* const buffer = take_one(ready_, from);
  if (buffer != nullptr) ready_count_.fetch_sub(1, std::memory_order_relaxed);
  return buffer;
}

void ActivityBuffers::replenish() noexcept {
  unused_ = std::min(unused_, ready());
  for (auto& slot : reserve_) {  // first what the system's next shortage needs
    if (slot.load(std::memory_order_relaxed) == nullptr) slot.store(take_ready(put_hint_), std::memory_order_release);
  }
  while (ready() < kReadyAtLeast && bytes_held() + mapped_bytes_ <= memory_bound_) {
    Buffer* const buffer = map(true);  // touched here, so that no launching thread has to take the page faults
    if (buffer == nullptr) break;
    if (put_ready(buffer)) continue;
    unmap(buffer);
    break;
  }
  if (--until_trim_ == 0) trim();
}

// Half of what nobody needed since the last time.
void ActivityBuffers::trim() noexcept {
  std::size_t surplus = unused_ > kReadyAtLeast ? (unused_ - kReadyAtLeast + 1) / 2 : 0;
  for (; surplus != 0; --surplus) {
    Buffer* const buffer = take_ready(put_hint_);
    if (buffer == nullptr) break;
    unmap(buffer);
  }
  unused_ = SIZE_MAX;
  until_trim_ = kTrimEvery;
}

}  // namespace gpuflight::capture
