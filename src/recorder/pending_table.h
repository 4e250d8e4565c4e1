// Work that was asked of the GPU and of which its times are not known yet, by correlation id: open addressing, so that
// an entry costs 40 bytes and no allocation of its own.
//
// Threads: the recorder thread only. Blocks: no. Allocates when it grows, up to kMostEntries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "event/ids.h"

namespace gpuflight::recorder {

struct PendingWork {
  enum class State : std::uint8_t {
    kFree,
    kHeld,        // its line is not written, its record stands in `chunk`
    kWritten,     // its line had to be written without times
    kSummarised,  // it has no line
    kUntimed,     // its line is written; its times, if they come, are not wanted
  };
  enum class Kind : std::uint8_t { kKernel, kCopy, kFill, kGraph };
  std::uint32_t correlation = 0;
  std::uint32_t chunk = 0;
  std::uint16_t index = 0;  // of the record in the chunk
  std::int16_t device = -1;
  State state = State::kFree;
  Kind kind = Kind::kKernel;
  bool told = false;  // as pending
  std::uint32_t stream = 0;
  std::uint32_t config = 0;
  event::Seq seq;
  std::int64_t launch_ns = 0;
};
static_assert(sizeof(PendingWork) == 40);

class PendingTable {
 public:
  static constexpr std::size_t kMostEntries = std::size_t{1} << 18;

  // False: no memory, or too many. Equal correlations may stand side by side: one call can launch on several devices.
  bool add(const PendingWork& work) noexcept {
    if (2 * (used_ + 1) > slots_.size() && !grow()) {
      if (used_ + 1 >= slots_.size()) return false;
    }
    if (used_ >= kMostEntries) return false;
    std::size_t at = home(work.correlation);
    while (slots_[at].state != PendingWork::State::kFree) at = (at + 1) & mask();
    slots_[at] = work;
    ++used_;
    return true;
  }

  // The entry of `correlation` and `kind`, of `device` where there are several; null: none. Valid until the next add or
  // erase.
  PendingWork* find(std::uint32_t correlation, PendingWork::Kind kind, std::int32_t device) noexcept {
    if (used_ == 0) return nullptr;
    PendingWork* any = nullptr;
    for (std::size_t at = home(correlation); slots_[at].state != PendingWork::State::kFree; at = (at + 1) & mask()) {
      if (slots_[at].correlation != correlation || slots_[at].kind != kind) continue;
      if (slots_[at].device == device) return &slots_[at];
      if (any == nullptr) any = &slots_[at];
    }
    return any;
  }
  PendingWork* find(std::uint32_t correlation, event::Seq seq) noexcept {
    if (used_ == 0) return nullptr;
    for (std::size_t at = home(correlation); slots_[at].state != PendingWork::State::kFree; at = (at + 1) & mask()) {
      if (slots_[at].correlation == correlation && slots_[at].seq == seq) return &slots_[at];
    }
    return nullptr;
  }

  void erase(PendingWork* work) noexcept {
    // What stands behind it moves up, so that no search ends at a hole before its goal.
    std::size_t hole = static_cast<std::size_t>(work - slots_.data());
    for (std::size_t at = (hole + 1) & mask(); slots_[at].state != PendingWork::State::kFree; at = (at + 1) & mask()) {
      const std::size_t from_home = (at - home(slots_[at].correlation)) & mask();
      if (from_home >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole].state = PendingWork::State::kFree;
    --used_;
  }

  std::size_t size() const noexcept { return used_; }
  std::size_t bytes() const noexcept { return slots_.capacity() * sizeof(PendingWork); }

 private:
  std::size_t mask() const noexcept { return slots_.size() - 1; }
  std::size_t home(std::uint32_t correlation) const noexcept {
    return (correlation * std::uint64_t{0x9E3779B97F4A7C15} >> 32) & mask();
  }
  bool grow() noexcept {
    const std::size_t larger = slots_.empty() ? 1024 : 2 * slots_.size();
    if (larger > 4 * kMostEntries) return false;
    try {
      std::vector<PendingWork> old(larger);
      old.swap(slots_);
      used_ = 0;
      for (const PendingWork& work : old) {
        if (work.state == PendingWork::State::kFree) continue;
        std::size_t at = home(work.correlation);
        while (slots_[at].state != PendingWork::State::kFree) at = (at + 1) & mask();
        slots_[at] = work;
        ++used_;
      }
      return true;
    } catch (...) {
      return false;
    }
  }

  std::vector<PendingWork> slots_;  // a power of two
  std::size_t used_ = 0;
};

}  // namespace gpuflight::recorder
