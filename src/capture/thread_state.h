// What one app thread owns in the recorder: its ring, its caches, its open launches, its scopes. Reached by one
// initial-exec thread-local pointer; freed by a pthread key when the thread ends. What every launch needs stands on the
// first cache line.
//
// Threads: its own only. Creation (first event of a thread) allocates and locks; use on a hit does neither.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "event/ids.h"
#include "event/kernel_config.h"
#include "capture/scope_stack.h"
#include "flight/ring.h"

namespace gpuflight::capture {

class EventPool;
class LaunchRecorder;

// Key of the launch cache: what a configuration depends on and the driver's handles for it.
struct LaunchKey {
  const void* function = nullptr;
  std::uint32_t context_uid = 0;
  std::uint32_t block_x = 0, block_y = 0, block_z = 0;
  std::uint32_t dyn_shared_bytes = 0;
  std::uint16_t cluster_x = 0, cluster_y = 0, cluster_z = 0;
  std::int16_t carveout = -1;
  std::uint32_t flags = 0;
  std::uint32_t unused = 0;
  bool operator==(const LaunchKey&) const = default;
};
static_assert(sizeof(LaunchKey) == 48);

struct alignas(64) ThreadState {
  static constexpr std::size_t kLaunchSlots = 256;  // two ways each
  static constexpr std::size_t kStreamSlots = 64;
  static constexpr std::size_t kGraphSlots = 16;
  static constexpr std::size_t kMaxOpen = 64;    // launches of one multi-device call
  static constexpr std::int8_t kNoBurst = -8;

  struct alignas(64) LaunchEntry {
    LaunchKey key;
    std::uint32_t config = 0;
    bool valid = false;
    bool plain = false;  // no cluster, no attribute (what cuLaunchKernel can say), and its configuration known
    std::uint32_t until_timed = 0;  // launches up to the one that events are put around; 0: not counted (EventTimer)
  };
  static_assert(sizeof(LaunchEntry) == 64);
  static constexpr std::int64_t kNeverMarked = INT64_MIN / 2;  // long before any recording began
  struct alignas(64) StreamEntry {
    const void* stream = nullptr;
    std::uint32_t context_uid = 0;
    std::uint32_t kind = 0;  // stream_kind; 0: empty
    std::uint32_t id = 0;
    std::uint32_t track = 0;       // of MarkerBoard, + 1; 0: not asked for yet
    std::uint32_t unmarked = 0;    // launches since the last mark
    std::uint32_t sure_at = 0;     // HotPage::doubts when it was last known not to be captured
    std::int64_t marked_ns = kNeverMarked;
    bool due = false;              // a mark was set before the open launch: one goes behind it too
    bool programmatic = false;     // programmatic dependent launches: nothing may come between two kernels
  };
  // The launch under way, if events are put around it (EventTimer).
  struct TimedLaunch {
    EventPool* pool = nullptr;
    std::uint32_t context_uid = 0;
    std::uint32_t pair = 0;
    const void* stream = nullptr;
    bool per_thread = false;
    std::int64_t began_ns = 0;
  };
  struct GraphEntry {
    const void* exec = nullptr;
    std::uint32_t id = 0;
    std::uint32_t contents = 0;
  };

  LaunchRecorder* owner = nullptr;  // the recorder that made it; another one makes its own
  flight::Ring* ring = nullptr;     // null: all slots were taken
  StreamEntry* open_stream = nullptr;  // of the open launch, if a mark may follow it
  bool inside = false;              // the driver calls now running are our own
  std::uint8_t open_count = 0;
  bool marks = false;               // launches are followed by marks
  std::uint8_t sample = 0;          // counts launches whose time is read, to time our own cost now and then
  std::int8_t burst = kNoBurst;     // launch_hit.h
  std::uint32_t burst_generation = 0;
  std::uint32_t scope_now = 0;  // scopes.path(), for the hot path
  std::uint32_t config_generation = 0;
  std::uint32_t stream_generation = 0;
  std::int64_t read_ns = kNeverMarked;  // when the last launch that was a hit and whose time was read began
  std::array<flight::Record*, kMaxOpen> open{};
  std::int64_t sampled_enter_ns = -1;
  std::uint32_t tid = 0;
  bool missed = false;  // the launch being recorded was no cache hit
  std::uint64_t streams_known = 0;  // a bit for each of `streams` that is not empty
  std::uint32_t graph_generation = 0;
  ScopeStack scopes;
  std::unique_ptr<ScopeCache> scope_cache;  // null until the first scope
  std::array<std::array<LaunchEntry, 2>, kLaunchSlots> launches{};
  std::array<StreamEntry, kStreamSlots> streams{};
  std::array<GraphEntry, kGraphSlots> graphs{};
  std::uint32_t device_context = 0;  // context whose device is known; ids are not used twice
  std::int32_t device = -1;

