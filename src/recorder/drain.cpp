#include "recorder/drain.h"

#include <algorithm>

#include "flight/record_event.h"

namespace gpuflight::recorder {
namespace {

constexpr std::size_t kBatchBytes = 512 * 1024;  // at most; never more than a segment
constexpr std::uint64_t kEndLineBytes = 4096;
constexpr std::int64_t kSecond = 1'000'000'000;

using event::LossCause;
using flight::RecordKind;
using flight::RecordPhase;

constexpr std::size_t index(LossCause cause) { return static_cast<std::size_t>(cause); }

std::size_t batch_bytes(const log::LogSink& sink) {
  return sink.segment_limit() == 0 ? kBatchBytes : std::min<std::size_t>(kBatchBytes, sink.segment_limit());
}

std::size_t repeat_bytes(const log::LogSink& sink) {
  return sink.segment_limit() == 0 ? SIZE_MAX : sink.segment_limit() / 4;
}

}  // namespace

Drain::Drain(const Parts& parts, const Options& options)
    : parts_(parts),
      summaries_only_(options.summaries_only),
      dump_events_(options.dump_events),
      rule_(options.rule),
      black_box_(parts.rings, parts.file.chunk_count()),
      lines_({parts.kernels, parts.streams, parts.scopes, parts.devices, parts.launches, parts.graphs, parts.calls,
              nodes_},
             options.details, batch_bytes(parts.sink), repeat_bytes(parts.sink)),
      activity_configs_(parts.kernels, parts.devices),
      join_({lines_, parts.rings, activity_configs_, parts.streams, *this}) {
  // Never more than there are slots and chunks: what follows cannot fail.
  cursors_.reserve(event::kMaxThreadSlots);
  progress_.reserve(parts.file.chunk_count() + 1);
  chunks_.resize(parts.file.chunk_count());
  emptied_.reserve(parts.file.chunk_count());
  refused_.reserve(parts.file.chunk_count());
}

std::uint64_t Drain::round(bool bounded) noexcept {
  const std::int64_t now = parts_.launches.now_ns();
  // Before the ring of chunks comes round: what is in no summary line yet must be found in the file.
  const std::uint64_t unsummarised = summarised_ - std::min(summarised_, summarised_until_second_);
  const bool crowded = (summaries_only_ || level_ != event::RecordLevel::kEvents) &&
                       unsummarised > std::uint64_t{parts_.file.chunk_count()} * flight::kRecordsPerChunk / 2;
  second_ends_ns_ = crowded || now - second_began_ns_ >= kSecond ? now : 0;
  lines_.write_new_devices();
  waiting_.clear();
  std::uint64_t taken = 0;
  const std::uint32_t slots = parts_.rings.slots_used();
  if (cursors_.size() < slots) cursors_.resize(slots);
  for (std::uint32_t slot = 1; slot < slots; ++slot) {
    parts_.calls.look_ahead(slot, cursors_[slot].chunk, cursors_[slot].taken);
  }
  parts_.calls.settle();
  for (std::uint32_t slot = 1; slot < slots; ++slot) taken += drain_slot(slot, bounded);
  join_.note_lost(parts_.rings.dropped() + parts_.launches.without_slot());
  flush();
  return taken;
}

std::uint64_t Drain::drain_slot(std::uint32_t slot, bool bounded) noexcept {
  const flight::Ring* const ring = parts_.rings.ring(slot);
  if (ring == nullptr) return 0;
  Cursor& cursor = cursors_[slot];
  if (cursor.chunk == flight::kNoChunk) {
    cursor.chunk = parts_.rings.first_chunk(*ring);
    if (cursor.chunk == flight::kNoChunk) return 0;
  }
  // All that CUPTI had told of before the round began is in the ring by now.
  const std::uint64_t until = bounded ? ring->slot().seen.load(std::memory_order_acquire) : UINT64_MAX;
  std::uint64_t taken = 0;
  for (;;) {
    flight::Chunk& chunk = parts_.rings.chunk(cursor.chunk);
    const std::uint64_t first = parts_.rings.first_counter(cursor.chunk);
    std::uint32_t committed =
        std::min(chunk.header.committed.load(std::memory_order_acquire), flight::kRecordsPerChunk);
    if (const std::uint64_t room = until - std::min(until, first); committed > room) {
      committed = static_cast<std::uint32_t>(room);
    }
    const std::uint32_t before = cursor.taken;
    bool waits = false;
    while (cursor.taken < committed) {
      flight::Record& record = chunk.records[cursor.taken];
      const auto phase = static_cast<RecordPhase>(record.phase.load(std::memory_order_acquire));
      if (phase == RecordPhase::kEntered) {  // the call has not come back: the last record of this thread
        waits = true;
        note_waiting(record);
        break;
      }
      flight::settle_shared_time([&](std::uint32_t place) -> flight::Record& { return chunk.records[place]; },
                                 cursor.taken, committed, [this] { return std::optional(parts_.launches.now_ns()); });
      const event::Seq seq(slot, first + cursor.taken);
      bool summarised = false;
      const bool kept = take(record, phase, seq, summarised);
      if (kept && !summarised) write(record, phase, seq, cursor);
      // Where others of the chunk wait for their times, nothing else tells how far it was taken.
      if (kept && summarised && !summaries_only_) record.flags |= flight::kFlagSummarised;
      ++cursor.taken;
      ++taken;
      ++taken_total_;
      if (lines_.full()) {
        progress_.push_back({cursor.chunk, cursor.taken});
        flush();
      }
    }
    if (cursor.taken != before) progress_.push_back({cursor.chunk, cursor.taken});
    if (waits || cursor.taken < flight::kRecordsPerChunk) break;
    const std::uint32_t next = parts_.rings.next_chunk(cursor.chunk);
    if (next == flight::kNoChunk) break;
    emptied_.push_back(cursor.chunk);
    cursor = {next, 0};
  }
  return taken;
}

// Counts a record, tells the watch of it, and summarises it where that is all that becomes of it.
bool Drain::take(const flight::Record& record, RecordPhase phase, event::Seq seq, bool& summarised) noexcept {
  summarised = summaries_only_;
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kKernelLaunch: {
      const event::KernelLaunch launch = flight::to_kernel_launch(record, phase, seq);
      count_kernel(launch);
      if (parts_.watch != nullptr) parts_.watch->on_launch(launch);
      if (rule_ && rule_->matches(launch)) rule_matched_ = true;
      summarised = summarised || summarising_ || without_line(launch);
      const bool of_next = second_ends_ns_ != 0 && launch.launch_ns > second_ends_ns_;
      if (summarised && !(of_next ? next_second_ : second_).add(launch)) {
        ++write_failed_;
        return false;
      }
      if (summarised) join_.note_summarised(record, phase, seq);
      break;
    }
    case RecordKind::kGraphLaunch: {
      const event::GraphLaunch launch = flight::to_graph_launch(record, phase, seq);
      ++counts_.graph_launches;
      if (launch.status.has_value() && *launch.status != 0) ++counts_.failed;
      count_graph(launch);
      if (parts_.watch != nullptr) parts_.watch->on_graph(launch);
      join_.note_graph(record, phase);
      break;
    }
    case RecordKind::kApiCall:
      ++counts_.other_calls;
      parts_.calls.see(record, phase, seq);
      if (parts_.watch != nullptr) {
        parts_.watch->on_call(flight::to_api_event(record, phase, seq), flight::context_of_call(record));
      }
      break;
    case RecordKind::kScopeBegin:
    case RecordKind::kScopeEnd:
    case RecordKind::kMark:
      ++counts_.scopes;
      break;
    default:
      ++unknown_records_;
      return false;
  }
  if (summarised) ++summarised_;
  return true;
}

