// The recorder of this process: puts the parts together, starts and ends the recording, lives until the process is
// gone. There is at most one; a forked child gets its own when it first uses CUDA.
//
// Threads: start, pause, resume, flush, shutdown by any (serialised here); the recorder thread runs `run`. Never
// destroyed: app threads may be inside a callback at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <pthread.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/cupti_source.h"
#include "capture/error_board.h"
#include "capture/interpose_source.h"
#include "capture/marker_board.h"
#include "capture/launch_recorder.h"
#include "capture/notice_board.h"
#include "config/option_table.h"
#include "config/options.h"
#include "recorder/cost_budget.h"
#include "recorder/cost_meter.h"
#include "recorder/drain.h"
#include "recorder/event_times.h"
#include "recorder/fork_board.h"
#include "recorder/gpu_timing.h"
#include "recorder/incident_watch.h"
#include "recorder/recorder_thread.h"
#include "recorder/session.h"

namespace gpuflight::recorder {

enum class StartResult { kStarted, kAlready, kNotWanted, kNoDriver, kNoCupti, kSlotTaken, kIo, kInternal };

class Recorder {
 public:
  // Names and values of options, as in docs/OPTIONS.md.
  using GivenOptions = std::vector<std::pair<std::string, std::string>>;

  // Starts the one recorder with the options given, the environment's on top; what is wrong with them is said in its
  // log. Called from the API or, `inside_init`, by the driver inside the program's cuInit.
  static StartResult start(const GivenOptions& given, bool inside_init) noexcept;

  static const char* version() noexcept;

  // The one of this process, or null. Lock-free.
  static Recorder* current() noexcept;
  void end_bursts() noexcept { page_->end_bursts(); }

  StartResult source_result() const noexcept { return source_result_; }
  capture::LaunchRecorder& launches() noexcept { return *launches_; }

  StartResult pause(bool release) noexcept;
  StartResult resume() noexcept;
  // GPU times on or off while launches are recorded on.
  StartResult switch_timing(bool on) noexcept;
  bool recording() const noexcept;
  bool flush(std::uint32_t timeout_ms) noexcept;  // false: time ran out
  // The same with all GPU times that there are, while CUPTI is still whole; nothing of the GPU's comes after it.
  bool flush_last(std::uint32_t timeout_ms) noexcept;
  void flush_at_exit() noexcept;
  void ask_for_dump() noexcept { dump_wanted_.store(true, std::memory_order_release); }
  // Ends the recording for good; false: not everything was written in time. `at_exit`: CUPTI is left alone, since it
  // may be taken down already.
  bool finish(std::uint32_t timeout_ms, const char* reason, bool at_exit) noexcept;

  struct Stats {
    event::Ledger ledger;
    std::uint64_t misses = 0, kernels = 0, configs = 0;
  };
  Stats stats() noexcept;
  const char* log_path() const noexcept { return log_path_.c_str(); }  // set once, before start() returns
  std::uint32_t exit_timeout_ms() const noexcept { return static_cast<std::uint32_t>(options_.exit_timeout_ms); }

 private:
  Recorder(const config::Options& options, const config::Problems& problems, bool inside_init);

  static StartResult start_new(const config::Options& options, const config::Problems& problems, bool inside_init);
  bool wait_opened(std::string& failure);
  enum class Stage { kOpening, kOpened, kFailed, kRunning, kEnded };
  void go_on_to(Stage stage) noexcept;
  void give_up() noexcept;
  static void thread_main(void* self) noexcept;
  void run() noexcept;
  bool open_files() noexcept;  // on the recorder thread
  void build_parts();
  void make_session();
  void announce_to_run() noexcept;
  bool load_driver() noexcept;
  StartResult choose_source();
  StartResult start_cupti(std::string& problem) noexcept;
  StartResult start_source() noexcept;
  void say_if_no_event_times() noexcept;
  bool switch_to_hooks(const char* until) noexcept;
  StartResult switch_to_cupti() noexcept;
  void loop() noexcept;
  void resume_times() noexcept;
  void begin_budget() noexcept;
  void budget_round() noexcept;
  void end_budget() noexcept;
  void judge_cost(const CostPeriod& period) noexcept;
  bool go_to_level(event::RecordLevel level) noexcept;
  void follow_resume() noexcept;
  void hold_event_times() noexcept;
  void write_level(event::RecordLevel from, event::RecordLevel to, event::LevelEvent::Reason reason,
                   const CostShare& share, double floor_percent) noexcept;
  CostMeans cost_means() const noexcept;
  CostRates cost_rates(const CostPeriod& period) noexcept;
  std::uint64_t own_cpu_ns() const noexcept;
  bool wait_for_round(std::uint32_t timeout_ms, bool last) noexcept;
  void fetch_gpu_times(bool last) noexcept;
  void watch_round() noexcept;
  void obey_control(flight::ControlCommand command) noexcept;
  void write_forks() noexcept;
  StartResult dump(const char* reason) noexcept;
  void dump_asked_by_program() noexcept { dump("asked for by the program"); }
  void say_notices() noexcept;
  void say(event::Severity severity, const char* code, std::string message) noexcept;
  void say_because(event::Severity severity, const char* code, const char* what, const std::string& why) noexcept;
  void end_session() noexcept;
  void say_aloud(std::string_view message) noexcept;
  void say_what_the_log_lacks() noexcept;
  event::Ledger ledger_locked() noexcept;

