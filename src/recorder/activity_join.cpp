#include "recorder/activity_join.h"

#include <algorithm>
#include <array>

#include "event/api_call.h"
#include "flight/record_event.h"

namespace gpuflight::recorder {
namespace {

using Kind = PendingWork::Kind;
using State = PendingWork::State;
using Fate = JoinClient::Fate;
using ActivityKind = capture::ActivityRecord::Kind;

Kind kind_of(const capture::ActivityRecord& record) {
  switch (record.kind) {
    case ActivityKind::kMemcpy: return Kind::kCopy;
    case ActivityKind::kMemset: return Kind::kFill;
    case ActivityKind::kGraph: return Kind::kGraph;
    default: return Kind::kKernel;
  }
}

bool has_times(const capture::ActivityRecord& record) {
  return (record.start_ns && record.end_ns) || record.by_events.duration_ns;
}

bool timed_by_events(const flight::Record& record) { return (record.flags & flight::kFlagEventTimed) != 0; }

void set_times(event::KernelLaunch& launch, const capture::ActivityRecord& record) {
  launch.start_ns = record.start_ns;
  launch.end_ns = record.end_ns;
  launch.by_events = record.by_events;
}

event::WorkOrigin host_side(const flight::Record& record) {
  event::WorkOrigin host;
  host.scope = event::ScopeId{record.scope};
  host.thread = record.thread;
  host.launch_ns = record.launch_ns;
  host.call_ns = record.call_ns;
  host.status = record.status;
  return host;
}

// What copies and fills have in common.
template <class Event>
Event to_work(const capture::ActivityRecord& record, const event::WorkOrigin& host) {
  Event event;
  event.bytes = record.bytes;
  event.async = record.async;
  event.correlation = event::CorrelationId{record.correlation};
  event.device = static_cast<std::int32_t>(record.device);
  event.origin = host;
  event.start_ns = record.start_ns;
  event.end_ns = record.end_ns;
  if (record.graph_node != 0) event.graph_node = record.graph_node;
  return event;
}

event::MemcpyEvent to_copy(const capture::ActivityRecord& record, const event::WorkOrigin& host) {
  auto copy = to_work<event::MemcpyEvent>(record, host);
  copy.kind = record.copy;
  copy.source = record.source;
  copy.destination = record.destination;
  copy.source_device = record.source_device;
  copy.destination_device = record.destination_device;
  return copy;
}

event::MemsetEvent to_fill(const capture::ActivityRecord& record, const event::WorkOrigin& host) {
  auto fill = to_work<event::MemsetEvent>(record, host);
  fill.memory = record.destination;
  fill.value = record.value;
  return fill;
}

bool is_body_node(const capture::ActivityRecord& record) {
  return record.graph_node != 0 && record.correlation == 0;
}

std::uint64_t stream_key(const capture::ActivityRecord& record) {
  return (std::uint64_t{record.context_uid} << 32) | record.stream_uid;
}

}  // namespace

// A refused call, one into a capture and one that never came back have no GPU work.
std::optional<Kind> ActivityJoin::expected(const flight::Record& record, flight::RecordPhase phase) const noexcept {
  if (timed_by_events(record) && phase == flight::RecordPhase::kReturned) return Kind::kKernel;
  if (record.launch_ns >= expected_until_ns_ || phase != flight::RecordPhase::kReturned || record.status != 0 ||
      record.correlation == 0 || (record.flags & flight::kFlagCaptured) != 0) {
    return std::nullopt;
  }
  switch (static_cast<flight::RecordKind>(record.kind)) {
    case flight::RecordKind::kKernelLaunch: return Kind::kKernel;
    case flight::RecordKind::kGraphLaunch:
      if (expecting_graphs_) return Kind::kGraph;
      return std::nullopt;
    case flight::RecordKind::kApiCall:
      switch (event::facts(static_cast<event::ApiCall>(record.config)).kind) {
        case event::ApiKind::kCopy: return Kind::kCopy;
        case event::ApiKind::kFill: return Kind::kFill;
        default: return std::nullopt;
      }
    default: return std::nullopt;
  }
}

bool ActivityJoin::add(const flight::Record& record, PendingWork work) noexcept {
  work.correlation = record.correlation;
  work.stream = record.stream;
  work.config = work.kind == Kind::kKernel ? record.config : 0;
  work.launch_ns = record.launch_ns;
  if (const event::StreamInfo* const row = parts_.streams.row(record.stream)) {
    work.device = static_cast<std::int16_t>(row->device);
  }
  if (table_.size() >= PendingTable::kMostEntries / 2) forget_oldest_written();
  if (!table_.add(work)) return false;
  try {
    (work.state == State::kHeld ? queue_ : written_).push_back({work.correlation, work.seq, record.launch_ns});
  } catch (...) {
    table_.erase(table_.find(work.correlation, work.seq));
    return false;
  }
  return true;
}

// Each call counts one launch of the configuration.
bool ActivityJoin::wanted(const flight::Record& record, Kind kind) noexcept {
  if (timed_by_events(record)) return true;
  if (record.launch_ns >= untimed_from_ns_ && record.launch_ns < untimed_to_ns_) return false;
  if (sample_every_ <= 1 || kind != Kind::kKernel) return true;
  try {
    if (record.config >= until_sample_.size()) until_sample_.resize(record.config + 1);
  } catch (...) {
    return true;
  }
  std::uint32_t& to_go = until_sample_[record.config];
  const bool now = to_go == 0;
  to_go = now ? sample_every_ - 1 : to_go - 1;
  return now;
}

// So that what comes of it is not taken for work that nobody has launched. In a long time without times nothing comes
// but near its ends.
void ActivityJoin::note_untimed(const flight::Record& record, Kind kind, event::Seq seq) noexcept {
  const std::int64_t at = record.launch_ns;
  const bool between = at >= untimed_from_ns_ && at < untimed_to_ns_;
  const bool long_after = untimed_from_ns_ < at - kSecond, long_before = untimed_to_ns_ - kSecond > at;
  if (between && long_after && long_before) return;
  PendingWork work;
  work.kind = kind;
  work.state = State::kUntimed;
  work.seq = seq;
  if (!add(record, work)) ++forgotten_;
}

bool ActivityJoin::hold(const flight::Record& record, flight::RecordPhase phase, event::Seq seq, std::uint32_t chunk,
                        std::uint16_t index) noexcept {
  const std::optional<Kind> kind = expected(record, phase);
  if (!kind) return false;
  if (!wanted(record, *kind)) {
    note_untimed(record, *kind, seq);
    return false;
  }
  PendingWork work;
  work.kind = *kind;
  work.state = State::kHeld;
  work.seq = seq;
  work.chunk = chunk;
  work.index = index;
  if (!add(record, work)) {
    ++null_time_;
    ++forgotten_;
    return false;
  }
  ++held_;
  return true;
}

void ActivityJoin::note_summarised(const flight::Record& record, flight::RecordPhase phase, event::Seq seq) noexcept {
  if (expected(record, phase) != Kind::kKernel) return;
  if (!wanted(record, Kind::kKernel)) return note_untimed(record, Kind::kKernel, seq);
  PendingWork work;
  work.state = State::kSummarised;
  work.seq = seq;
  if (add(record, work)) return;
  ++null_time_;
  ++forgotten_;
}

void ActivityJoin::note_graph(const flight::Record& record, flight::RecordPhase phase) noexcept {
  if (record.launch_ns >= expected_until_ns_ || record.correlation == 0 || phase != flight::RecordPhase::kReturned) return;
  try {
    GraphOrigin& origin = graphs_[record.correlation];
    origin = {record.correlation, event::GraphId{record.graph}, event::StreamId{record.stream}, host_side(record)};
    origin.host.call_ns.reset();
    graph_order_.push_back(record.correlation);
    if (graph_order_.size() <= kMostGraphs) return;
    graphs_.erase(graph_order_.front());
    graph_order_.pop_front();
  } catch (...) {
  }
}

const ActivityJoin::GraphOrigin* ActivityJoin::graph_of(std::uint32_t correlation) const noexcept {
  if (!graphs_trusted_) return nullptr;
  const auto found = graphs_.find(correlation);
  return found != graphs_.end() ? &found->second : nullptr;
}

void ActivityJoin::learn_stream(const capture::ActivityRecord& record, std::uint32_t stream) noexcept {
  if (stream == 0) return;
  try {
    stream_ids_[stream_key(record)] = stream;
  } catch (...) {
  }
}

event::StreamId ActivityJoin::stream_of(const capture::ActivityRecord& record,
                                        event::StreamId fallback) const noexcept {
  const auto known = stream_ids_.find(stream_key(record));
  return known != stream_ids_.end() ? event::StreamId{known->second} : fallback;
}

void ActivityJoin::on_activity(const capture::ActivityRecord& record, std::int64_t now_ns) noexcept {
  if (join_launch(record)) return;
  // While the record still has its name.
  const event::ConfigId config = record.name != nullptr ? parts_.configs.find(record) : event::ConfigId{};
  if (is_body_node(record)) {
    if (GraphRuns* const known = runs_of(record)) known->conditional = true;
  } else if (write_node(record, config)) {
    return;
  }
  try {
    if (unmatched_.size() >= kMostUnmatched) {
      write_unmatched(unmatched_.front());
      unmatched_.pop_front();
    }
    unmatched_.push_back({record, config, now_ns});
    unmatched_.back().record.name = nullptr;
  } catch (...) {
    write_own(record, nullptr, config);
  }
}

bool ActivityJoin::on_event_time(const capture::EventTimer::Time& time) noexcept {
  PendingWork* const work = table_.find(time.ticket, Kind::kKernel, -1);
  if (work == nullptr) return false;
  capture::ActivityRecord record;
  record.by_events = {time.duration_ns, time.error_ns};
  join(*work, record);
  return true;
}

bool ActivityJoin::match(const Unmatched& one, std::int64_t now_ns) noexcept {
  if (is_body_node(one.record)) return now_ns - one.came_ns > kBodyNs && write_body_node(one);
  return join_launch(one.record) || write_node(one.record, one.config);
}

// CUPTI's number of the executable graph stands in the upper half of its nodes' ids, seen on 13.0.
ActivityJoin::GraphRuns* ActivityJoin::runs_of(const capture::ActivityRecord& record) noexcept {
  const auto upper = static_cast<std::uint32_t>(record.graph_node >> 32);
  try {
    if (graph_runs_.size() >= kMostGraphsRun) graph_runs_.clear();
    return &graph_runs_[upper != 0 ? upper : record.graph_uid];
  } catch (...) {
    return nullptr;
  }
}

void ActivityJoin::note_run(const capture::ActivityRecord& record) noexcept {
  if (record.correlation == last_run_ || !record.start_ns) return;
  last_run_ = record.correlation;
  GraphRuns* const known = runs_of(record);
  if (known == nullptr) return;
  try {
    known->runs.push_back({record.correlation, *record.start_ns});
    if (known->runs.size() > (known->conditional ? kConditionalRunsKept : kRunsKept)) known->runs.pop_front();
  } catch (...) {
  }
}

// What runs in the body of a conditional node is reported without the launch's correlation id: it belongs to the last
// launch of its graph that had begun by then. That one's own nodes may be reported after it, so it is looked for later.
bool ActivityJoin::write_body_node(const Unmatched& one) noexcept {
  GraphRuns* const known = runs_of(one.record);
  if (known == nullptr || !one.record.start_ns) return false;
  const GraphRuns::Run* last = nullptr;
  for (const GraphRuns::Run& run : known->runs) {
    if (run.start_ns <= *one.record.start_ns && (last == nullptr || run.start_ns > last->start_ns)) last = &run;
  }
  const GraphOrigin* const origin = last != nullptr ? graph_of(last->correlation) : nullptr;
  if (origin == nullptr) return false;
  capture::ActivityRecord record = one.record;
  record.correlation = origin->correlation;
  write_own(record, origin, one.config);
  return true;
}

bool ActivityJoin::join_launch(const capture::ActivityRecord& record) noexcept {
  if (record.graph_node != 0) return false;
  PendingWork* const work =
      table_.find(record.correlation, kind_of(record), static_cast<std::int32_t>(record.device));
  if (work == nullptr) return false;
  join(*work, record);
  return true;
}

bool ActivityJoin::write_node(const capture::ActivityRecord& record, event::ConfigId config) noexcept {
  const GraphOrigin* const origin = graph_of(record.correlation);
  if (origin == nullptr) return false;
  if (record.kind == ActivityKind::kGraph) return true;
  note_run(record);
  write_own(record, origin, config);
  return true;
}

void ActivityJoin::join(PendingWork& work, const capture::ActivityRecord& record) noexcept {
  if (record.context_uid != 0) learn_stream(record, work.stream);
  try {
    if (work.stream >= joined_until_.size()) joined_until_.resize(work.stream + 1);
    joined_until_[work.stream] = std::max(joined_until_[work.stream], work.launch_ns);
  } catch (...) {
  }
  const PendingWork joined = work;
  table_.erase(&work);
  if (joined.state == State::kUntimed) return;
  if (!has_times(record)) ++null_time_;
  switch (joined.state) {
    case State::kHeld:
      write_held(joined, &record);
      break;
    case State::kWritten:
      --without_word_;
      [[fallthrough]];
    case State::kSummarised: {
      if (joined.kind != Kind::kKernel || !has_times(record)) break;
      if (joined.state == State::kWritten) {
        parts_.lines.time({{}, joined.seq, event::ConfigId{joined.config}, event::StreamId{joined.stream},
                           joined.launch_ns, record.start_ns, record.end_ns, record.by_events});
      }
      event::KernelLaunch launch;
      launch.seq = joined.seq;
      launch.config = event::ConfigId{joined.config};
      launch.launch_ns = joined.launch_ns;
      set_times(launch, record);
      parts_.client.on_time(launch);
      break;
    }
    case State::kUntimed:
    case State::kFree:
      break;
  }
  parts_.client.on_room_needed();
}

JoinClient::Fate ActivityJoin::write_kernel(const event::KernelLaunch& launch) noexcept {
  const bool summarised = parts_.client.summarises();
  const bool done = summarised ? parts_.client.on_summarised(launch) : parts_.lines.kernel(launch);
  if (launch.gpu_ns()) parts_.client.on_time(launch);
  return !done ? Fate::kLost : summarised ? Fate::kSummarised : Fate::kWritten;
}

// `record` null: nothing has come of it, and the line says null.
void ActivityJoin::write_held(const PendingWork& work, const capture::ActivityRecord* record) noexcept {
  const flight::Record& held = parts_.rings.chunk(work.chunk).records[work.index];
  constexpr auto kReturned = flight::RecordPhase::kReturned;
  bool written = false;
  if (work.kind == Kind::kKernel) {
    event::KernelLaunch launch = flight::to_kernel_launch(held, kReturned, work.seq);
    if (record != nullptr) set_times(launch, *record);
    --held_;
    return parts_.client.on_line(write_kernel(launch), work.chunk);
  }
  if (work.kind == Kind::kGraph && record != nullptr) {
    event::GraphLaunch launch = flight::to_graph_launch(held, kReturned, work.seq);
    launch.start_ns = record->start_ns;
    launch.end_ns = record->end_ns;
    written = parts_.lines.graph(launch);
  } else if (work.kind == Kind::kCopy && record != nullptr) {
    event::MemcpyEvent copy = to_copy(*record, host_side(held));
    copy.seq = work.seq;
    copy.stream = stream_of(*record, event::StreamId{work.stream});
    written = parts_.lines.copy(copy);
  } else if (work.kind == Kind::kFill && record != nullptr) {
    event::MemsetEvent fill = to_fill(*record, host_side(held));
    fill.seq = work.seq;
    fill.stream = stream_of(*record, event::StreamId{work.stream});
    written = parts_.lines.fill(fill);
  } else {
    written = parts_.lines.record(held, kReturned, work.seq);
  }
  --held_;
  parts_.client.on_line(written ? Fate::kWritten : Fate::kLost, work.chunk);
}

// A launch that is written or counted as lost, and of which nothing is known here any more, is not told a second time.
void ActivityJoin::write_unmatched(const Unmatched& one) noexcept {
  const std::int64_t start_ns = one.record.start_ns.value_or(0);
  if (start_ns >= unseen_from_ns_ && start_ns < unseen_to_ns_) return;
  if (one.record.graph_node == 0 && reported_ < lost_ + forgotten_) {
    ++reported_;
    return;
  }
  write_own(one.record, nullptr, one.config);
}

// Work for which no record of a ring stands: a node of a graph, or what no launch was seen of (`origin` null).
void ActivityJoin::write_own(const capture::ActivityRecord& record, const GraphOrigin* origin,
                             event::ConfigId config) noexcept {
  if (record.kind == ActivityKind::kGraph) return;
  if (!has_times(record)) ++null_time_;
  const event::Seq seq(event::kGpuSlot, own_events_++);
  const event::WorkOrigin host = origin != nullptr ? origin->host : event::WorkOrigin{};
  const event::StreamId stream = stream_of(record, origin != nullptr ? origin->stream : event::StreamId{});
  const event::GraphId graph = origin != nullptr ? origin->graph : event::GraphId{};
  Fate fate = Fate::kLost;
  if (record.kind == ActivityKind::kMemcpy) {
    event::MemcpyEvent copy = to_copy(record, host);
    copy.seq = seq;
    copy.stream = stream;
    copy.graph = graph;
    if (parts_.lines.copy(copy)) fate = Fate::kWritten;
  } else if (record.kind == ActivityKind::kMemset) {
    event::MemsetEvent fill = to_fill(record, host);
    fill.seq = seq;
    fill.stream = stream;
    fill.graph = graph;
    if (parts_.lines.fill(fill)) fate = Fate::kWritten;
  } else {
    event::KernelLaunch launch;
    launch.seq = seq;
    launch.config = config;
    launch.grid = record.grid;
    launch.stream = stream;
    launch.device = static_cast<std::int32_t>(record.device);
    launch.correlation = event::CorrelationId{record.correlation};
    launch.scope = host.scope;
    launch.thread = host.thread;
    launch.unlaunched = origin == nullptr;
    launch.launch_ns = host.launch_ns.value_or(record.start_ns.value_or(parts_.lines.newest_ns()));
    launch.status = host.status;
    launch.start_ns = record.start_ns;
    launch.end_ns = record.end_ns;
    launch.graph = graph;
    if (record.graph_node != 0) launch.graph_node = record.graph_node;
    parts_.client.on_own_kernel(launch);
    fate = write_kernel(launch);
  }
  parts_.client.on_own_line(fate);
  parts_.client.on_room_needed();
}

// Writes the line without times; they may still come.
void ActivityJoin::give_up(PendingWork& work) noexcept {
  if (work.state != State::kHeld) return;
  const PendingWork held = work;
  ++null_time_;
  ++without_word_;
  if (held.kind == Kind::kKernel) {
    work.state = State::kWritten;
    try {
      written_.push_back({held.correlation, held.seq, held.launch_ns});
    } catch (...) {
      table_.erase(&work);
      ++forgotten_;
    }
  } else {
    table_.erase(&work);
    ++forgotten_;
  }
  write_held(held, nullptr);
  parts_.client.on_room_needed();
}

void ActivityJoin::wait_longer(const Place& place, PendingWork& work) noexcept {
  try {
    waiting_.push_back(place);
  } catch (...) {
    give_up(work);
  }
}

void ActivityJoin::make_room(std::size_t count) noexcept {
  for (std::deque<Place>* const places : {&waiting_, &queue_}) {
    while (count > 0 && !places->empty()) {
      if (PendingWork* const work = find(places->front()); work != nullptr && work->state == State::kHeld) {
        give_up(*work);
        --count;
      }
      places->pop_front();
    }
  }
}

void ActivityJoin::finish() noexcept {
  for (; !unmatched_.empty(); unmatched_.pop_front()) {
    if (!match(unmatched_.front(), INT64_MAX)) write_unmatched(unmatched_.front());
  }
  make_room(SIZE_MAX);
}

void ActivityJoin::forget_oldest_written() noexcept {
  while (!written_.empty()) {
    PendingWork* const work = find(written_.front());
    written_.pop_front();
    if (work == nullptr) continue;
    table_.erase(work);
    ++forgotten_;
    return;
  }
}

void ActivityJoin::retry_unmatched(std::int64_t now_ns) noexcept {
  for (std::size_t left = unmatched_.size(); left > 0; --left) {
    const Unmatched one = unmatched_.front();
    unmatched_.pop_front();
    if (match(one, now_ns)) continue;
    if (now_ns - one.came_ns > kUnmatchedNs) {
      write_unmatched(one);
      continue;
    }
    try {
      unmatched_.push_back(one);
    } catch (...) {
      write_unmatched(one);
    }
  }
}

// What is not in the table any more is let go, so that one that waits for minutes does not keep all that came after.
void ActivityJoin::compact_queue() noexcept {
  for (std::deque<Place>* const queue : {&queue_, &written_}) {
    if (queue->size() < 4096 || queue->size() < 2 * table_.size()) continue;
    std::erase_if(*queue, [&](const Place& place) { return find(place) == nullptr; });
  }
}

// The first of each stream that has waited long, once: what stands behind it waits for it.
void ActivityJoin::tell_pending(std::int64_t now_ns) noexcept {
  compact_queue();
  if (now_ns - looked_for_pending_ns_ < kSecond) return;
  looked_for_pending_ns_ = now_ns;
  constexpr std::size_t kMostLooked = 100'000;
  constexpr std::size_t kMostStreams = 64;
  struct First {
    std::uint32_t stream;
    PendingWork* work;
    std::uint64_t behind;
  };
  std::array<First, kMostStreams> first;
  std::size_t streams = 0, looked = 0;
  // What was written without its times is older than what is held.
  for (const std::deque<Place>* const queue : {&written_, &waiting_, &queue_}) {
    for (const Place& place : *queue) {
      if ((streams == 0 && now_ns - place.taken_ns <= kPendingNs) || ++looked > kMostLooked) break;
      PendingWork* const work = find(place);
      if (work == nullptr || (work->state != State::kHeld && work->state != State::kWritten)) continue;
      const auto known = std::find_if(first.begin(), first.begin() + streams,
                                      [&](const First& f) { return f.stream == work->stream; });
      if (known != first.begin() + streams) {
        ++known->behind;
      } else if (streams < kMostStreams && now_ns - place.taken_ns > kPendingNs) {
        first[streams++] = {work->stream, work, 0};
      }
    }
  }
  for (std::size_t i = 0; i < streams; ++i) {
    PendingWork& work = *first[i].work;
    if (work.told || work.kind != Kind::kKernel) continue;
    work.told = true;
    parts_.lines.pending({{}, work.seq, event::ConfigId{work.config}, event::StreamId{work.stream}, work.launch_ns,
                          now_ns, first[i].behind});
  }
}

}  // namespace gpuflight::recorder
