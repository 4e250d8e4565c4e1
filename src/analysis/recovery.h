// Joins a flight file with its log: which events never reached the log, what became of every event that was seen, and
// what the program's last launches were.
//
//   Recovery recovery(path, options);
//   recovery.run();
//   recovery.write_lines(sink);     // the recovered events as lines of a log
//   report(recovery.result());
//
// Works on a dead process's file and, read only, on a live one's. Memory is bounded by the pool of the flight file, not
// by the log. Flight file first, log second: what is in neither place then was lost.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/process_state.h"
#include "event/events.h"
#include "event/incidents.h"
#include "flight/flight_reader.h"
#include "log/decoder.h"
#include "log/encoder.h"

namespace gpuflight::analysis {

struct RecoveryOptions {
  std::string log;          // instead of the one the flight file names
  std::size_t last = 5;     // launches kept per stream, at most kMaxLast
  bool history = false;     // also write events that the log holds in summaries only; always so in black-box mode
  // Black box: of those at most so many, the latest; not given: as the recording's option dump_events has it.
  std::optional<std::uint64_t> history_events = std::nullopt;
  // How the process ended, from who was its parent; taken only when the flight file is of that very process.
  std::optional<event::ExitEvent> exit = std::nullopt;
  std::int64_t exit_monotonic_ns = 0;      // when; becomes exit.time_ns
  std::uint64_t exit_start_ticks = 0;      // field 22 of /proc/PID/stat; 0: not known
  bool replaced = false;                   // the process has gone on as another program (exec), as the caller knows
};
inline constexpr std::size_t kMaxLast = 1000;

enum class Verdict : std::uint8_t {
  kClean,      // the recording ended in order
  kCudaError,  // a launch returned an error after which its context is dead
  kRunning,    // the process is there and records
  kStopped,    // it is gone, and nothing here says why
  kUnknown,    // recorded on another machine: whether it runs cannot be told from here
};
inline constexpr std::array<const char*, 5> kVerdictNames = {"clean", "cuda_error", "running", "stopped", "unknown"};

struct LastLaunch {
  enum class Call : std::uint8_t { kReturned, kInside, kAbandoned };
  event::Seq seq;
  bool graph_launch = false;
  event::GraphId graph;
  event::ConfigId config;
  event::StreamId stream;
  event::Dim3 grid;
  std::uint32_t thread = 0;
  std::int64_t launch_ns = 0;
  event::MaybeNs returned_by_ns;  // null: not known
  event::MaybeNs call_ns;
  event::MaybeStatus status;
  Call call = Call::kReturned;
  bool captured = false;
  bool recovered = false;  // not from the log
};

struct StreamTail {
  event::StreamId stream;  // 0: of launches whose stream is not known
  std::optional<event::StreamInfo> info;
  std::vector<LastLaunch> last;  // oldest first
  // Work whose launch call had returned by finished_ns is known to have finished on the GPU; 0: nothing is known.
  std::int64_t finished_ns = 0;
  std::optional<event::Seq> completed_up_to;  // the latest such launch
  std::int64_t completed_ns = 0;              // and its launch time
  // Where something is known: launches not known to have finished, and the oldest of them.
  std::uint64_t unfinished = 0;
  std::optional<LastLaunch> first_unfinished;
  bool finished(const LastLaunch& launch) const {
    return launch.status == 0 && launch.returned_by_ns && *launch.returned_by_ns <= finished_ns;
  }
};

// What became of every event: seen = in_log + recovered + rotated_away + summarised + in_motion + lost.
struct RecoveryLedger {
  std::uint64_t seen = 0;
  std::uint64_t in_log = 0;
  std::uint64_t recovered = 0;      // in the flight file only
  std::uint64_t rotated_away = 0;   // was in the log, deleted with an old segment
  std::uint64_t summarised = 0;     // in summaries only
  std::uint64_t in_motion = 0;      // of a live process: on their way from there to the log while both were read
  std::array<std::uint64_t, event::kLossCauseCount> lost{};
  std::uint64_t unfinished = 0;     // lost: its thread was stopped while it wrote the record, before the call itself
  std::uint64_t unexplained = 0;    // lost: the recorder had dealt with them, neither log nor counters say how
  std::uint64_t surplus = 0;        // more in the log or in counters than was ever seen: should be 0
  std::uint64_t lost_total() const;
  bool balanced() const {
    return surplus == 0 && seen == in_log + recovered + rotated_away + summarised + in_motion + lost_total();
  }
};

struct RecoveryResult {
  std::string flight_path;
  std::string log_path;      // as read; empty: none
  std::string log_problem;   // why there is none, one line
  flight::FlightHeader header;
  std::array<std::uint64_t, flight::kFlightTroubleCount> flight_troubles{};
  std::uint64_t flight_bytes = 0;
  log::ReadStats log_stats;
  ProcessState process = ProcessState::kGone;
  std::optional<std::int64_t> silent_ns;  // since the recorder's last heartbeat, where our clock is the same
  Verdict verdict = Verdict::kStopped;
  bool ended_in_order = false;  // session_end in the log, or closed in the flight file
  std::optional<event::SessionEnd> end;
  std::optional<LastLaunch> cuda_error;  // the earliest launch with a sticky status
  std::uint64_t cuda_error_launches = 0;
  // The first of the log, else of calls in the flight file that returned a sticky error.
  std::optional<event::ErrorEvent> error;
  std::map<std::uint32_t, event::HangEvent> hangs;  // by stream: begun and not over
  // From options, else from a file that `gpuflight run` had left beside the log.
  std::optional<event::ExitEvent> exit;
  std::string recovered_path;  // such a file that has all the events to be written already; empty: none
  RecoveryLedger ledger;
  std::uint64_t history = 0;  // written beside the recovered ones: in the log's summaries already
  std::vector<LastLaunch> open_calls;  // begun and not returned, by time
  std::vector<StreamTail> streams;     // by id
  std::int64_t last_event_ns = 0;      // of log and flight file
  std::uint64_t to_write() const { return ledger.recovered + history; }
  // NAME.recovered: beside the log, else beside the flight file.
  std::string recovered_stem() const;
};

// What a launch was, for people: taken from the flight file's tables, else from the log.
struct LaunchWhat {
  std::string kernel;  // mangled; empty: not known
  event::Dim3 block{0, 0, 0};
  std::uint32_t dyn_shared_bytes = 0;
  bool known = false;
};

class Recovery {
 public:
  Recovery(std::string flight_path, RecoveryOptions options);

