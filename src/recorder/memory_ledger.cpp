#include "recorder/memory_ledger.h"

#include <algorithm>

namespace gpuflight::recorder {
namespace {

enum class Taken { kIn, kGone, kNoRoom };

}  // namespace

using event::AllocationKind;

MemoryLedger::Space MemoryLedger::space_of(AllocationKind kind) noexcept {
  switch (kind) {
    case AllocationKind::kRegistered: return kRegistered;
    case AllocationKind::kVirtual: return kPhysical;
    case AllocationKind::kMapping: return kMappings;
    default: return kMemory;
  }
}

MemoryLedger::Result MemoryLedger::apply(const Change& change) noexcept {
  try {
    return change.alloc ? allocate(change) : release(change);
  } catch (...) {  // no memory: the line goes without
    Result result;
    result.kind = change.kind;
    result.device = change.device;
    if (change.bytes != 0) result.bytes = change.bytes;
    if (change.alloc && change.happened) ++untracked_;
    return result;
  }
}

std::uint32_t MemoryLedger::account_of(AllocationKind kind, std::int32_t device, std::uint64_t pool) {
  const auto key = std::tuple(kind, device, pool);
  if (const auto known = account_ids_.find(key); known != account_ids_.end()) return known->second;
  if (accounts_.size() >= kMaxAccounts) return kNoAccount;
  const auto id = static_cast<std::uint32_t>(accounts_.size());
  accounts_.push_back({kind, device, pool});
  account_ids_.emplace(key, id);
  return id;
}

void MemoryLedger::take_out(const Live& live) noexcept {
  if (live.account != kNoAccount) accounts_[live.account].total -= live.bytes;
}

void MemoryLedger::tell(Result& result, std::uint32_t account) const noexcept {
  if (account == kNoAccount) return;
  result.total_bytes = accounts_[account].total;
  result.peak_bytes = accounts_[account].peak;
}

MemoryLedger::Result MemoryLedger::allocate(const Change& change) {
  const Space space = space_of(change.kind);
  Result result;
  result.kind = change.kind;
  result.device = change.device;
  if (change.bytes != 0) result.bytes = change.bytes;
  if (change.kind == AllocationKind::kMapping) {
    // Where it lies is told by the physical memory behind it.
    const auto physical = live_[kPhysical].find(change.owner);
    if (physical != live_[kPhysical].end() && physical->second.account != kNoAccount) {
      result.device = accounts_[physical->second.account].device;
    }
  }
  const std::uint64_t pool = change.kind == AllocationKind::kPool ? change.owner : 0;
  if (pool != 0) result.pool = pool;
  const std::uint32_t account = account_of(change.kind, result.device, pool);
  if (!change.happened || change.address == 0) {
    tell(result, account);
    return result;
  }
  const auto take_in = [&](auto& live) {
    const auto old = live.find(change.address);
    if (old == live.end() && live.size() >= kMaxLive) {
      ++untracked_;
      return Taken::kNoRoom;
    }
    const auto unborn = unborn_.find({space, change.address});
    const bool gone = unborn != unborn_.end() && unborn->second >= change.time_ns;
    if (unborn != unborn_.end()) unborn_.erase(unborn);
    if (gone) return Taken::kGone;
    if (old != live.end()) take_out(old->second);  // its free was not seen
    live[change.address] = {change.bytes, account};
    return Taken::kIn;
  };
  const Taken taken = space == kMappings ? take_in(mappings_) : take_in(live_[space]);
  if (taken == Taken::kNoRoom) return result;
  if (account == kNoAccount) return result;
  Account& sums = accounts_[account];
  sums.total += change.bytes;
  sums.peak = std::max(sums.peak, sums.total);
  tell(result, account);
  if (taken == Taken::kGone) sums.total -= change.bytes;
  return result;
}

MemoryLedger::Result MemoryLedger::release(const Change& change) {
  const Space space = space_of(change.kind);
  if (space == kMappings) return unmap(change);
  Result result;
  result.kind = change.kind;
  result.device = change.device;
  const auto found = live_[space].find(change.address);
  if (found == live_[space].end()) {
    remember_unborn(space, change);
    return result;
  }
  const Live live = found->second;
  if (live.bytes != 0) result.bytes = live.bytes;
  if (change.happened) {
    take_out(live);
    live_[space].erase(found);
  }
  if (live.account != kNoAccount) {
    const Account& account = accounts_[live.account];
    result.kind = account.kind;
    result.device = account.device;
    if (account.pool != 0) result.pool = account.pool;
  }
  tell(result, live.account);
  return result;
}

// All mappings that begin in the range.
MemoryLedger::Result MemoryLedger::unmap(const Change& change) {
  Result result;
  result.kind = change.kind;
  result.device = -1;  // of no single one: what is unmapped together may lie on several
  if (change.bytes != 0) result.bytes = change.bytes;
  const std::uint64_t end = change.address + std::max<std::uint64_t>(change.bytes, 1);
  auto it = mappings_.lower_bound(change.address);
  if (it == mappings_.end() || it->first >= end) {
    remember_unborn(kMappings, change);
    return result;
  }
  std::uint32_t account = it->second.account;
  while (it != mappings_.end() && it->first < end) {
    if (it->second.account != account) account = kNoAccount;
    if (change.happened) take_out(it->second);
    it = change.happened ? mappings_.erase(it) : std::next(it);
  }
  if (account != kNoAccount) result.device = accounts_[account].device;
  tell(result, account);
  return result;
}

void MemoryLedger::remember_unborn(Space space, const Change& change) {
  if (change.happened && change.address != 0 && unborn_.size() < kMaxUnborn) {
    unborn_[{space, change.address}] = change.time_ns;
  }
}

std::size_t MemoryLedger::live() const noexcept {
  std::size_t sum = mappings_.size();
  for (const auto& space : live_) sum += space.size();
  return sum;
}

}  // namespace gpuflight::recorder
