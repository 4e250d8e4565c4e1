// Brings together what a thread asked for (records of the rings) and what the GPU says of it (records of CUPTI), by
// correlation id, and writes the line that has both. A launch whose time is long in coming gives up its place in the
// ring when that is needed: its line is written with nulls, its time follows as kernel_time.
//
// Threads: the recorder thread only. Blocks: no. Allocates, bounded: PendingTable, kMostGraphs, kMostUnmatched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/activity_configs.h"
#include "capture/activity_record.h"
#include "capture/event_timer.h"
#include "flight/ring.h"
#include "recorder/line_writer.h"
#include "recorder/pending_table.h"

namespace gpuflight::recorder {

// Who reads the rings and writes the batches.
class JoinClient {
 public:
  enum class Fate : std::uint8_t { kWritten, kSummarised, kLost };
  virtual void on_line(Fate fate, std::uint32_t chunk) noexcept = 0;  // of a held record
  virtual void on_own_line(Fate fate) noexcept = 0;                   // of GPU work without a record
  virtual void on_own_kernel(const event::KernelLaunch& launch) noexcept = 0;  // before its line
  virtual void on_time(const event::KernelLaunch& launch) noexcept = 0;  // each kernel whose times have come
  virtual void on_room_needed() noexcept = 0;                            // the batch is full: write it
  // Whether kernels are counted in place of written, for want of room in the log; then that is done with one.
  virtual bool summarises() const noexcept = 0;
  virtual bool on_summarised(const event::KernelLaunch& launch) noexcept = 0;

 protected:
  ~JoinClient() = default;
};

class ActivityJoin {
 public:
  struct Parts {
    LineWriter& lines;
    const flight::RingSet& rings;
    capture::ActivityConfigs& configs;
    const capture::StreamTable& streams;
    JoinClient& client;
  };
  explicit ActivityJoin(const Parts& parts) : parts_(parts) {}

  // Times of work asked for before `until_ns` will come; those of graphs as a whole too, or not.
  void expect_times(std::int64_t until_ns, bool of_graphs) noexcept {
    expected_until_ns_ = until_ns;
    expecting_graphs_ = of_graphs;
  }
  // Of each `every`-th launch of a configuration the times are wanted. Those of graphs' nodes are told all the same.
  void sample(std::uint32_t every) noexcept { sample_every_ = every; }
  // Work asked for meanwhile has no times, though those of its edges may come.
  void expect_no_times(std::int64_t from_ns, std::int64_t to_ns) noexcept {
    untimed_from_ns_ = from_ns;
    untimed_to_ns_ = to_ns;
  }
  // Meanwhile launches are not seen: what the GPU reports of them is not told.
  void expect_unseen(std::int64_t from_ns, std::int64_t to_ns) noexcept {
    unseen_from_ns_ = from_ns;
    unseen_to_ns_ = to_ns;
  }
  // From here on cuGraphLaunch and its nodes cannot be told apart by their ids (CUPTI 13.0 after a disable).
  void distrust_graphs() noexcept { graphs_trusted_ = false; }

  // A returned record of a ring. True: it waits for its times, and stands in the chunk until on_line.
  bool hold(const flight::Record& record, flight::RecordPhase phase, event::Seq seq, std::uint32_t chunk,
            std::uint16_t index) noexcept;
  // The same of one that gets no line of its own.
  void note_summarised(const flight::Record& record, flight::RecordPhase phase, event::Seq seq) noexcept;
  void note_graph(const flight::Record& record, flight::RecordPhase phase) noexcept;

  // Launches for which no ring had room, as counted so far: what the GPU reports of them is not told a second time.
  void note_lost(std::uint64_t launches) noexcept { lost_ = launches; }

  // What the GPU reports. `now_ns` as of this round.
  void on_activity(const capture::ActivityRecord& record, std::int64_t now_ns) noexcept;

  // The time of a launch between two events. False: its record has not been seen yet, or there was no room for it.
  bool on_event_time(const capture::EventTimer::Time& time) noexcept;