  // Of sources that are not told ids of contexts: the current one when it was last looked up.
  const void* context = nullptr;
  std::uint32_t context_uid = 0;
  std::uint32_t context_generation = 0;

  TimedLaunch timed;

  // Our own driver calls run, or a launch is open.
  bool busy() const noexcept {
    static_assert(offsetof(ThreadState, open_count) == offsetof(ThreadState, inside) + 1);
    std::uint16_t both;
    std::memcpy(&both, &inside, sizeof both);
    return both != 0;
  }

  // Two neighbouring numbers as one, so that they are compared at once.
  static constexpr std::uint64_t pair_of(std::uint32_t first, std::uint32_t second) noexcept {
    return std::endian::native == std::endian::little ? first | std::uint64_t{second} << 32
                                                      : second | std::uint64_t{first} << 32;
  }
  static std::uint64_t pair_at(const std::uint32_t& first) noexcept {
    std::uint64_t both;
    std::memcpy(&both, &first, sizeof both);
    return both;
  }

  // Where a launch is looked up; the common, plain ones differ in these.
  static std::size_t launch_slot(const void* function, std::uint32_t context_uid, std::uint32_t block_x,
                                 std::uint32_t block_y, std::uint32_t block_z, std::uint32_t dyn_shared_bytes) noexcept {
    std::uint64_t h = reinterpret_cast<std::uint64_t>(function) ^ pair_of(context_uid, block_x);
    h ^= std::rotl(pair_of(block_y, block_z), 20) ^ std::uint64_t{dyn_shared_bytes} << 29;
    return static_cast<std::size_t>((h * 0x9E3779B97F4A7C15ull) >> 56) % kLaunchSlots;
  }
  // A default stream is one of each context's; any other is of one context, and found without it.
  static constexpr bool is_default(const void* stream) noexcept {
    constexpr std::uintptr_t kLast = 2;  // CU_STREAM_PER_THREAD
    return reinterpret_cast<std::uintptr_t>(stream) <= kLast;
  }
  static std::size_t stream_slot(const void* stream, std::uint32_t context_uid, std::uint32_t kind) noexcept {
    const std::uintptr_t of_context = is_default(stream) ? context_uid : 0;
    return ((reinterpret_cast<std::uintptr_t>(stream) >> 4) ^ of_context ^ kind) % kStreamSlots;
  }

  static constexpr std::uint32_t stream_kind(bool per_thread_default) noexcept { return per_thread_default ? 2 : 1; }
  // Null: not known.
  StreamEntry* find_stream(const void* stream, std::uint32_t context_uid, std::uint32_t kind) noexcept {
    StreamEntry& entry = streams[stream_slot(stream, context_uid, kind)];
    return entry.kind == kind && entry.stream == stream && entry.context_uid == context_uid ? &entry : nullptr;
  }
  void empty_stream(std::size_t slot) noexcept {
    streams_known |= std::uint64_t{1} << slot;
    streams[slot] = {};
  }
  // Those that are not empty: most threads use few, and each is a cache line.
  template <class Visit>
  void each_stream(Visit&& visit) noexcept {
    static_assert(kStreamSlots == 64);
    for (std::uint64_t left = streams_known; left != 0; left &= left - 1) visit(streams[std::countr_zero(left)]);
  }

  // In place: a whole new array would first stand on the host's stack, which may be small.
  void forget_launches() noexcept {
    for (auto& ways : launches) {
      for (LaunchEntry& way : ways) way.valid = way.plain = false;
    }
  }
  void forget_streams() noexcept {
    each_stream([](StreamEntry& entry) { entry.kind = 0; });
    streams_known = 0;
  }
  void forget_graphs() noexcept {
    for (auto& entry : graphs) entry.id = 0;
  }
};

static_assert(offsetof(ThreadState, open) + sizeof(flight::Record*) == 64);

// One pointer in the static TLS block: reached without a call, and small enough for a library that is dlopened.
extern constinit thread_local ThreadState* t_thread_state __attribute__((tls_model("initial-exec")));

// The calling thread's state, or nullptr before its first event.
inline ThreadState* this_thread_state() noexcept { return t_thread_state; }

// Makes the state for `owner`, replacing one of another owner (inherited through fork). Null: no memory.
ThreadState* make_thread_state(LaunchRecorder& owner, flight::RingSet& rings) noexcept;

// The calling thread has no state any more; in a forked child, whose inherited one points into the parent's rings.
void forget_thread_state() noexcept;

}  // namespace gpuflight::capture
