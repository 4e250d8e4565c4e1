#include "analysis/recovery.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

#include "event/api_call.h"
#include "event/driver_status.h"
#include "flight/record_event.h"

namespace gpuflight::analysis {
namespace {

using event::LossCause;
using flight::RecordKind;
using flight::RecordPhase;

constexpr std::uint64_t kDumpEvents = 100'000;  // what the option dump_events is when it is not set

// What a hostile log can make us remember; a recorder's own tables are smaller.
constexpr std::size_t kMaxTails = 100'000, kMaxLogConfigs = 400'000, kMaxDevices = 1024, kMaxHangs = 1024;

constexpr std::size_t index(LossCause cause) { return static_cast<std::size_t>(cause); }

// A flight file may name anything as its log: a pipe would hold us up for ever.
bool can_read(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), R_OK) == 0;
}

// The log, or what is left of it when the live file is gone.
bool log_exists(const std::string& path) {
  const std::vector<std::string> files = log::log_segments(path);
  return std::any_of(files.begin(), files.end(), can_read);
}

}  // namespace

std::string RecoveryResult::recovered_stem() const {
  const auto without = [](std::string name, std::string_view suffix) {
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    return name;
  };
  const bool has_log = !log_path.empty() && log_path != "-";
  return (has_log ? without(log_path, ".ndjson") : without(flight_path, ".flight")) + ".recovered";
}

std::uint64_t RecoveryLedger::lost_total() const {
  std::uint64_t sum = unfinished + unexplained;
  for (const std::uint64_t n : lost) sum += n;
  return sum;
}

Recovery::Recovery(std::string flight_path, RecoveryOptions options)
    : flight_path_(std::move(flight_path)), options_(std::move(options)) {}

void Recovery::run() {
  {
    flight::FlightReader reader(flight_path_);
    flight_ = reader.read();
  }
  result_.flight_path = flight_path_;
  result_.header = flight_.header;
  result_.flight_bytes = flight_.actual_bytes;
  const flight::FlightHeader& header = flight_.header;
  // Before the log is read: a process that ends meanwhile was alive while its flight file was read.
  result_.process =
      look_for_process({header.pid, header.process_start_ticks, header.boot_id, header.host, flight_path_});
  if (options_.replaced && result_.process == ProcessState::kGone) result_.process = ProcessState::kReplaced;
  const bool closed = header.state == flight::SessionState::kClosed;
  alive_ = !closed && (result_.process == ProcessState::kRunning || result_.process == ProcessState::kElsewhere);
  const bool same_clock = result_.process != ProcessState::kRebooted && result_.process != ProcessState::kElsewhere;
  const std::int64_t now = monotonic_ns();
  if (same_clock && header.t0_monotonic_ns > 0 && header.t0_monotonic_ns <= now) {
    const auto since_t0 = static_cast<std::uint64_t>(now - header.t0_monotonic_ns);
    if (header.heartbeat_ns <= since_t0) result_.silent_ns = static_cast<std::int64_t>(since_t0 - header.heartbeat_ns);
  }
  for (const flight::FlightSlot& slot : flight_.slots) {
    slots_.push_back({slot.seen, 0, 0, slot.seen});
  }
  in_log_.assign(flight_.record_count(), false);
  unknown_config_ = log::render_unknown_config(header.details);
  find_log();
  if (!result_.log_path.empty()) read_log();
  choose_records();
  balance_slots();
  take_exit();
  if (!alive_) look_at_recovered_files();
  judge();
  for (auto& [id, tail] : tails_) {
    tail.info = flight_.stream(tail.stream);
    result_.streams.push_back(std::move(tail));
  }
  tails_.clear();
  std::sort(result_.open_calls.begin(), result_.open_calls.end(),
            [](const LastLaunch& a, const LastLaunch& b) { return a.launch_ns < b.launch_ns; });
  result_.flight_troubles = flight_.troubles;
}