// As a line, now or when its times are known.
void Drain::write(const flight::Record& record, RecordPhase phase, event::Seq seq, const Cursor& at) noexcept {
  if (join_.hold(record, phase, seq, at.chunk, static_cast<std::uint16_t>(at.taken))) {
    ++chunks_[at.chunk].held;
  } else if (!lines_.record(record, phase, seq)) {
    ++write_failed_;
  }
}

void Drain::count(Fate fate) noexcept {
  if (fate == Fate::kLost) ++write_failed_;
  if (fate == Fate::kSummarised) ++summarised_;
}

void Drain::on_line(Fate fate, std::uint32_t chunk) noexcept {
  count(fate);
  try {
    released_.push_back(chunk);
  } catch (...) {
    --chunks_[chunk].held;  // free a batch too early rather than never
  }
}

void Drain::on_own_line(Fate fate) noexcept { count(fate); }

void Drain::on_own_kernel(const event::KernelLaunch& launch) noexcept {
  ++(launch.unlaunched ? counts_.unlaunched : counts_.graph_kernels);
  session_summary_.add(launch);
}

bool Drain::on_summarised(const event::KernelLaunch& launch) noexcept { return second_.add(launch); }

void Drain::on_time(const event::KernelLaunch& launch) noexcept {
  if (rule_ && rule_->on_gpu_time() && rule_->matches(launch)) rule_matched_ = true;
  if (summarises()) second_.add_time(launch);
  session_summary_.add_time(launch);
}