  const config::Options options_;
  const config::Problems problems_;
  const bool inside_init_;
  ProcessFacts process_;
  log::FileId stderr_id_;  // as it was at the start
  std::int64_t t0_unix_ns_ = 0, t0_monotonic_ns_ = 0;

  capture::SharedObject libcuda_;
  capture::DriverApi driver_;
  int driver_version_ = 0;
  capture::NoticeBoard notices_;
  std::unique_ptr<capture::LaunchClock> clock_;
  capture::HotPage* page_ = nullptr;
  flight::FlightFile file_;
  flight::FlightFile::Result file_result_;
  std::unique_ptr<flight::RingSet> rings_;
  std::unique_ptr<flight::TableWriter> rows_;
  std::unique_ptr<capture::DeviceQuery> devices_;
  std::unique_ptr<capture::KernelTable> kernels_;
  std::unique_ptr<capture::KernelResolver> resolver_;
  std::unique_ptr<capture::StreamTable> streams_;
  std::unique_ptr<capture::ScopeTable> scopes_;
  std::unique_ptr<capture::GraphTable> graphs_;
  std::unique_ptr<capture::LaunchRecorder> launches_;
  std::unique_ptr<capture::EventTimer> events_;
  std::unique_ptr<capture::CuptiSource> cupti_;
  std::unique_ptr<capture::InterposeSource> interpose_;
  capture::LaunchSource* source_ = nullptr;  // one of the two
  std::string source_reason_;
  bool stands_in_ = false;  // the hooks for CUPTI, which was given up for another client
  bool hooks_held_ = false;  // they stand in since the budget wants it so
  bool times_held_ = false;  // GPU times are off for the same reason
  bool below_events_ = false;  // the budget's level, under control_
  std::atomic<bool> exiting_{false};
  std::unique_ptr<capture::MarkerBoard> markers_;
  capture::ErrorBoard errors_;
  std::unique_ptr<GpuTiming> gpu_;
  std::unique_ptr<EventTimes> event_times_;
  std::unique_ptr<IncidentWatch> watch_;
  ForkBoard* forks_ = nullptr;
  StartResult source_result_ = StartResult::kInternal;
  log::LogSink sink_;
  std::unique_ptr<CallLines> calls_;
  std::unique_ptr<Drain> drain_;
  std::string log_path_;

  // Recorder thread's. Null: no budget.
  std::unique_ptr<CostBudget> budget_;
  std::unique_ptr<CostMeter> meter_;
  std::optional<double> callback_ns_;  // measured
  int probes_ = 0;
  std::uint32_t processors_ = 1;

  RecorderThread thread_;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // of what follows
  pthread_cond_t wake_{}, changed_{};
  Stage stage_ = Stage::kOpening;
  std::string failure_;
  bool stop_ = false;
  const char* end_reason_ = "exit";
  std::uint64_t rounds_begun_ = 0, rounds_done_ = 0;
  bool round_wanted_ = false;
  bool last_round_wanted_ = false;
  event::Ledger last_ledger_;
  pthread_mutex_t control_ = PTHREAD_MUTEX_INITIALIZER;  // one of pause, resume, finish at a time
  bool finished_ = false;
  std::atomic<bool> dump_wanted_{false};
  std::atomic<std::uint32_t> exit_waited_ms_{0};
  std::int64_t last_dump_ns_ = 0;  // recorder thread's
};

}  // namespace gpuflight::recorder