  // Throws flight::FlightError when the flight file cannot be read, std::runtime_error when a log that was asked for
  // cannot be, or belongs to another recording.
  void run();

  const RecoveryResult& result() const { return result_; }
  LaunchWhat describe(event::ConfigId config) const;

  // The recovered events as a segment of a log: session_start, devices, streams, a notice, the events by time, and the
  // losses, and how the process ended. Nothing where to_write() is 0 and the end is not known. The sink gets whole lines and may throw.
  using Sink = std::function<void(std::string_view)>;
  void write_lines(const Sink& sink);

 private:
  struct SlotCount {
    std::uint64_t seen = 0;
    std::uint64_t in_log = 0;     // lines with a counter below `seen`
    std::uint64_t recovered = 0;
    std::uint64_t end = 0;        // behind the highest counter in flight file and log
  };

  void find_log();
  void read_log();
  void take_line(const log::LogEvent& event);
  template <class Event>
  void take_work(const Event& work);
  void take_session(const log::SessionStartLine& line);
  void take_seq(event::Seq seq, std::int64_t time_ns);
  void choose_records();
  void limit_history();
  void take_exit();
  void look_at_recovered_files();
  bool look_at_recovered_file(const std::string& path);
  void balance_slots();
  void explain_missing(std::uint64_t missing);
  void judge();
  void note_record(std::size_t record, event::Seq seq);
  void note_launch(const LastLaunch& launch);
  static void note_progress(StreamTail& tail, const LastLaunch& launch);
  void note_call(const event::ApiEvent& call);
  void note_hang(const event::HangEvent& hang);
  SlotCount& slot_count(std::uint32_t slot);
  bool is_unfinished(std::uint32_t slot) const;

  event::SessionStart session_of_header() const;
  log::RenderedConfig& rendered_config(event::ConfigId id);
  std::string rendered_scope(event::ScopeId id) const;
  void append_record(log::Buffer& out, std::size_t record, event::Seq seq, std::int64_t& newest_ns);
  static void append_call(log::Buffer& out, const flight::Record& record, flight::RecordPhase phase, event::Seq seq,
                          const event::StreamInfo* stream, std::string_view scope, bool late);
  event::ExitEvent numbered_exit();
  event::Seq own_seq() { return event::Seq(event::kRecorderSlot, own_counter_++); }

  const std::string flight_path_;
  const RecoveryOptions options_;
  flight::FlightContents flight_;
  RecoveryResult result_;
  bool alive_ = false;

  // Of the log.
  std::vector<SlotCount> slots_;        // by slot
  std::vector<bool> in_log_;            // by record of the flight file
  bool log_is_ours_ = true;             // by the last session_start read
  std::uint64_t foreign_sessions_ = 0, our_sessions_ = 0;
  std::optional<log::SessionStartLine> session_;
  std::uint32_t last_segment_ = 0;
  std::map<std::int32_t, log::DeviceInfoLine> devices_;
  std::unordered_map<std::uint32_t, event::Seq> stream_seqs_;
  std::unordered_map<std::uint32_t, LaunchWhat> log_configs_;  // those the flight file does not know
  std::int64_t summarised_until_ns_ = -1;
  std::int64_t newest_log_ns_ = 0;

  // What to write: records of the flight file with their sequence numbers, by time.
  struct Chosen {
    std::size_t record;
    event::Seq seq;
    bool history;
  };
  std::vector<Chosen> chosen_;
  bool error_in_log_ = false;          // result_.error is of an error_event
  std::uint64_t recovered_taken_ = 0;  // of the recovered ones: the recorder had dealt with them

  std::map<std::uint32_t, StreamTail> tails_;
  std::unordered_map<std::uint32_t, log::RenderedConfig> configs_;
  std::size_t config_bytes_ = 0;
  log::RenderedConfig unknown_config_;
  // Far from the recorder's own numbers, so that what a live one writes later is not doubled.
  std::uint64_t own_counter_ = std::uint64_t{1} << (event::kSeqCounterBits - 1);
};

}  // namespace gpuflight::analysis