  // Once a round, after all that had come: looks again for what was reported before its launch was seen, tells of work
  // that takes long, and gives up on times that will not come. `finished_ns(stream)`: work whose launch had returned by
  // then is known to be done.
  template <class FinishedNs>
  void settle(std::int64_t now_ns, FinishedNs&& finished_ns) noexcept {
    retry_unmatched(now_ns);
    const auto done = [&](const PendingWork& work) {
      return work.launch_ns < finished_ns(work.stream) || work.launch_ns < joined_until(work.stream);
    };
    bool looked = false, beside_running = false;
    while (!queue_.empty() && now_ns - queue_.front().taken_ns > kPatienceNs) {
      const Place front = queue_.front();
      queue_.pop_front();
      PendingWork* const work = find(front);
      if (work == nullptr) continue;
      if (!std::exchange(looked, true)) beside_running = any_near_front(std::not_fn(done));
      // A buffer of CUPTI's comes when all that is in it has ended: what runs may keep what is done.
      const bool runs = !done(*work);
      beside_running = beside_running || runs;
      if (runs || (beside_running && now_ns - front.taken_ns < kLongPatienceNs)) {
        wait_longer(front, *work);
      } else {
        give_up(*work);
      }
    }
    if (now_ns - looked_at_waiting_ns_ >= kSecond) {
      looked_at_waiting_ns_ = now_ns;
      std::erase_if(waiting_, [&](const Place& place) {
        PendingWork* const work = find(place);
        if (work == nullptr) return true;
        if (now_ns - place.taken_ns < kLongPatienceNs || !done(*work)) return false;
        give_up(*work);
        return true;
      });
    }
    tell_pending(now_ns);
  }
  // The oldest `count` held records get their lines without times: the rings need their chunks.
  void make_room(std::size_t count) noexcept;
  // The end: all that still waits is written as it is known.
  void finish() noexcept;

  std::uint64_t held() const noexcept { return held_; }           // records without a line yet
  std::uint64_t null_time() const noexcept { return null_time_; }  // lines with nulls where times were expected
  // Launches of which the GPU has told nothing: lines without times, less those whose times came after all, and launches
  // that were lost or forgotten.
  std::uint64_t without_word() const noexcept {
    return without_word_ + lost_ + forgotten_ - std::min(reported_, lost_ + forgotten_);
  }
  std::uint64_t own_events() const noexcept { return own_events_; }  // of GPU work without a record, with lines or lost
  std::size_t bytes() const noexcept { return table_.bytes(); }

 private:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  static constexpr std::int64_t kPatienceNs = 2'000'000'000;
  static constexpr std::int64_t kLongPatienceNs = 10'000'000'000;
  static constexpr std::size_t kNearFront = 2048;
  static constexpr std::int64_t kUnmatchedNs = 1'000'000'000;
  static constexpr std::int64_t kPendingNs = 5'000'000'000;
  static constexpr std::size_t kMostGraphs = 65'536;
  static constexpr std::size_t kMostUnmatched = 65'536;
  static constexpr std::size_t kMostGraphsRun = 4096;
  static constexpr std::size_t kRunsKept = 16, kConditionalRunsKept = 8192;
  static constexpr std::int64_t kBodyNs = 300'000'000;  // more than a flush

  struct Place {
    std::uint32_t correlation;
    event::Seq seq;
    std::int64_t taken_ns;
  };
  struct GraphOrigin {
    std::uint32_t correlation = 0;
    event::GraphId graph;
    event::StreamId stream;
    event::WorkOrigin host;
  };
  // Launches of one executable graph, by when their first work began. They never run side by side.
  struct GraphRuns {
    struct Run {
      std::uint32_t correlation;
      std::int64_t start_ns;
    };
    std::deque<Run> runs;
    bool conditional = false;  // it has a conditional node
  };
  struct Unmatched {
    capture::ActivityRecord record;  // without its name
    event::ConfigId config;
    std::int64_t came_ns;
  };

