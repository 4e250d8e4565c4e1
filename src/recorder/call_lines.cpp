#include "recorder/call_lines.h"

#include <algorithm>
#include <string>

#include "flight/record_event.h"

namespace gpuflight::recorder {

using flight::RecordKind;
using flight::RecordPhase;

void CallLines::look_ahead(std::uint32_t slot, std::uint32_t chunk, std::uint32_t taken) noexcept {
  try {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
  } catch (...) {
    return;  // no memory: the lines go without
  }
  Slot& own = slots_[slot];
  if (chunk == flight::kNoChunk) {  // nothing of it has been taken yet
    if (const flight::Ring* const ring = rings_.ring(slot)) chunk = rings_.first_chunk(*ring);
  }
  while (chunk != flight::kNoChunk) {
    const flight::Chunk& held = rings_.chunk(chunk);
    const std::uint64_t first = rings_.first_counter(chunk);
    const std::uint32_t committed =
        std::min(held.header.committed.load(std::memory_order_acquire), flight::kRecordsPerChunk);
    if (own.looked_at > first + taken) {
      taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(own.looked_at - first, flight::kRecordsPerChunk));
    }
    for (; taken < committed; ++taken) {
      const flight::Record& record = held.records[taken];
      const auto phase = static_cast<RecordPhase>(record.phase.load(std::memory_order_acquire));
      if (phase == RecordPhase::kEntered) return;
      own.looked_at = first + taken + 1;
      if (static_cast<RecordKind>(record.kind) == RecordKind::kApiCall) {
        note(record, phase, event::Seq(slot, first + taken), own);
      }
    }
    if (taken < flight::kRecordsPerChunk) return;
    chunk = rings_.next_chunk(chunk);
    taken = 0;
  }
}

void CallLines::note(const flight::Record& record, RecordPhase phase, event::Seq seq, Slot& slot) noexcept {
  const event::ApiCall call = flight::call_of(record);
  const event::ApiKind kind = flight::kind_of_call(record);
  if (!flight::is_memory_call(kind)) return;
  Pending pending;
  pending.seq = seq;
  MemoryLedger::Change& change = pending.change;
  change.alloc = kind == event::ApiKind::kAlloc;
  change.kind = flight::allocation_kind(call);
  change.happened = phase == RecordPhase::kReturned && record.status == 0 && (record.flags & flight::kFlagCaptured) == 0;
  change.address = flight::handle_of(record);
  change.bytes = flight::bytes_of(record);
  change.owner = flight::owner_of(record);
  change.time_ns = record.launch_ns + (change.alloc ? record.call_ns : 0);
  // The clock may have been set back by a fraction of a microsecond; a thread's own order is known.
  slot.newest_ns = change.time_ns = std::max(change.time_ns, slot.newest_ns);
  const event::StreamInfo* const stream = streams_.row(record.stream);
  change.device = flight::to_memory_event(record, phase, seq, stream).device;
  if (changes_.size() >= kMaxChanges) settle();
  try {
    changes_.push_back(pending);
  } catch (...) {
  }
}

void CallLines::see(const flight::Record& record, RecordPhase phase, event::Seq seq) noexcept {
  if (seq.slot() >= slots_.size() || slots_[seq.slot()].looked_at > seq.counter()) return;
  slots_[seq.slot()].looked_at = seq.counter() + 1;
  note(record, phase, seq, slots_[seq.slot()]);
}

void CallLines::settle() noexcept {
  // Not std::stable_sort, which allocates. Of one thread's calls at one time the earlier comes first.
  std::sort(changes_.begin(), changes_.end(), [](const Pending& a, const Pending& b) {
    return a.change.time_ns != b.change.time_ns ? a.change.time_ns < b.change.time_ns : a.seq < b.seq;
  });
  for (const Pending& pending : changes_) remember(pending.seq, memory_.apply(pending.change));
  changes_.clear();
  if (memory_.untracked() == 0 || said_) return;
  said_ = true;
  try {
    notices_.post(event::Severity::kWarning, "memory_table_full",
                  "more than " + std::to_string(MemoryLedger::kMaxLive) +
                      " allocations at a time: of those beyond, frees have no size and totals lack them");
  } catch (...) {
  }
}

void CallLines::remember(event::Seq seq, const MemoryLedger::Result& result) noexcept {
  try {
    while (remembered_.size() >= kMaxResults) {
      results_.erase(remembered_.front());
      remembered_.pop_front();
    }
    remembered_.push_back(seq.value);
    results_.emplace(seq.value, result);
  } catch (...) {
  }
}

bool CallLines::append(log::Buffer& out, std::string_view scope, const flight::Record& record, RecordPhase phase,
                       event::Seq seq, bool late) noexcept {
  switch (flight::kind_of_call(record)) {
    case event::ApiKind::kAlloc:
    case event::ApiKind::kFree:
      return append_memory(out, scope, record, phase, seq, late);
    case event::ApiKind::kEdge: {
      event::StreamEdge edge = flight::to_stream_edge(record, phase, seq);
      edge.late = late;
      return log::append_stream_edge(out, scope, edge);
    }
    default: {
      event::ApiEvent call = flight::to_api_event(record, phase, seq);
      call.late = late;
      return log::append_api_event(out, scope, call);
    }
  }
}

bool CallLines::append_memory(log::Buffer& out, std::string_view scope, const flight::Record& record, RecordPhase phase,
                              event::Seq seq, bool late) noexcept {
  if (!changes_.empty()) settle();
  const auto result = results_.find(seq.value);
  event::MemoryEvent memory = flight::to_memory_event(record, phase, seq, streams_.row(record.stream));
  memory.late = late;
  if (result != results_.end()) {
    const MemoryLedger::Result& told = result->second;
    memory.kind = told.kind;
    memory.bytes = told.bytes;
    memory.device = told.device;
    if (told.pool) memory.pool = told.pool;
    memory.total_bytes = told.total_bytes;
    memory.peak_bytes = told.peak_bytes;
    results_.erase(result);
  }
  return log::append_memory_event(out, scope, memory);
}

}  // namespace gpuflight::recorder