void Drain::on_room_needed() noexcept {
  if (lines_.full()) flush();
}

void Drain::finish_times() noexcept {
  join_.finish();
  flush();
}

void Drain::settle() noexcept {
  join_.settle(parts_.launches.now_ns(), [this](std::uint32_t stream) noexcept {
    return parts_.watch != nullptr ? parts_.watch->finished_ns(stream) : 0;
  });
  // Held records keep their chunks: the newest need room more than the oldest need their times in the same line.
  constexpr std::size_t kStep = 16 * flight::kRecordsPerChunk;
  for (flush(); parts_.rings.free_chunks() < parts_.file.chunk_count() / 2 && join_.held() > 0; flush()) {
    join_.make_room(kStep);
  }
}

void Drain::count_kernel(const event::KernelLaunch& launch) noexcept {
  if (!launch.config) ++table_full_;
  if (launch.captured) {
    ++counts_.captured;
  } else {
    ++counts_.launches;
  }
  if (launch.status.has_value() && *launch.status != 0) ++counts_.failed;
  session_summary_.add(launch);
}

// What is known of its kernels is only how many there are; they are counted per summary, not per launch.
void Drain::count_graph(const event::GraphLaunch& launch) noexcept {
  if (!launch.contents || launch.captured || launch.status != 0 || nodes_.of(launch)) return;
  const event::GraphContents* const contents = parts_.graphs.contents(launch.contents);
  if (contents == nullptr) return;
  counts_.replayed_kernels += contents->kernel_nodes();
  session_summary_.add_replay(launch.contents);
  if (!summaries_only_) return;  // its line is in the log
  (second_ends_ns_ != 0 && launch.launch_ns > second_ends_ns_ ? next_second_ : second_).add_replay(launch.contents);
}

void Drain::count_replays(Summariser& summary) noexcept {
  summary.count_replays([this](event::ContentsId id) { return parts_.graphs.contents(id); });
}

// At the present level. What was refused is told one by one for as long as anything is.
bool Drain::without_line(const event::KernelLaunch& launch) noexcept {
  if (level_ == event::RecordLevel::kEvents) return false;
  if (level_ != event::RecordLevel::kSampled) return true;
  if (launch.status.value_or(0) != 0) return false;
  try {
    if (launch.config.value >= until_line_.size()) until_line_.resize(launch.config.value + 1);
  } catch (...) {
    return true;
  }
  std::uint32_t& to_go = until_line_[launch.config.value];
  const bool line = to_go == 0;
  to_go = line ? kSampleEvery - 1 : to_go - 1;
  return !line;
}

// What has no line is to be found in the flight file for long.
void Drain::set_level(event::RecordLevel level) noexcept {
  level_ = level;
  if (summaries_only_) return;
  parts_.rings.set_reuse(level == event::RecordLevel::kEvents ? flight::Reuse::kNewestFirst
                                                              : flight::Reuse::kOldestFirst);
}

void Drain::say(event::Notice notice) noexcept { lines_.say(std::move(notice)); }

void Drain::write_due_summaries(bool now) noexcept {
  if (second_ends_ns_ == 0 && !now) return;
  if (second_ends_ns_ != 0) write_second(std::exchange(second_ends_ns_, 0));
  if (now) write_second(parts_.launches.now_ns());
  // Back to events only here, so that whole seconds are summed up.
  if (summarising_ && !now && !parts_.sink.must_summarise(second_began_ns_)) summarise(false);
  flush();
}

void Drain::write_second(std::int64_t ends_ns) noexcept {
  count_replays(second_);
  second_.take(second_began_ns_, ends_ns, [&](event::KernelSummary& summary) { lines_.summary(summary); });
  second_began_ns_ = ends_ns;
  summarised_until_second_ = summarised_;
  std::swap(second_, next_second_);
}