  template <class Predicate>
  bool any_near_front(Predicate&& predicate) noexcept {
    for (const std::deque<Place>* const places : {&waiting_, &queue_}) {
      const std::size_t end = std::min(places->size(), kNearFront);
      for (std::size_t i = 0; i < end; ++i) {
        if (const PendingWork* const work = find((*places)[i]); work != nullptr && predicate(*work)) return true;
      }
    }
    return false;
  }
  PendingWork* find(const Place& place) noexcept { return table_.find(place.correlation, place.seq); }
  std::optional<PendingWork::Kind> expected(const flight::Record& record, flight::RecordPhase phase) const noexcept;
  bool add(const flight::Record& record, PendingWork work) noexcept;
  bool wanted(const flight::Record& record, PendingWork::Kind kind) noexcept;
  void note_untimed(const flight::Record& record, PendingWork::Kind kind, event::Seq seq) noexcept;
  // What belongs to a launch that is waited for; what belongs to a cuGraphLaunch; either. False: to none that is known.
  bool join_launch(const capture::ActivityRecord& record) noexcept;
  bool write_node(const capture::ActivityRecord& record, event::ConfigId config) noexcept;
  bool match(const Unmatched& one, std::int64_t now_ns) noexcept;
  const GraphOrigin* graph_of(std::uint32_t correlation) const noexcept;
  void note_run(const capture::ActivityRecord& record) noexcept;
  GraphRuns* runs_of(const capture::ActivityRecord& record) noexcept;
  bool write_body_node(const Unmatched& one) noexcept;
  event::StreamId stream_of(const capture::ActivityRecord& record, event::StreamId fallback) const noexcept;
  void learn_stream(const capture::ActivityRecord& record, std::uint32_t stream) noexcept;
  std::int64_t joined_until(std::uint32_t stream) const noexcept {
    return stream < joined_until_.size() ? joined_until_[stream] : 0;
  }

  JoinClient::Fate write_kernel(const event::KernelLaunch& launch) noexcept;
  void join(PendingWork& work, const capture::ActivityRecord& record) noexcept;
  void write_held(const PendingWork& work, const capture::ActivityRecord* record) noexcept;
  void write_unmatched(const Unmatched& one) noexcept;
  void write_own(const capture::ActivityRecord& record, const GraphOrigin* origin, event::ConfigId config) noexcept;
  void give_up(PendingWork& work) noexcept;
  void wait_longer(const Place& place, PendingWork& work) noexcept;
  void retry_unmatched(std::int64_t now_ns) noexcept;
  void tell_pending(std::int64_t now_ns) noexcept;
  void forget_oldest_written() noexcept;
  void compact_queue() noexcept;

  Parts parts_;
  std::int64_t expected_until_ns_ = 0;
  bool expecting_graphs_ = false;
  std::int64_t unseen_from_ns_ = INT64_MAX, unseen_to_ns_ = INT64_MAX;
  std::int64_t untimed_from_ns_ = INT64_MAX, untimed_to_ns_ = INT64_MAX;
  std::uint32_t sample_every_ = 1;
  std::vector<std::uint32_t> until_sample_;  // by configuration: launches to go
  bool graphs_trusted_ = true;
  PendingTable table_;
  std::deque<Place> queue_;    // held ones in the order taken; what is not in the table any more is passed over
  std::deque<Place> waiting_;  // older than these: what still runs, and what may share a buffer of CUPTI's with it
  std::deque<Place> written_;  // the others, likewise
  std::unordered_map<std::uint32_t, GraphOrigin> graphs_;
  std::deque<std::uint32_t> graph_order_;
  std::unordered_map<std::uint32_t, GraphRuns> graph_runs_;  // by CUPTI's number of the executable graph
  std::uint32_t last_run_ = 0;  // correlation id of the last one noted
  std::deque<Unmatched> unmatched_;
  std::unordered_map<std::uint64_t, std::uint32_t> stream_ids_;  // context and CUPTI's number to our row
  std::vector<std::int64_t> joined_until_;                       // by stream: latest launch whose times have come
  // Launches whose times may still come and of which nothing is kept: no ring had room for them, or the table. And how
  // many times came that will have been theirs.
  std::uint64_t lost_ = 0, forgotten_ = 0, reported_ = 0;
  std::uint64_t held_ = 0, null_time_ = 0, without_word_ = 0, own_events_ = 0;
  std::int64_t looked_for_pending_ns_ = 0, looked_at_waiting_ns_ = 0;
};

}  // namespace gpuflight::recorder
