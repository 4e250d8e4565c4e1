// Calls beside launches as lines: sync_event, api_event, memory_event, stream_edge.
//
// What a free freed, and how much there is of a kind of memory, is told by a ledger that must see allocations and frees
// of all threads in the order of time, while lines are written ring by ring. So a round begins with a look ahead over
// what all rings hold; the lines then find their part by sequence number.
//
// Threads: the recorder thread. Allocates, bounded; never throws.
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/notice_board.h"
#include "capture/stream_table.h"
#include "flight/ring.h"
#include "log/encoder.h"
#include "recorder/memory_ledger.h"

namespace gpuflight::recorder {

class CallLines {
 public:
  // `notices`: where to say that more is allocated than can be followed.
  CallLines(const flight::RingSet& rings, const capture::StreamTable& streams, capture::NoticeBoard& notices)
      : rings_(rings), streams_(streams), notices_(notices) {}

  // Before a round takes anything: of each slot, from the record it goes on with. Then settle().
  void look_ahead(std::uint32_t slot, std::uint32_t chunk, std::uint32_t taken) noexcept;
  void settle() noexcept;
  // Of each record taken: what came back only after the look ahead.
  void see(const flight::Record& record, flight::RecordPhase phase, event::Seq seq) noexcept;

  // The record as its line. False: no memory for it.
  bool append(log::Buffer& out, std::string_view scope, const flight::Record& record, flight::RecordPhase phase,
              event::Seq seq, bool late) noexcept;

  const MemoryLedger& memory() const noexcept { return memory_; }

 private:
  static constexpr std::size_t kMaxChanges = 65'536;   // settled early when there are so many
  static constexpr std::size_t kMaxResults = 262'144;  // remembered for lines not written yet, the latest

  struct Pending {
    MemoryLedger::Change change;
    event::Seq seq;
  };
  struct Slot {
    std::uint64_t looked_at = 0;  // counter of the first record not looked at
    std::int64_t newest_ns = 0;
  };

  void note(const flight::Record& record, flight::RecordPhase phase, event::Seq seq, Slot& slot) noexcept;
  void remember(event::Seq seq, const MemoryLedger::Result& result) noexcept;
  bool append_memory(log::Buffer& out, std::string_view scope, const flight::Record& record, flight::RecordPhase phase,
                     event::Seq seq, bool late) noexcept;

  const flight::RingSet& rings_;
  const capture::StreamTable& streams_;
  capture::NoticeBoard& notices_;
  bool said_ = false;  // that there is no room
  MemoryLedger memory_;
  std::vector<Slot> slots_;
  std::vector<Pending> changes_;
  std::unordered_map<std::uint64_t, MemoryLedger::Result> results_;  // by sequence number
  std::deque<std::uint64_t> remembered_;                             // their order
};

}  // namespace gpuflight::recorder