void Drain::note_waiting(const flight::Record& record) noexcept {
  try {
    const char* call = "cuLaunchKernel";
    std::uint32_t context = 0;
    if (static_cast<RecordKind>(record.kind) == RecordKind::kApiCall) {
      call = event::facts(static_cast<event::ApiCall>(record.config)).name;
      context = flight::context_of_call(record);
    } else if (static_cast<RecordKind>(record.kind) == RecordKind::kGraphLaunch) {
      call = "cuGraphLaunch";
    }
    waiting_.push_back({{record.thread, call, record.launch_ns}, event::StreamId{record.stream}, context});
  } catch (...) {
  }
}

void Drain::write_incidents(IncidentWatch::Incidents incidents) noexcept {
  for (event::ErrorEvent& error : incidents.errors) lines_.error(std::move(error));
  for (event::HangEvent& hang : incidents.hangs) lines_.hang(std::move(hang));
  flush();
}

bool Drain::take_rule_match() noexcept { return std::exchange(rule_matched_, false); }

// What was summarised and is now written one by one changes sides in the ledger.
std::uint64_t Drain::dump(const char* reason) noexcept {
  if (!summaries_only_) return 0;
  try {
    const auto taken_until = [&](std::uint32_t slot) -> std::uint64_t {
      if (slot >= cursors_.size() || cursors_[slot].chunk == flight::kNoChunk) return 0;
      return parts_.rings.first_counter(cursors_[slot].chunk) + cursors_[slot].taken;
    };
    std::uint64_t dumped = 0;
    black_box_.dump(dump_events_, taken_until, [&](const flight::Record& record, event::Seq seq) {
      const auto phase = static_cast<RecordPhase>(record.phase.load(std::memory_order_relaxed));
      if (!lines_.record(record, phase, seq)) return;
      ++dumped;
      --summarised_;
      if (lines_.full()) flush();
    });
    event::Notice notice;
    notice.code = "dump";
    notice.message = "the last " + std::to_string(dumped) + " events not yet written: " + reason;
    say(std::move(notice));
    flush();
    return dumped;
  } catch (...) {
    return 0;
  }
}

void Drain::summarise(bool on) noexcept {
  summarising_ = on;
  event::Notice notice;
  try {
    notice.severity = on ? event::Severity::kWarning : event::Severity::kInfo;
    notice.code = on ? "summaries_begin" : "summaries_end";
    notice.message = on ? "events come faster than log_max can hold for log_keep: from here one kernel_summary per "
                          "configuration and second is written instead; raise log_max or lower log_keep"
                        : "events fit the log again and are written one by one";
  } catch (...) {
  }
  say(std::move(notice));
}

void Drain::write_losses() noexcept {
  const event::Ledger now = ledger();
  event::LossEvent loss;
  bool any = false;
  for (std::size_t i = 0; i < losses_said_.size(); ++i) {
    loss.lost[i] = now.lost[i] - losses_said_[i];
    any = any || loss.lost[i] != 0;
  }
  if (!any) return;
  loss.time_ns = parts_.launches.now_ns();
  loss.ledger = now;
  if (!lines_.loss(loss)) return;
  flush();
  if (last_error_ == 0) losses_said_ = now.lost;  // else it is said when there is room again
}

void Drain::write_end(event::SessionEnd end) noexcept {
  join_.finish();
  ended_ = true;
  write_due_summaries(true);
  count_replays(session_summary_);
  session_summary_.take(0, parts_.launches.now_ns(), [&](event::KernelSummary& summary) {
    summary.session = true;
    lines_.summary(summary);
    if (lines_.full()) flush();
  });
  write_losses();
  flush();
  parts_.sink.make_way(kEndLineBytes);  // what must go goes now, so that the line counts it
  rotated_away_ += parts_.sink.take_rotated_away();
  end.time_ns = parts_.launches.now_ns();
  end.ledger = ledger();
  end.bytes_written = parts_.sink.bytes_written();
  lines_.end(std::move(end));
  flush();
}