void Recovery::find_log() {
  const std::string& named = flight_.header.log_path;
  if (!options_.log.empty()) {
    if (options_.log != "-" && !log_exists(options_.log)) {
      throw std::runtime_error(options_.log + ": there is no log of that name that I can read");
    }
    result_.log_path = options_.log;
    return;
  }
  if (named.empty()) {
    result_.log_problem = "the flight file names no log";
    return;
  }
  if (log_exists(named)) {
    result_.log_path = named;
    return;
  }
  // The two may have been moved together.
  namespace fs = std::filesystem;
  const std::string beside = (fs::path(flight_path_).parent_path() / fs::path(named).filename()).string();
  if (log_exists(beside)) {
    result_.log_path = beside;
    return;
  }
  result_.log_problem = "its log " + named + " is not there; --log tells where it is";
}

void Recovery::read_log() {
  log::ReadOptions options;
  options.types = 0;
  for (const auto type : {log::LineType::kKernel, log::LineType::kGraphLaunch, log::LineType::kScope,
                          log::LineType::kSessionStart, log::LineType::kDeviceInfo, log::LineType::kStreamInfo,
                          log::LineType::kKernelSummary, log::LineType::kSessionEnd, log::LineType::kSync,
                          log::LineType::kApi, log::LineType::kError, log::LineType::kHang, log::LineType::kMemcpy,
                          log::LineType::kMemset, log::LineType::kMemory, log::LineType::kStreamEdge}) {
    options.types |= log::line_type_bit(type);
  }
  log::LogReader reader(result_.log_path, options);
  if (const int error = reader.open(); error != 0 && error != ENOENT) {
    throw std::runtime_error(result_.log_path + ": " + std::strerror(error));
  }
  for (log::LogEvent event; reader.next(event) == log::LogReader::Status::kEvent;) take_line(event);
  result_.log_stats = reader.stats();
  if (our_sessions_ > 0 || foreign_sessions_ == 0) return;
  const std::string what = result_.log_path + " is the log of another recording";
  if (!options_.log.empty()) throw std::runtime_error(what);
  result_.log_problem = what;
  result_.log_path.clear();
}

