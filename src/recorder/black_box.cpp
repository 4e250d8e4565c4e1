#include "recorder/black_box.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace gpuflight::recorder {

bool BlackBox::describe(std::uint32_t chunk, Place& place) const {
  const std::uint32_t slot = rings_.owner(chunk);
  if (slot == 0) return false;  // never used
  const flight::Chunk& c = rings_.chunk(chunk);
  place.chunk = chunk;
  place.slot = slot;
  place.first_counter = rings_.first_counter(chunk);
  place.count = std::min(c.header.committed.load(std::memory_order_acquire), flight::kRecordsPerChunk);
  place.newest_ns = place.count > 0 ? c.records[place.count - 1].launch_ns : 0;
  return place.count > 0;
}

bool BlackBox::copy(const Place& place) {
  if (copy_ == nullptr) copy_ = std::make_unique<flight::Chunk>();
  std::memcpy(static_cast<void*>(copy_->records), rings_.chunk(place.chunk).records, sizeof copy_->records);
  std::atomic_thread_fence(std::memory_order_acquire);
  return rings_.owner(place.chunk) == place.slot && rings_.first_counter(place.chunk) == place.first_counter &&
         rings_.chunk(place.chunk).header.committed.load(std::memory_order_relaxed) >= place.from + place.count;
}

// By time: chunks of one slot follow each other in time too.
void BlackBox::sort(std::vector<Place>& places) {
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.newest_ns, a.slot, a.first_counter) < std::tie(b.newest_ns, b.slot, b.first_counter);
  });
}

std::uint64_t& BlackBox::dumped_until(std::uint32_t slot) {
  if (slot >= dumped_until_.size()) dumped_until_.resize(slot + 1);
  return dumped_until_[slot];
}

}  // namespace gpuflight::recorder
