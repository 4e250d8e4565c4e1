#include "recorder/drain.h"

#include <algorithm>

#include "flight/record_event.h"

namespace gpuflight::recorder {
namespace {

constexpr std::size_t kBatchBytes = 512 * 1024;  // at most; never more than a segment
constexpr std::uint64_t kEndLineBytes = 4096;
constexpr std::int64_t kSecond = 1'000'000'000;
// Lines whose time is further than this behind a line already written are flagged late (docs/FORMAT.md, "Order").
constexpr std::int64_t kOrderWindowNs = kSecond;

using event::LossCause;
using flight::RecordKind;
using flight::RecordPhase;

constexpr std::size_t index(LossCause cause) { return static_cast<std::size_t>(cause); }

}  // namespace

Drain::Drain(const Parts& parts, const Options& options)
    : parts_(parts),
      details_(options.details),
      summaries_only_(options.summaries_only),
      dump_events_(options.dump_events),
      rule_(options.rule),
      black_box_(parts.rings, parts.file.chunk_count()),
      batch_bytes_(parts.sink.segment_limit() == 0
                       ? kBatchBytes
                       : std::min<std::size_t>(kBatchBytes, parts.sink.segment_limit())),
      unknown_config_(log::render_unknown_config(options.details)) {
  buffer_.reserve(batch_bytes_ + 128 * 1024);
  // Never more than there are slots and chunks: what follows cannot fail.
  cursors_.reserve(event::kMaxThreadSlots);
  progress_.reserve(parts.file.chunk_count() + 1);
  emptied_.reserve(parts.file.chunk_count());
  refused_.reserve(parts.file.chunk_count());
}

void Drain::append_prologue(log::Buffer& out, std::uint32_t segment) noexcept {
  log::append_session_start(out, session_, segment);
  for (int i = 0; i < capture::DeviceQuery::kMaxDevices; ++i) {
    const event::Seq seq = device_seqs_[static_cast<std::size_t>(i)];
    if (seq.value != 0) log::append_device_info(out, *parts_.devices.known(i), seq);
  }
  for (std::uint32_t id = 1; id < streams_written_; ++id) {
    if (const event::StreamInfo* const stream = parts_.streams.row(id)) {
      event::StreamInfo line = *stream;
      line.seq = stream_seqs_[id];
      log::append_stream_info(out, line);
    }
  }
}

std::uint64_t Drain::round() noexcept {
  const std::int64_t now = parts_.launches.now_ns();
  second_ends_ns_ = now - second_began_ns_ >= kSecond ? now : 0;
  write_new_devices();
  waiting_.clear();
  std::uint64_t taken = 0;
  const std::uint32_t slots = parts_.rings.slots_used();
  if (cursors_.size() < slots) cursors_.resize(slots);
  for (std::uint32_t slot = 1; slot < slots; ++slot) taken += drain_slot(slot);
  flush();
  return taken;
}

std::uint64_t Drain::drain_slot(std::uint32_t slot) noexcept {
  const flight::Ring* const ring = parts_.rings.ring(slot);
  if (ring == nullptr) return 0;
  Cursor& cursor = cursors_[slot];
  if (cursor.chunk == flight::kNoChunk) {
    cursor.chunk = parts_.rings.first_chunk(*ring);
    if (cursor.chunk == flight::kNoChunk) return 0;
  }
  std::uint64_t taken = 0;
  for (;;) {
    flight::Chunk& chunk = parts_.rings.chunk(cursor.chunk);
    const std::uint64_t first = parts_.rings.first_counter(cursor.chunk);
    const std::uint32_t committed =
        std::min(chunk.header.committed.load(std::memory_order_acquire), flight::kRecordsPerChunk);
    const std::uint32_t before = cursor.taken;
    bool waits = false;
    while (cursor.taken < committed) {
      const flight::Record& record = chunk.records[cursor.taken];
      const auto phase = static_cast<RecordPhase>(record.phase.load(std::memory_order_acquire));
      if (phase == RecordPhase::kEntered) {  // the call has not come back: the last record of this thread
        waits = true;
        note_waiting(record);
        break;
      }
      take(record, phase, event::Seq(slot, first + cursor.taken));
      ++cursor.taken;
      ++taken;
      ++taken_total_;
      if (buffer_.size() >= batch_bytes_) {
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

// Counts a record, tells the watch of it, and writes or summarises it.
void Drain::take(const flight::Record& record, RecordPhase phase, event::Seq seq) noexcept {
  bool summarise = summaries_only_;
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kKernelLaunch: {
      const event::KernelLaunch launch = flight::to_kernel_launch(record, phase, seq);
      count_kernel(launch);
      if (parts_.watch != nullptr) parts_.watch->on_launch(launch);
      if (rule_ && rule_->matches(launch)) rule_matched_ = true;
      summarise = summarise || summarising_;
      const bool of_next = second_ends_ns_ != 0 && launch.launch_ns > second_ends_ns_;
      if (summarise && !(of_next ? next_second_ : second_).add(launch)) {
        ++write_failed_;
        return;
      }
      break;
    }
    case RecordKind::kGraphLaunch: {
      const event::GraphLaunch launch = flight::to_graph_launch(record, phase, seq);
      ++counts_.graph_launches;
      if (launch.status.has_value() && *launch.status != 0) ++counts_.failed;
      if (parts_.watch != nullptr) parts_.watch->on_graph(launch);
      break;
    }
    case RecordKind::kApiCall:
      if (parts_.watch != nullptr) {
        parts_.watch->on_call(flight::to_api_event(record, phase, seq), flight::context_of_call(record));
      }
      break;
    case RecordKind::kScopeBegin:
    case RecordKind::kScopeEnd:
    case RecordKind::kMark:
      break;
    default:
      ++unknown_records_;
      return;
  }
  if (summarise) {
    ++summarised_;
  } else if (!write(record, phase, seq)) {
    ++write_failed_;
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

// The record as its line. False: no memory for it.
bool Drain::write(const flight::Record& record, RecordPhase phase, event::Seq seq) noexcept {
  const std::string_view scope = rendered_scope(record.scope);
  const bool late = record.launch_ns + kOrderWindowNs < newest_ns_;
  bool written = false;
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kKernelLaunch: {
      event::KernelLaunch launch = flight::to_kernel_launch(record, phase, seq);
      launch.late = late;
      // The stream first: one that is new writes its stream_info line into the buffer.
      const log::RenderedStream& stream = rendered_stream(record.stream);
      written = log::append_kernel_event(buffer_, rendered_config(record.config), stream, scope, launch);
      break;
    }
    case RecordKind::kGraphLaunch:
      written = log::append_graph_launch_event(buffer_, rendered_stream(record.stream), scope,
                                               flight::to_graph_launch(record, phase, seq));
      break;
    case RecordKind::kApiCall: {
      event::ApiEvent call = flight::to_api_event(record, phase, seq);
      call.late = late;
      rendered_stream(record.stream);
      written = log::append_api_event(buffer_, scope, call);
      break;
    }
    default:
      written = log::append_scope_event(buffer_, scope, flight::to_scope_event(record, seq));
      break;
  }
  if (written) {
    ++buffered_events_;
    if (record.launch_ns > newest_ns_) newest_ns_ = record.launch_ns;
  }
  return written;
}

// Caches by id, filled on first sight. Without memory the unknown one serves: a line with nulls beats no line.
log::RenderedConfig& Drain::rendered_config(std::uint32_t id) noexcept {
  if (id == 0) return unknown_config_;
  try {
    if (id >= configs_.size()) configs_.resize(id + 1);
    if (!configs_[id].valid()) {
      const event::KernelConfig* const config = parts_.kernels.config(event::ConfigId{id});
      const event::KernelInfo* const kernel = config != nullptr ? parts_.kernels.kernel(config->kernel) : nullptr;
      if (kernel == nullptr) return unknown_config_;
      const event::DeviceInfo* const device = parts_.devices.known(kernel->device);
      configs_[id] =
          log::render_config(*kernel, *config, event::ConfigId{id}, details_, device != nullptr ? device->sm_count : 0);
    }
    return configs_[id].valid() ? configs_[id] : unknown_config_;
  } catch (...) {
    return unknown_config_;
  }
}

const log::RenderedStream& Drain::rendered_stream(std::uint32_t id) noexcept {
  if (id >= streams_written_) write_new_streams();
  return id != 0 && id < streams_.size() ? streams_[id] : unknown_stream_;
}

std::string_view Drain::rendered_scope(std::uint32_t id) noexcept {
  if (id == 0) return {};
  try {
    if (id >= scopes_.size()) scopes_.resize(id + 1);
    if (scopes_[id].empty()) {
      if (const std::string* const path = parts_.scopes.path(event::ScopeId{id})) {
        log::Buffer text;
        log::append_json_string(text, *path);
        scopes_[id] = text.view();
      }
    }
    return scopes_[id];
  } catch (...) {
    return {};
  }
}

void Drain::write_new_devices() noexcept {
  for (int i = 0; i < capture::DeviceQuery::kMaxDevices; ++i) {
    event::Seq& written = device_seqs_[static_cast<std::size_t>(i)];
    if (written.value != 0) continue;
    const event::DeviceInfo* const device = parts_.devices.known(i);
    if (device == nullptr) continue;
    const event::Seq seq = own_seq();
    if (log::append_device_info(buffer_, *device, seq)) written = seq;
  }
}

void Drain::write_new_streams() noexcept {
  write_new_devices();
  try {
    for (const std::uint32_t used = parts_.streams.used(); streams_written_ < used; ++streams_written_) {
      if (streams_.size() <= streams_written_) streams_.resize(streams_written_ + 1);
      if (stream_seqs_.size() <= streams_written_) stream_seqs_.resize(streams_written_ + 1);
      const event::StreamInfo* const row = parts_.streams.row(streams_written_);
      if (row == nullptr) continue;
      event::StreamInfo line = *row;
      line.seq = stream_seqs_[streams_written_] = own_seq();
      log::append_stream_info(buffer_, line);
      streams_[streams_written_] = log::render_stream(*row);
    }
  } catch (...) {
  }
}

void Drain::say(event::Notice notice) noexcept {
  notice.seq = own_seq();
  if (notice.time_ns == 0) notice.time_ns = parts_.launches.now_ns();
  log::append_notice_event(buffer_, notice);
}

void Drain::write_due_summaries(bool now) noexcept {
  if (second_ends_ns_ == 0 && !now) return;
  if (second_ends_ns_ != 0) write_second(std::exchange(second_ends_ns_, 0));
  if (now) write_second(parts_.launches.now_ns());
  // Back to events only here, so that whole seconds are summed up.
  if (summarising_ && !now && !parts_.sink.must_summarise(second_began_ns_)) summarise(false);
  flush();
}

void Drain::write_second(std::int64_t ends_ns) noexcept {
  second_.take(second_began_ns_, ends_ns, [&](event::KernelSummary& summary) {
    summary.seq = own_seq();
    log::append_kernel_summary(buffer_, rendered_config(summary.config.value), summary);
  });
  second_began_ns_ = ends_ns;
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
  for (event::ErrorEvent& error : incidents.errors) {
    error.seq = own_seq();
    log::append_error_event(buffer_, error);
  }
  for (event::HangEvent& hang : incidents.hangs) {
    hang.seq = own_seq();
    log::append_hang_event(buffer_, hang);
  }
  flush();
}

void Drain::write_fork(event::ForkEvent fork) noexcept {
  fork.seq = own_seq();
  log::append_fork_event(buffer_, fork);
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
      if (!write(record, phase, seq)) return;
      ++dumped;
      --summarised_;
      if (buffer_.size() >= batch_bytes_) flush();
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
  loss.seq = own_seq();
  loss.time_ns = parts_.launches.now_ns();
  loss.ledger = now;
  if (!log::append_loss_event(buffer_, loss)) return;
  flush();
  if (last_error_ == 0) losses_said_ = now.lost;  // else it is said when there is room again
}

void Drain::write_end(event::SessionEnd end) noexcept {
  write_due_summaries(true);
  session_summary_.take(0, parts_.launches.now_ns(), [&](event::KernelSummary& summary) {
    summary.seq = own_seq();
    summary.session = true;
    log::append_kernel_summary(buffer_, rendered_config(summary.config.value), summary);
    if (buffer_.size() >= batch_bytes_) flush();
  });
  write_losses();
  flush();
  parts_.sink.make_way(kEndLineBytes);  // what must go goes now, so that the line counts it
  rotated_away_ += parts_.sink.take_rotated_away();
  end.seq = own_seq();
  end.time_ns = parts_.launches.now_ns();
  end.ledger = ledger();
  end.bytes_written = parts_.sink.bytes_written();
  log::append_session_end(buffer_, end);
  flush();
}

void Drain::flush() noexcept {
  if (!buffer_.empty()) {
    const log::WriteOutcome outcome = parts_.sink.write(buffer_.view(), buffered_events_, newest_ns_);
    written_ += outcome.events_written;
    write_failed_ += buffered_events_ - outcome.events_written;
    last_error_ = outcome.error;
    rotated_away_ += parts_.sink.take_rotated_away();
    buffer_.clear();
    buffered_events_ = 0;
    // After each batch: within a second a fast program can fill a small bound several times.
    if (!summaries_only_ && !summarising_ && parts_.sink.must_summarise(parts_.launches.now_ns())) summarise(true);
  }
  // Only now: a chunk is free again when its lines are written.
  for (const Progress& p : progress_) {
    parts_.rings.chunk(p.chunk).header.taken.store(p.taken, std::memory_order_release);
  }
  progress_.clear();
  emptied_.insert(emptied_.end(), refused_.begin(), refused_.end());
  refused_.clear();
  for (const std::uint32_t chunk : emptied_) {
    if (!parts_.rings.give_back(chunk)) refused_.push_back(chunk);
  }
  emptied_.clear();
  publish_counters();
}

bool Drain::chunk_needed(std::uint32_t chunk) const noexcept {
  return std::any_of(cursors_.begin(), cursors_.end(), [&](const Cursor& c) { return c.chunk == chunk; });
}

event::Ledger Drain::ledger() noexcept {
  event::Ledger ledger;
  const std::uint64_t dropped = parts_.rings.dropped();
  const std::uint64_t without_slot = parts_.launches.without_slot();
  ledger.seen = parts_.rings.seen() + without_slot;
  ledger.written = written_;
  ledger.summarised = summarised_;
  ledger.lost[index(LossCause::kPoolEmpty)] = dropped;
  ledger.lost[index(LossCause::kNoThreadSlot)] = without_slot;
  ledger.lost[index(LossCause::kWriteFailed)] = write_failed_;
  ledger.lost[index(LossCause::kUnknownRecord)] = unknown_records_;
  // Counted by itself, not as what is left over: begun and not returned, committed and not taken, rendered and not in
  // the file. So the sum is a check.
  ledger.pending = parts_.rings.seen() - dropped - taken_total_ + buffered_events_;
  ledger.rotated_away = rotated_away_;
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
  put(block.table_full, table_full_);
  put(block.occupancy_mismatch, parts_.resolver.occupancy_mismatches());
  put(block.lost[index(LossCause::kNoThreadSlot)], parts_.launches.without_slot());
  put(block.lost[index(LossCause::kWriteFailed)], write_failed_);
  put(block.lost[index(LossCause::kUnknownRecord)], unknown_records_);
  put(block.bytes, parts_.sink.bytes_written());
  put(block.drained, taken_total_);
}

}  // namespace gpuflight::recorder