void Recovery::take_line(const log::LogEvent& event) {
  if (const auto* start = std::get_if<log::SessionStartLine>(&event)) return take_session(*start);
  if (!log_is_ours_) return;
  LastLaunch launch;
  const auto take_launch = [&](const auto& line) {
    launch.seq = line.launch.seq;
    launch.stream = line.launch.stream;
    launch.thread = line.launch.thread;
    launch.launch_ns = line.launch.launch_ns;
    launch.returned_by_ns = line.launch.returned_by();
    launch.call_ns = line.launch.call_ns;
    launch.status = line.launch.status;
    launch.captured = line.launch.captured;
    // What had not come back is written only when the thread has gone on without it.
    launch.call = launch.status ? LastLaunch::Call::kReturned : LastLaunch::Call::kAbandoned;
    take_seq(launch.seq, launch.launch_ns);
  };
  if (const auto seq = log::thread_seq(event); seq && seq->slot() == event::kGpuSlot) {
    take_seq(*seq, 0);  // never in a ring, nothing of it is to be recovered
    return;
  }
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) {
    take_launch(*kernel);
    launch.config = kernel->launch.config;
    launch.grid = kernel->launch.grid;
    if (kernel->config_known && !flight_.config(launch.config) && log_configs_.size() < kMaxLogConfigs) {
      log_configs_.try_emplace(launch.config.value, LaunchWhat{kernel->kernel.name, kernel->shape.block,
                                                               kernel->shape.dyn_shared_bytes, true});
    }
    note_launch(launch);
  } else if (const auto* graph = std::get_if<log::GraphLaunchLine>(&event)) {
    take_launch(*graph);
    launch.graph_launch = true;
    launch.graph = graph->launch.graph;
    note_launch(launch);
  } else if (const auto* scope = std::get_if<log::ScopeLine>(&event)) {
    take_seq(scope->event.seq, scope->event.time_ns);
  } else if (const log::ApiLine* const call = log::api_line(event)) {
    take_seq(call->call.seq, call->call.time_ns);
    note_call(call->call);
  } else if (const auto* copy = std::get_if<log::MemcpyLine>(&event)) {
    take_work(copy->copy);
  } else if (const auto* fill = std::get_if<log::MemsetLine>(&event)) {
    take_work(fill->fill);
  } else if (const auto* memory = std::get_if<log::MemoryLine>(&event)) {
    take_seq(memory->memory.seq, memory->memory.time_ns);
  } else if (const auto* edge = std::get_if<log::StreamEdgeLine>(&event)) {
    take_seq(edge->edge.seq, edge->edge.time_ns);
  } else if (const auto* error = std::get_if<event::ErrorEvent>(&event)) {
    if (!error_in_log_) result_.error = *error;
    error_in_log_ = true;
  } else if (const auto* hang = std::get_if<event::HangEvent>(&event)) {
    note_hang(*hang);
  } else if (const auto* device = std::get_if<log::DeviceInfoLine>(&event)) {
    if (devices_.size() < kMaxDevices) devices_[device->device.device] = *device;
  } else if (const auto* stream = std::get_if<event::StreamInfo>(&event)) {
    if (stream_seqs_.size() < kMaxTails) stream_seqs_[stream->stream.value] = stream->seq;
  } else if (const auto* summary = std::get_if<log::KernelSummaryLine>(&event)) {
    if (!summary->summary.session) summarised_until_ns_ = std::max(summarised_until_ns_, summary->summary.to_ns);
  } else if (const auto* end = std::get_if<event::SessionEnd>(&event)) {
    result_.end = *end;
  }
}

// A copy or a fill: its call is in the ring.
template <class Event>
void Recovery::take_work(const Event& work) {
  take_seq(work.seq, work.origin.launch_ns.value_or(0));
}

void Recovery::take_session(const log::SessionStartLine& line) {
  const event::SessionStart& s = line.session;
  log_is_ours_ = s.t0_unix_ns == flight_.header.t0_unix_ns && s.pid == flight_.header.pid;
  ++(log_is_ours_ ? our_sessions_ : foreign_sessions_);
  if (!log_is_ours_) return;
  session_ = line;
  last_segment_ = std::max(last_segment_, line.segment);
}

Recovery::SlotCount& Recovery::slot_count(std::uint32_t slot) {
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  return slots_[slot];
}

void Recovery::take_seq(event::Seq seq, std::int64_t time_ns) {
  newest_log_ns_ = std::max(newest_log_ns_, time_ns);
  // A number no recorder gives; the line is not of this recording.
  if (seq.slot() == event::kRecorderSlot || seq.slot() >= event::kMaxThreadSlots) return;
  SlotCount& slot = slot_count(seq.slot());
  if (const auto record = flight_.find(seq)) {
    if (in_log_[*record]) ++result_.ledger.surplus;
    in_log_[*record] = true;
  }
  // A live process writes on while we read: beyond what the flight file told of, nothing is counted.
  if (alive_ && seq.counter() >= slot.seen) return;
  ++slot.in_log;
  slot.end = std::max(slot.end, seq.counter() + 1);
}

