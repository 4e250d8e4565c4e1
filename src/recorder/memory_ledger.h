// What the program has allocated, as far as it was seen: by address what it was, and how much of each kind, device and
// pool there is now and was at most.
//
// Threads: the recorder thread. Allocates, bounded by kMaxLive and kMaxAccounts; never throws.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "event/activity.h"

namespace gpuflight::recorder {

class MemoryLedger {
 public:
  static constexpr std::size_t kMaxLive = 1'000'000;   // allocations at a time; about 60 bytes each
  static constexpr std::size_t kMaxAccounts = 4'096;   // of kind, device and pool
  static constexpr std::size_t kMaxUnborn = 65'536;

  // What a call did, in the order of time: an allocation when it has returned, a free when it was called, since from
  // then on another thread may be given the same address.
  struct Change {
    std::int64_t time_ns = 0;
    event::AllocationKind kind = event::kUnknownAllocation;  // of a free: as far as the call tells
    bool alloc = false;
    bool happened = false;  // false: the call failed, or did nothing yet (captured into a graph)
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // of an allocation; 0: not known
    std::uint64_t owner = 0;  // pool, or handle of the physical memory that is mapped
    std::int32_t device = -1;
  };
  // What the line of that call says beside what its record tells.
  struct Result {
    event::AllocationKind kind = event::kUnknownAllocation;
    std::optional<std::uint64_t> bytes, pool;
    std::optional<std::uint64_t> total_bytes, peak_bytes;
    std::int32_t device = -1;
  };
  Result apply(const Change& change) noexcept;

  std::size_t live() const noexcept;
  std::uint64_t untracked() const noexcept { return untracked_; }  // allocations that found no room here

 private:
  // Addresses of one kind do not collide with those of another within a space.
  enum Space : std::size_t { kMemory, kRegistered, kPhysical, kMappings, kSpaces };
  struct Live {
    std::uint64_t bytes;
    std::uint32_t account;
  };
  struct Account {
    event::AllocationKind kind;
    std::int32_t device;
    std::uint64_t pool;
    std::uint64_t total = 0, peak = 0;
  };
  static constexpr std::uint32_t kNoAccount = ~0u;

  static Space space_of(event::AllocationKind kind) noexcept;
  std::uint32_t account_of(event::AllocationKind kind, std::int32_t device, std::uint64_t pool);
  Result allocate(const Change& change);
  Result release(const Change& change);
  Result unmap(const Change& change);
  void remember_unborn(Space space, const Change& change);
  void take_out(const Live& live) noexcept;
  void tell(Result& result, std::uint32_t account) const noexcept;

  std::array<std::unordered_map<std::uint64_t, Live>, kMappings> live_;
  std::map<std::uint64_t, Live> mappings_;  // by address, since one call may unmap many
  std::vector<Account> accounts_;
  std::map<std::tuple<event::AllocationKind, std::int32_t, std::uint64_t>, std::uint32_t> account_ids_;
  // Frees of addresses not seen allocated: the allocation may be told of later (another thread's ring). By space and
  // address, when.
  std::map<std::pair<std::size_t, std::uint64_t>, std::int64_t> unborn_;
  std::uint64_t untracked_ = 0;
};

}  // namespace gpuflight::recorder
