// When a launch began that shares the time of one before it (kFlagTimeShared): between that and the next of the thread
// whose time was read. It is taken to be one of equal steps between the two, not more than twice as long as those before
// and of kBurstStepNs at most: a longer time has a pause in it, and nobody knows where.
//
// Threads: the one that takes the records out of the ring, or anyone on a copy of them. Blocks, allocates: no.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "event/plausible_time.h"
#include "flight/layout.h"

namespace gpuflight::flight {

inline bool shares_time(const Record& record) noexcept { return (record.flags & kFlagTimeShared) != 0; }

// Puts the time into launch_ns, and into call_ns how far it may be off; both stay as they are where that is not known, and
// once it has been done. `record_at`: the record of that place in the chunk, of which `count` are whole; the one at `at`
// has come back. `now`: asked where no time was read behind it, by when it had; null: not known.
template <class RecordAt, class Now>
void settle_shared_time(RecordAt&& record_at, std::uint32_t at, std::uint32_t count, Now&& now) noexcept {
  Record& record = record_at(at);
  if (!shares_time(record) || record.call_ns != kTimeNotKnown) return;
  std::uint32_t steps_before = 1;
  while (steps_before <= at && shares_time(record_at(at - steps_before))) ++steps_before;
  const auto most_step = [&]() -> std::int64_t {
    if (steps_before >= at) return kBurstStepNs;  // none before in this chunk
    const std::uint32_t read = at - steps_before;
    std::uint32_t steps = 1;
    while (steps < read && shares_time(record_at(read - steps))) ++steps;
    const auto took_ns = event::elapsed(record_at(read - steps).launch_ns, record_at(read).launch_ns);
    return std::max<std::int64_t>(2 * took_ns.value_or(kBurstStepNs) / steps, 1);
  };
  // Of what has not come back only the time is looked at: its flags may still change.
  const auto is_back = [&](std::uint32_t place) {
    return record_at(place).phase.load(std::memory_order_acquire) != static_cast<std::uint8_t>(RecordPhase::kEntered);
  };
  std::uint32_t next = at + 1;
  while (next < count && is_back(next) && shares_time(record_at(next))) ++next;
  const std::int64_t from_ns = record.launch_ns;
  const bool is_read = next < count && record_at(next).launch_ns != from_ns;
  const std::optional<std::int64_t> between_ns =
      event::elapsed(from_ns, is_read ? std::optional(record_at(next).launch_ns) : now());
  if (!between_ns) return;
  const std::int64_t span_ns = std::max<std::int64_t>(*between_ns, 0);
  const std::int64_t step_ns = std::min({span_ns / (steps_before + (next - at)), kBurstStepNs, most_step()});
  const std::int64_t after_ns = step_ns * steps_before;
  record.launch_ns = from_ns + after_ns;
  record.call_ns = std::max(after_ns, span_ns - after_ns);
}

}  // namespace gpuflight::flight