void Recovery::choose_records() {
  const bool history = options_.history || flight_.header.blackbox;
  for (const flight::HeldChunk& chunk : flight_.chunks) {
    SlotCount& slot = slot_count(chunk.slot);
    for (std::uint32_t i = 0; i < chunk.count; ++i) {
      const std::size_t at = chunk.first_record + i;
      const event::Seq seq(chunk.slot, chunk.first_counter + i);
      if (!flight_.usable(at) || in_log_[at] || (alive_ && seq.counter() >= slot.seen)) continue;
      note_record(at, seq);
      slot.end = std::max(slot.end, seq.counter() + 1);
      const bool taken = i < chunk.taken || (flight_.record(at).flags & flight::kFlagSummarised) != 0;
      // Dealt with before the last summary line: it stands there.
      const bool in_summary =
          taken && flight_.ledger.summarised > 0 && flight_.record(at).launch_ns <= summarised_until_ns_;
      if (in_summary) {
        if (!history) continue;
        ++result_.history;
      } else {
        ++slot.recovered;
        ++result_.ledger.recovered;
        if (taken) ++recovered_taken_;
      }
      chosen_.push_back({at, seq, in_summary});
    }
  }
  std::sort(chosen_.begin(), chosen_.end(), [&](const Chosen& a, const Chosen& b) {
    const std::int64_t x = flight_.record(a.record).launch_ns, y = flight_.record(b.record).launch_ns;
    return x != y ? x < y : a.seq < b.seq;
  });
  if (!options_.history) limit_history();
}

// As a dump by the recorder itself would have been limited.
void Recovery::limit_history() {
  std::uint64_t most = options_.history_events.value_or(kDumpEvents);
  if (!options_.history_events && session_) {
    for (const auto& [key, value] : session_->session.configuration) {
      if (key == "dump_events") std::from_chars(value.data(), value.data() + value.size(), most);
    }
  }
  if (result_.history <= most) return;
  std::uint64_t drop = result_.history - most;
  std::erase_if(chosen_, [&](const Chosen& chosen) { return chosen.history && drop > 0 && drop-- > 0; });
  result_.history = most;
}

// The thread had asked for this record (`seen`) and not published it yet (`committed`).
bool Recovery::is_unfinished(std::uint32_t slot) const {
  auto after = std::upper_bound(flight_.chunks.begin(), flight_.chunks.end(), slot,
                                [](std::uint32_t s, const flight::HeldChunk& chunk) { return s < chunk.slot; });
  if (after == flight_.chunks.begin() || (--after)->slot != slot) return false;
  return after->count < after->room && after->first_counter + after->count + 1 == slots_[slot].seen;
}

void Recovery::balance_slots() {
  RecoveryLedger& ledger = result_.ledger;
  std::uint64_t missing_total = 0, gpu_missing = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    SlotCount& slot = slots_[i];
    if (!alive_ && slot.end > slot.seen) {  // damaged: the events themselves know better
      ++flight_.troubles[static_cast<std::size_t>(flight::FlightTrouble::kBadSlot)];
      slot.seen = slot.end;
    }
    ledger.seen += slot.seen;
    ledger.in_log += slot.in_log;
    std::uint64_t missing = slot.seen;
    for (const std::uint64_t found : {slot.in_log, slot.recovered}) {
      ledger.surplus += found > missing ? found - missing : 0;
      missing -= std::min(missing, found);
    }
    const std::uint64_t said = i < flight_.slots.size() ? flight_.slots[i].dropped : 0;
    const std::uint64_t dropped = std::min(missing, said);
    ledger.surplus += said - dropped;
    ledger.lost[index(LossCause::kPoolEmpty)] += dropped;
    missing -= dropped;
    if (!alive_ && missing > 0 && is_unfinished(i)) {
      ++ledger.unfinished;
      --missing;
    }
    missing_total += missing;
    if (i == event::kGpuSlot) gpu_missing = missing;
  }
  const std::uint64_t without_slot = flight_.ledger.lost[index(LossCause::kNoThreadSlot)];
  ledger.seen += without_slot;
  ledger.lost[index(LossCause::kNoThreadSlot)] = without_slot;
  const std::uint64_t of_gpu =
      std::min(flight_.ledger.lost[index(LossCause::kCuptiDropped)], std::uint64_t{1} << 60);
  ledger.seen += of_gpu;
  ledger.lost[index(LossCause::kCuptiDropped)] = of_gpu;
  explain_missing(missing_total);
  // What the GPU told and the recorder was about to write has no record to be recovered from, and no launch of the
  // program's stands for it alone: it was not seen.
  const std::uint64_t unwritten = std::min(ledger.unexplained, gpu_missing);
  ledger.unexplained -= unwritten;
  ledger.seen -= unwritten;
}

