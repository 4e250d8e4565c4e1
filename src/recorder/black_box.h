// The last events of a black box on their way to the log: which chunks of the flight file still hold records that have
// been summarised, newest first.
//
// Threads: the recorder thread. Allocates a list of chunks and one copy of a chunk while it runs. App threads go on
// writing meanwhile: a chunk that is used again while it is copied is left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "flight/ring.h"

namespace gpuflight::recorder {

class BlackBox {
 public:
  explicit BlackBox(const flight::RingSet& rings, std::uint32_t chunk_count)
      : rings_(rings), chunk_count_(chunk_count) {}

  // Calls emit(record, seq) for at most `most` of the newest records in order, each once in the life of this object.
  // `taken_until(slot)`: counters below it have been drained.
  template <class TakenUntil, class Emit>
  std::uint64_t dump(std::uint64_t most, TakenUntil&& taken_until, Emit&& emit) {
    std::vector<Place> places = find(taken_until);
    std::uint64_t found = 0;
    std::size_t first = places.size();
    while (first > 0 && found < most) found += places[--first].count;
    std::uint64_t skip = found > most ? found - most : 0;
    std::uint64_t emitted = 0;
    for (std::size_t i = first; i < places.size(); ++i) {
      const Place& place = places[i];
      if (!copy(place)) continue;
      for (std::uint32_t r = place.from; r < place.from + place.count; ++r) {
        if (skip > 0) {
          --skip;
          continue;
        }
        emit(copy_->records[r], event::Seq(place.slot, place.first_counter + r));
        ++emitted;
      }
      auto& until = dumped_until(place.slot);
      until = std::max(until, place.first_counter + place.from + place.count);
    }
    return emitted;
  }

 private:
  struct Place {
    std::uint32_t chunk, slot, from, count;
    std::uint64_t first_counter;
    std::int64_t newest_ns;
  };

  template <class TakenUntil>
  std::vector<Place> find(TakenUntil& taken_until) {
    std::vector<Place> places;
    for (std::uint32_t chunk = 0; chunk < chunk_count_; ++chunk) {
      Place place{};
      if (!describe(chunk, place)) continue;
      const std::uint64_t until = std::min(place.first_counter + place.count, taken_until(place.slot));
      const std::uint64_t from = std::max(place.first_counter, dumped_until(place.slot));
      if (from >= until) continue;
      place.from = static_cast<std::uint32_t>(from - place.first_counter);
      place.count = static_cast<std::uint32_t>(until - from);
      places.push_back(place);
    }
    sort(places);
    return places;
  }
  bool describe(std::uint32_t chunk, Place& place) const;
  bool copy(const Place& place);
  static void sort(std::vector<Place>& places);
  std::uint64_t& dumped_until(std::uint32_t slot);

  const flight::RingSet& rings_;
  const std::uint32_t chunk_count_;
  std::vector<std::uint64_t> dumped_until_;  // by slot
  std::unique_ptr<flight::Chunk> copy_;
};

}  // namespace gpuflight::recorder