void Drain::flush() noexcept {
  if (!lines_.buffer().empty()) {
    // Before the lines: of what is in the log the flight file must know.
    parts_.file.slots()[event::kGpuSlot].seen.store(join_.own_events(), std::memory_order_relaxed);
    const std::uint64_t events = lines_.buffered_events();
    const log::WriteOutcome outcome = parts_.sink.write(lines_.buffer().view(), events, lines_.newest_ns());
    written_ += outcome.events_written;
    write_failed_ += events - outcome.events_written;
    last_error_ = outcome.error;
    rotated_away_ += parts_.sink.take_rotated_away();
    lines_.clear();
    // After each batch: within a second a fast program can fill a small bound several times.
    if (!summaries_only_ && !summarising_ && parts_.sink.must_summarise(parts_.launches.now_ns())) summarise(true);
  }
  // Only now: a chunk is free again when its lines are written.
  for (const Progress& p : progress_) chunks_[p.chunk].taken = p.taken;
  for (const std::uint32_t chunk : released_) {
    --chunks_[chunk].held;
    publish_taken(chunk);
  }
  for (const Progress& p : progress_) publish_taken(p.chunk);
  released_.clear();
  progress_.clear();
  emptied_.insert(emptied_.end(), refused_.begin(), refused_.end());
  refused_.clear();
  for (const std::uint32_t chunk : emptied_) {
    if (chunks_[chunk].held > 0 || !parts_.rings.give_back(chunk)) refused_.push_back(chunk);
  }
  emptied_.clear();
  publish_counters();
}

void Drain::publish_taken(std::uint32_t chunk) noexcept {
  if (chunks_[chunk].held > 0) return;  // the lines of some are still to come
  parts_.rings.chunk(chunk).header.taken.store(chunks_[chunk].taken, std::memory_order_release);
}

bool Drain::chunk_needed(std::uint32_t chunk) const noexcept {
  return std::any_of(cursors_.begin(), cursors_.end(), [&](const Cursor& c) { return c.chunk == chunk; });
}

// A record that was lost of a launch costs its line the times, which is counted as null_time. What CUPTI dropped beyond
// that was of work that has no line otherwise: nodes of graphs. Known at the end only, when nothing waits any more.
std::uint64_t Drain::gpu_events_lost() const noexcept {
  if (!ended_) return gpu_nodes_lost_;
  return gpu_nodes_lost_ + gpu_records_lost_ - std::min(gpu_records_lost_, join_.without_word());
}

event::Ledger Drain::ledger() noexcept {
  event::Ledger ledger;
  const std::uint64_t dropped = parts_.rings.dropped();
  const std::uint64_t without_slot = parts_.launches.without_slot();
  const std::uint64_t gpu_lost = gpu_events_lost();
  ledger.seen = parts_.rings.seen() + without_slot + join_.own_events() + gpu_lost;
  ledger.lost[index(LossCause::kCuptiDropped)] = gpu_lost;
  ledger.written = written_;
  ledger.summarised = summarised_;
  ledger.lost[index(LossCause::kPoolEmpty)] = dropped;
  ledger.lost[index(LossCause::kNoThreadSlot)] = without_slot;
  ledger.lost[index(LossCause::kWriteFailed)] = write_failed_;
  ledger.lost[index(LossCause::kUnknownRecord)] = unknown_records_;
  // Counted by itself, not as what is left over: begun and not returned, committed and not taken, waiting for its times,
  // rendered and not in the file. So the sum is a check.
  ledger.pending = parts_.rings.seen() - dropped - taken_total_ + join_.held() + lines_.buffered_events();
  ledger.rotated_away = rotated_away_;
  ledger.null_time = join_.null_time();
  ledger.table_full = table_full_;
  ledger.occupancy_mismatch = parts_.resolver.occupancy_mismatches();
  return ledger;
}

void Drain::publish_counters() noexcept {
  flight::LedgerBlock& block = parts_.file.ledger();
  const auto put = [](std::atomic<std::uint64_t>& to, std::uint64_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  put(block.written, written_);
  put(block.summarised, summarised_);
  put(block.rotated_away, rotated_away_);
  put(block.null_time, join_.null_time());
  put(block.table_full, table_full_);
  put(block.occupancy_mismatch, parts_.resolver.occupancy_mismatches());
  put(block.lost[index(LossCause::kNoThreadSlot)], parts_.launches.without_slot());
  put(block.lost[index(LossCause::kWriteFailed)], write_failed_);
  put(block.lost[index(LossCause::kCuptiDropped)], gpu_events_lost());
  put(block.lost[index(LossCause::kUnknownRecord)], unknown_records_);
  put(block.bytes, parts_.sink.bytes_written());
  put(block.drained, taken_total_);
}

}  // namespace gpuflight::recorder