// `missing`: seen, neither in the log nor recovered, and not dropped. The recorder's counters tell what became of them.
void Recovery::explain_missing(std::uint64_t missing) {
  RecoveryLedger& ledger = result_.ledger;
  const event::Ledger& said = flight_.ledger;
  struct Part {
    std::uint64_t said;
    std::uint64_t* to;
  };
  // In the order in which what is recovered after all may have been counted as something else.
  const std::array<Part, 6> parts = {{
      {said.lost[index(LossCause::kWriteFailed)], &ledger.lost[index(LossCause::kWriteFailed)]},
      {said.summarised, &ledger.summarised},
      {said.rotated_away, &ledger.rotated_away},
      {said.lost[index(LossCause::kRecycled)], &ledger.lost[index(LossCause::kRecycled)]},
      {said.lost[index(LossCause::kUnknownRecord)], &ledger.lost[index(LossCause::kUnknownRecord)]},
      {said.lost[index(LossCause::kShutdown)], &ledger.lost[index(LossCause::kShutdown)]},
  }};
  std::uint64_t told = 0;
  for (const Part& part : parts) {
    // A damaged counter must not wrap the sum.
    *part.to = std::min(part.said, std::uint64_t{1} << 60);
    told += *part.to;
  }
  if (missing >= told) {
    (alive_ ? ledger.in_motion : ledger.unexplained) = missing - told;
  } else {
    std::uint64_t excess = told - missing;
    ledger.surplus += excess - std::min(excess, recovered_taken_);
    for (const Part& part : parts) {
      const std::uint64_t less = std::min(excess, *part.to);
      *part.to -= less;
      excess -= less;
    }
  }
  if (alive_) ledger.surplus = 0;  // its counters moved on while we read
}

void Recovery::note_record(std::size_t record, event::Seq seq) {
  const flight::Record& r = flight_.record(record);
  result_.last_event_ns = std::max(result_.last_event_ns, r.launch_ns);
  const auto kind = static_cast<RecordKind>(r.kind);
  const RecordPhase phase = flight_.phase(record);
  if (kind == RecordKind::kApiCall) return note_call(flight::to_api_event(r, phase, seq));
  if (kind != RecordKind::kKernelLaunch && kind != RecordKind::kGraphLaunch) return;
  const event::KernelLaunch event = flight::to_kernel_launch(r, phase, seq);
  LastLaunch launch;
  launch.seq = seq;
  launch.graph_launch = kind == RecordKind::kGraphLaunch;
  launch.graph = event::GraphId{r.graph};
  launch.config = event.config;
  launch.stream = event.stream;
  launch.grid = event.grid;
  launch.thread = event.thread;
  launch.launch_ns = event.launch_ns;
  launch.returned_by_ns = event.returned_by();
  launch.call_ns = event.call_ns;
  launch.status = event.status;
  launch.captured = event.captured;
  launch.recovered = true;
  launch.call = phase == RecordPhase::kReturned  ? LastLaunch::Call::kReturned
                : phase == RecordPhase::kEntered ? LastLaunch::Call::kInside
                                                 : LastLaunch::Call::kAbandoned;
  note_launch(launch);
}

// A call that returned an error after which the context is dead, and whose error the recorder had no time to write.
void Recovery::note_call(const event::ApiEvent& call) {
  if (!call.status || event::sticky_status(*call.status) == nullptr) return;
  const std::int64_t time_ns = call.time_ns + call.call_ns.value_or(0);
  if (error_in_log_ || (result_.error && result_.error->time_ns <= time_ns)) return;
  event::ErrorEvent error;
  error.time_ns = time_ns;
  error.code = *call.status;
  error.name = event::sticky_status(*call.status)->name;
  error.call = event::facts(static_cast<event::ApiCall>(call.call)).name;
  error.thread = call.thread;
  result_.error = std::move(error);
}

void Recovery::note_hang(const event::HangEvent& hang) {
  newest_log_ns_ = std::max(newest_log_ns_, hang.time_ns);
  const std::uint32_t stream = hang.stream.stream.value;
  if (hang.phase == event::HangEvent::Phase::kEnd) {
    result_.hangs.erase(stream);
  } else if (result_.hangs.size() < kMaxHangs) {
    result_.hangs[stream] = hang;
  }
}

void Recovery::note_launch(const LastLaunch& launch) {
  result_.last_event_ns = std::max(result_.last_event_ns, launch.launch_ns);
  if (launch.status && event::sticky_status(*launch.status) != nullptr) {
    ++result_.cuda_error_launches;
    if (!result_.cuda_error || launch.launch_ns < result_.cuda_error->launch_ns) result_.cuda_error = launch;
  }
  if (launch.call == LastLaunch::Call::kInside) result_.open_calls.push_back(launch);
  const std::size_t most = std::clamp<std::size_t>(options_.last, 1, kMaxLast);
  if (launch.captured) return;  // did not run
  auto tail = tails_.find(launch.stream.value);
  if (tail == tails_.end()) {
    if (tails_.size() >= kMaxTails) return;
    tail = tails_.emplace(launch.stream.value, StreamTail{}).first;
    tail->second.stream = launch.stream;
    tail->second.finished_ns = flight_.finished_ns(launch.stream);
  }
  note_progress(tail->second, launch);
  std::vector<LastLaunch>& last = tail->second.last;
  if (last.size() == most && launch.launch_ns <= last.front().launch_ns) return;
  if (last.size() == most) last.erase(last.begin());
  last.insert(std::upper_bound(last.begin(), last.end(), launch,
                               [](const LastLaunch& a, const LastLaunch& b) { return a.launch_ns < b.launch_ns; }),
              launch);
}

// A launch that was refused never was in the stream.
void Recovery::note_progress(StreamTail& tail, const LastLaunch& launch) {
  if (tail.finished_ns == 0 || launch.status.value_or(0) != 0) return;
  if (tail.finished(launch)) {
    if (launch.launch_ns >= tail.completed_ns) {
      tail.completed_ns = launch.launch_ns;
      tail.completed_up_to = launch.seq;
    }
    return;
  }
  ++tail.unfinished;
  if (!tail.first_unfinished || launch.launch_ns < tail.first_unfinished->launch_ns) tail.first_unfinished = launch;
}

void Recovery::judge() {
  const bool closed = flight_.header.state == flight::SessionState::kClosed;
  result_.ended_in_order = closed || result_.end.has_value();
  result_.last_event_ns = std::max(result_.last_event_ns, newest_log_ns_);
  if (result_.cuda_error || result_.error) {
    result_.verdict = Verdict::kCudaError;
  } else if (result_.ended_in_order) {
    result_.verdict = Verdict::kClean;
  } else if (result_.process == ProcessState::kRunning) {
    result_.verdict = Verdict::kRunning;
  } else if (result_.process == ProcessState::kElsewhere) {
    result_.verdict = Verdict::kUnknown;
  }
}

LaunchWhat Recovery::describe(event::ConfigId id) const {
  LaunchWhat what;
  if (const auto config = flight_.config(id)) {
    what.block = config->shape.block;
    what.dyn_shared_bytes = config->shape.dyn_shared_bytes;
    what.known = true;
    if (const auto kernel = flight_.kernel(config->kernel)) what.kernel = kernel->name;
  } else if (const auto told = log_configs_.find(id.value); told != log_configs_.end()) {
    what = told->second;
  }
  return what;
}

}  // namespace gpuflight::analysis
