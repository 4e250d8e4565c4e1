#include "recorder/recorder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <string_view>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "capture/nvtx_attach.h"
#include "capture/system_clock.h"
#include "config/path_pattern.h"
#include "config/program_filter.h"
#include "event/schema_version.h"
#include "log/posix_file.h"
#include "recorder/mutex_lock.h"

namespace gpuflight::recorder {
namespace {

using capture::system_clock_ns;

std::atomic<Recorder*> g_recorder{nullptr};
std::atomic<bool> g_starting{false};

constexpr std::uint32_t kOpenTimeoutMs = 10'000;  // a network file system may hang: the host's cuInit must not

// The one line on stderr, when there is no log to say it in. Allocates nothing: want of memory may be the message.
void say_on_stderr(bool quiet, std::string_view message, std::string_view more = {}) noexcept {
  if (quiet) return;
  const auto piece = [](std::string_view text) { return iovec{const_cast<char*>(text.data()), text.size()}; };
  const iovec line[] = {piece("gpuflight: "), piece(message), piece(more), piece("\n")};
  const int saved = errno;
  [[maybe_unused]] const ssize_t n = writev(STDERR_FILENO, line, 4);
  errno = saved;
}

constexpr std::string_view kGoesOn = "; nothing is recorded, the program goes on";

// A fork drops everything inherited: threads, rings and files are the parent's.
void on_fork_in_child() noexcept {
  ForkBoard::note_child();
  g_recorder.store(nullptr, std::memory_order_relaxed);
  g_starting.store(false, std::memory_order_relaxed);
  capture::forget_thread_state();
}

// The notice of a fork tells when the child was there: launches are to lie on the right side of that.
void on_fork() noexcept {
  if (Recorder* const recorder = Recorder::current()) recorder->end_bursts();
}

// Before CUPTI's own handlers and the destructors of libraries: those that are registered last run first, and CUPTI is in
// the process by then.
void flush_at_exit() noexcept {
  if (Recorder* const recorder = Recorder::current()) recorder->flush_at_exit();
}

void register_exit_handler() noexcept {
  static std::atomic<bool> done{false};
  if (!done.exchange(true)) std::atexit([] { flush_at_exit(); });
}

void register_fork_handler() noexcept {
  static std::atomic<bool> done{false};
  if (!done.exchange(true)) pthread_atfork(&on_fork, nullptr, &on_fork_in_child);
}

void init_monotonic(pthread_cond_t& condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

}  // namespace

Recorder::Recorder(const config::Options& options, const config::Problems& problems, bool inside_init)
    : options_(options), problems_(problems), inside_init_(inside_init) {
  log::FileState state;
  if (log::describe(STDERR_FILENO, state) == 0) stderr_id_ = state.id;
  init_monotonic(wake_);
  init_monotonic(changed_);
}

Recorder* Recorder::current() noexcept {
  Recorder* const recorder = g_recorder.load(std::memory_order_acquire);
  // A raw clone runs no fork handlers; the page is wiped all the same.
  return recorder != nullptr && recorder->launches_->alive() ? recorder : nullptr;
}

StartResult Recorder::start(const GivenOptions& given, bool inside_init) noexcept {
  if (current() != nullptr) return StartResult::kAlready;
  if (g_starting.exchange(true, std::memory_order_acq_rel)) return StartResult::kAlready;
  capture::note_start_tried();
  StartResult result = StartResult::kInternal;
  bool quiet = false;
  try {
    register_fork_handler();
    config::Options options;
    config::Problems problems;
    for (const auto& [name, value] : given) {
      config::SetResult set = config::set_option(options, name, value);
      if (!set.ok) problems.add(std::move(set.message));
    }
    config::parse_environment(environ, options, problems);
    quiet = options.quiet;
    result = start_new(options, problems, inside_init);
  } catch (...) {
    say_on_stderr(quiet, "not enough memory to start", kGoesOn);
    result = StartResult::kInternal;
  }
  if (current() == nullptr) g_starting.store(false, std::memory_order_release);
  return result;
}

StartResult Recorder::start_new(const config::Options& options, const config::Problems& problems, bool inside_init) {
  ProcessFacts process = read_process_facts();
  if (!options.enabled || !config::program_selected(options, process.program_name)) return StartResult::kNotWanted;
  // Never freed: app threads may hold it from here on.
  auto* const recorder = new Recorder(options, problems, inside_init);
  recorder->process_ = std::move(process);
  recorder->t0_unix_ns_ = system_clock_ns(CLOCK_REALTIME);
  recorder->t0_monotonic_ns_ = system_clock_ns(CLOCK_MONOTONIC);
  recorder->page_ = capture::HotPage::create();
  if (recorder->page_ == nullptr) throw std::bad_alloc();
  recorder->clock_ = std::make_unique<capture::LaunchClock>(recorder->t0_monotonic_ns_, *recorder->page_);
  if (!recorder->load_driver()) return StartResult::kNoDriver;
  if (!recorder->thread_.start("gpuflight", &Recorder::thread_main, recorder)) {
    say_on_stderr(options.quiet, "no thread to be had", kGoesOn);
    return StartResult::kInternal;
  }
  std::string failure;
  if (!recorder->wait_opened(failure)) {
    say_on_stderr(options.quiet, failure, kGoesOn);
    return StartResult::kIo;
  }
  recorder->page_->recording.store(1, std::memory_order_release);
  recorder->forks_ = ForkBoard::create();
  g_recorder.store(recorder, std::memory_order_release);
  capture::send_nvtx_to(recorder->launches_.get());
  try {
    recorder->source_result_ = recorder->choose_source();
    if (recorder->source_result_ == StartResult::kStarted) {
      if (recorder->source_ == recorder->cupti_.get()) {
        recorder->gpu_->start(recorder->cupti_->library(), recorder->cupti_->choice().version);
      }
      recorder->say_if_no_event_times();
      register_exit_handler();
    }
    recorder->make_session();
  } catch (...) {
    recorder->give_up();
    throw;
  }
  recorder->go_on_to(Stage::kRunning);
  return recorder->source_result_;
}

void Recorder::go_on_to(Stage stage) noexcept {
  MutexLock lock(mutex_);
  stage_ = stage;
  pthread_cond_broadcast(&wake_);
}

// Launches may have been seen by now. They stay in the rings, which nobody empties.
void Recorder::give_up() noexcept {
  source_->stop(true);
  page_->recording.store(0, std::memory_order_release);
  page_->end_bursts();
  g_recorder.store(nullptr, std::memory_order_release);
  capture::send_nvtx_to(nullptr);
  file_.header().state.store(static_cast<std::uint32_t>(flight::SessionState::kDisabled), std::memory_order_release);
  go_on_to(Stage::kFailed);
}

// Until the recorder thread has its files, or has not got them, or takes too long: then it is told to give up.
bool Recorder::wait_opened(std::string& failure) {
  const timespec deadline = deadline_in(kOpenTimeoutMs);
  MutexLock lock(mutex_);
  while (stage_ == Stage::kOpening && pthread_cond_timedwait(&changed_, &mutex_, &deadline) == 0) {
  }
  if (stage_ == Stage::kOpened) return true;
  failure = stage_ == Stage::kOpening ? "opening the log took too long" : failure_;
  stop_ = true;
  return false;
}

const char* Recorder::version() noexcept { return event::kLibraryVersion; }

bool Recorder::load_driver() noexcept {
  // libcuda is in the process when the driver calls us; the API may come before.
  if (!libcuda_.adopt("libcuda.so.1") &&
      !libcuda_.open(options_.libcuda.empty() ? "libcuda.so.1" : options_.libcuda.c_str())) {
    return false;
  }
  driver_.load(libcuda_);
  if (driver_.driver_get_version == nullptr || driver_.driver_get_version(&driver_version_) != CUDA_SUCCESS) {
    return false;
  }
  return true;
}

void Recorder::thread_main(void* self) noexcept {
  auto& recorder = *static_cast<Recorder*>(self);
  RecorderThread::own_descriptor_table(recorder.options_.verbose && !recorder.options_.quiet);
  recorder.run();
}

void Recorder::run() noexcept {
  const bool opened = open_files();
  {
    MutexLock lock(mutex_);
    if (stop_) return;  // whoever waited has given up
    stage_ = opened ? Stage::kOpened : Stage::kFailed;
    pthread_cond_broadcast(&changed_);
    if (!opened) return;
    while (stage_ == Stage::kOpened) pthread_cond_wait(&wake_, &mutex_);
    if (stage_ == Stage::kFailed) return;
  }
  loop();
  end_session();
  MutexLock lock(mutex_);
  stage_ = Stage::kEnded;
  pthread_cond_broadcast(&changed_);
}

bool Recorder::open_files() noexcept {
  try {
    config::PatternFields fields;
    fields.pid = static_cast<std::uint64_t>(getpid());
    fields.host = process_.host;
    fields.program = process_.program_name;
    fields.rank = process_.rank;
    fields.variable = [](const char* name) -> const char* { return std::getenv(name); };
    config::ExpandResult path = config::expand(options_.log, fields);
    if (!path.error.empty()) {
      say(event::Severity::kError, "log_pattern", path.error + "; the default is used");
      path = config::expand(config::Options().log, fields);
    }
    log::SinkOptions sink;
    sink.path = path.path;
    sink.segment_bytes = options_.log_segment_bytes;
    sink.max_bytes = options_.log_max_bytes;
    sink.keep_ns = static_cast<std::int64_t>(options_.log_keep_ms) * 1'000'000;
    sink.compress = options_.compress;
    if (const int error = sink_.open(sink, nullptr); error != 0) {
      failure_ = "cannot write the log " + path.path + ": " + std::strerror(error) +
                 "; set GPUFLIGHT_LOG to a path that can be written";
      return false;
    }
    log_path_ = sink_.path();

    std::string flight_path;
    if (options_.flight != "memory") {
      config::ExpandResult flight{config::flight_path_beside(sink_.path()), {}};
      if (!options_.flight.empty()) flight = config::expand(options_.flight, fields);
      if (!flight.error.empty()) {
        say(event::Severity::kError, "flight_pattern", flight.error + "; the flight file stands beside the log");
        flight = {config::flight_path_beside(sink_.path()), {}};
      }
      flight_path = flight.path;
    }
    flight::Capacities capacities;
    capacities.pool_bytes = options_.pool_bytes;
    capacities.kernels = static_cast<std::uint32_t>(options_.kernels_max);
    capacities.configs = static_cast<std::uint32_t>(options_.configs_max);
    file_result_ = file_.create(flight_path, capacities);
    if (!file_result_.mapped) {
      failure_ = file_result_.problem;
      return false;
    }
    if (!file_result_.problem.empty()) {
      say(event::Severity::kWarning, "flight_in_memory",
          file_result_.problem + ": the rings are in private memory, nothing of them outlives the process; set "
                                 "GPUFLIGHT_FLIGHT to a path on a local disk or in /dev/shm");
    }
    build_parts();
    clock_->start();  // last: the files took some of the time it has to wait
    return true;
  } catch (const std::bad_alloc&) {
    failure_ = "out of memory";
    return false;
  } catch (...) {
    failure_ = "internal error while opening the log";
    return false;
  }
}

void Recorder::build_parts() {
  const flight::Capacities& capacities = file_.capacities();
  graphs_ = std::make_unique<capture::GraphTable>(*page_, &notices_);
  rings_ = std::make_unique<flight::RingSet>(
      file_, options_.mode == config::Mode::kBlackbox ? flight::Reuse::kOldestFirst : flight::Reuse::kNewestFirst);
  rows_ = std::make_unique<flight::TableWriter>(file_);
  devices_ = std::make_unique<capture::DeviceQuery>(driver_);
  kernels_ = std::make_unique<capture::KernelTable>(*rows_, capacities.kernels, capacities.configs);
  resolver_ = std::make_unique<capture::KernelResolver>(driver_, *devices_, *kernels_, notices_, *page_,
                                                        options_.details);
  streams_ = std::make_unique<capture::StreamTable>(driver_, *rows_, *page_, capacities.streams, &notices_);
  scopes_ = std::make_unique<capture::ScopeTable>(*rows_, capacities.scopes, &notices_);
  if (options_.markers) markers_ = std::make_unique<capture::MarkerBoard>(driver_);
  if (options_.event_times.every != 0) {
    events_ = std::make_unique<capture::EventTimer>(driver_, *page_, *clock_, *streams_, options_.event_times.every);
  }
  event_times_ = std::make_unique<EventTimes>(events_.get());
  launches_ = std::make_unique<capture::LaunchRecorder>(capture::LaunchRecorder::Parts{
      driver_, *rings_, *resolver_, *streams_, *graphs_, *scopes_, *devices_, markers_.get(), *page_,
      *clock_, events_.get()});
  Drain::Options drain;
  drain.details = options_.details;
  drain.summaries_only = options_.mode == config::Mode::kBlackbox;
  drain.dump_events = options_.dump_events;
  if (!options_.dump_when.empty()) {
    std::string problem;
    drain.rule = DumpRule::parse(options_.dump_when, problem);
    if (!drain.rule) {
      say(event::Severity::kWarning, "dump_when", std::move(problem));
    } else if (drain.rule->on_gpu_time() && !options_.timing.on() && options_.event_times.every == 0) {
      say(event::Severity::kWarning, "dump_when",
          "dump_when \"" + options_.dump_when + "\": timing is off, so the rule matches nothing; call_ns and status are "
          "known of every launch");
    }
  }
  const capture::DriverCallReader::Parts calls{*launches_, *resolver_, *streams_, *graphs_, *devices_, markers_.get(),
                                               errors_, notices_, options_.edges && options_.timing.on(),
                                               events_.get()};
  cupti_ = std::make_unique<capture::CuptiSource>(calls, options_.cupti, driver_version_);
  const bool time_each_call =
      options_.call_times == config::CallTimes::kAll || (drain.rule && drain.rule->on_call_time());
  interpose_ = std::make_unique<capture::InterposeSource>(calls, driver_, *page_, inside_init_, time_each_call);
  source_ = cupti_.get();
  gpu_ = std::make_unique<GpuTiming>(options_, t0_monotonic_ns_, notices_);
  watch_ = std::make_unique<IncidentWatch>(
      IncidentWatch::Parts{driver_, *kernels_, *streams_, markers_.get(), errors_, file_},
      static_cast<std::int64_t>(options_.hang_after_ms) * 1'000'000, options_.hang_command);
  calls_ = std::make_unique<CallLines>(*rings_, *streams_, notices_);
  drain_ = std::make_unique<Drain>(Drain::Parts{file_, *rings_, *kernels_, *resolver_, *streams_, *scopes_, *devices_,
                                                *launches_, *graphs_, sink_, *calls_, watch_.get()},
                                   drain);

  flight::Header& header = file_.header();
  header.pid = getpid();
  header.process_start_ticks = process_.start_ticks;
  header.t0_unix_ns = t0_unix_ns_;
  header.t0_monotonic_ns = t0_monotonic_ns_;
  const auto copy = [](auto& to, const std::string& from) {
    std::memcpy(to, from.data(), std::min(from.size(), sizeof to - 1));
  };
  copy(header.boot_id, process_.boot_id);
  copy(header.host, process_.host);
  copy(header.program, process_.program);
  copy(header.log_path, sink_.path());
  header.mode = options_.mode == config::Mode::kBlackbox ? 1 : 0;
  header.details = options_.details ? 1 : 0;
}

// After the source has been chosen, before the recorder thread runs.
void Recorder::make_session() {
  event::SessionStart session = describe_session(process_, options_, t0_unix_ns_, t0_monotonic_ns_);
  session.driver_version = driver_version_;
  session.libcuda_path = libcuda_.path();
  const capture::CuptiSource::Choice& choice = cupti_->choice();
  if (choice.version != 0) session.cupti_version = choice.version;
  session.cupti_path = choice.path;
  session.cupti_reason = choice.reason;
  session.capture = source_result_ == StartResult::kStarted ? source_->name() : "none";
  if (source_result_ == StartResult::kStarted) session.capture_reason = source_reason_;
  session.flight_path = file_result_.path;
  drain_->set_session(std::move(session));
}

// `gpuflight run` finds the logs of all processes it started by this list.
void Recorder::announce_to_run() noexcept {
  const char* const manifest = std::getenv("GPUFLIGHT_RUN_MANIFEST");
  if (manifest == nullptr) return;
  const int fd = open(manifest, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  try {
    const std::string line = std::to_string(getpid()) + "\t" + log_path_ + "\t" + file_result_.path + "\n";
    [[maybe_unused]] const ssize_t n = write(fd, line.data(), line.size());
  } catch (...) {
  }
  close(fd);
}

void Recorder::say(event::Severity severity, const char* code, std::string message) noexcept {
  notices_.post(severity, code, std::move(message));
}

void Recorder::say_because(event::Severity severity, const char* code, const char* what,
                           const std::string& why) noexcept {
  try {
    notices_.post(severity, code, what + why);
  } catch (...) {  // no memory
  }
}

void Recorder::say_notices() noexcept {
  for (event::Notice& notice : notices_.take()) {
    if (options_.verbose && notice.severity != event::Severity::kInfo) say_aloud(notice.message);
    drain_->say(std::move(notice));
  }
}

bool Recorder::recording() const noexcept { return launches_->recording(); }

StartResult Recorder::pause(bool release) noexcept {
  MutexLock control(control_);
  if (finished_) return StartResult::kInternal;
  const std::int64_t now = launches_->now_ns();
  if (release && switch_to_hooks("until resume")) {
    hooks_held_ = false;  // whoever wanted the slot says when it is free again
    hold_event_times();
    return StartResult::kStarted;
  }
  source_->stop(release);
  gpu_->pause(now);
  watch_->on_paused();
  file_.header().state.store(static_cast<std::uint32_t>(flight::SessionState::kPaused), std::memory_order_release);
  return StartResult::kStarted;
}

StartResult Recorder::resume() noexcept {
  MutexLock control(control_);
  if (finished_) return StartResult::kInternal;
  if (stands_in_ && !hooks_held_) {
    const StartResult result = switch_to_cupti();
    if (result == StartResult::kStarted) resume_times();
    return result;
  }
  source_result_ = start_source();
  if (source_result_ == StartResult::kStarted) {
    hold_event_times();
    gpu_->resume(launches_->now_ns());
    resume_times();
    watch_->on_resumed(launches_->now_ns());
  }
  return source_result_;
}

StartResult Recorder::switch_timing(bool on) noexcept {
  MutexLock control(control_);
  if (finished_ || !recording()) return StartResult::kNotWanted;
  if (on && source_ != cupti_.get()) return StartResult::kNoCupti;  // there are none without it
  if (on && (times_held_ || below_events_)) {
    times_held_ = true;
    say(event::Severity::kInfo, "budget_holds_times",
        "GPU times stay off for as long as the budget of the recorder's cost wants it so");
    return StartResult::kNotWanted;
  }
  if (!gpu_->switch_to(on, launches_->now_ns())) return StartResult::kInternal;
  if (!on) times_held_ = false;
  say(event::Severity::kInfo, on ? "timing_on" : "timing_off",
      on ? "GPU times are recorded from here on" : "GPU times are not recorded from here on, launches are");
  return StartResult::kStarted;
}

bool Recorder::flush(std::uint32_t timeout_ms) noexcept { return wait_for_round(timeout_ms, false); }

bool Recorder::flush_last(std::uint32_t timeout_ms) noexcept { return wait_for_round(timeout_ms, true); }

// Together with finish() the exit waits no longer than it may.
void Recorder::flush_at_exit() noexcept {
  const std::int64_t before_ns = system_clock_ns(CLOCK_MONOTONIC);
  exiting_.store(true, std::memory_order_release);  // libcuda and CUPTI may be taken down from here on
  flush_last(std::min<std::uint32_t>(exit_timeout_ms() / 2, 1'000));
  event_times_->close();
  exit_waited_ms_.store(static_cast<std::uint32_t>((system_clock_ns(CLOCK_MONOTONIC) - before_ns) / 1'000'000),
                        std::memory_order_relaxed);
}

bool Recorder::wait_for_round(std::uint32_t timeout_ms, bool last) noexcept {
  const timespec deadline = deadline_in(timeout_ms);
  MutexLock lock(mutex_);
  // A round that has begun may have passed this thread's ring already: the next one counts.
  const std::uint64_t wanted = rounds_begun_ + 1;
  round_wanted_ = true;
  last_round_wanted_ = last_round_wanted_ || last;
  pthread_cond_broadcast(&wake_);
  while (rounds_done_ < wanted && stage_ == Stage::kRunning) {
    if (pthread_cond_timedwait(&changed_, &mutex_, &deadline) != 0) return rounds_done_ >= wanted;
  }
  return true;
}

bool Recorder::finish(std::uint32_t timeout_ms, const char* reason, bool at_exit) noexcept {
  MutexLock control(control_);
  if (finished_) return true;
  finished_ = true;
  if (!at_exit) {
    flush_last(std::min<std::uint32_t>(timeout_ms, 1'000));
    source_->stop(true);
    event_times_->close();
    gpu_->pause(launches_->now_ns());
  }
  page_->recording.store(0, std::memory_order_release);
  page_->end_bursts();
  {
    MutexLock lock(mutex_);
    end_reason_ = reason;
    stop_ = true;
    pthread_cond_broadcast(&wake_);
  }
  const std::uint32_t waited_ms = at_exit ? exit_waited_ms_.load(std::memory_order_relaxed) : 0;
  if (!thread_.wait_done(timeout_ms - std::min(timeout_ms, waited_ms))) return false;
  say_what_the_log_lacks();
  return true;
}

// Under the number of its stderr a host that has closed that may have a file of its own.
void Recorder::say_aloud(std::string_view message) noexcept {
  log::FileState state;
  if (log::describe(STDERR_FILENO, state) == 0 && state.id == stderr_id_) say_on_stderr(options_.quiet, message);
}

// A log that could not take its last lines does not say so itself.
void Recorder::say_what_the_log_lacks() noexcept {
  if (drain_->last_error() == 0) return;
  try {
    say_aloud("the log " + log_path_ + " is not whole: " + std::strerror(drain_->last_error()) + "; " +
              std::to_string(last_ledger_.lost_total()) + " events are lost");
  } catch (...) {
    say_aloud("the log is not whole");
  }
}

Recorder::Stats Recorder::stats() noexcept {
  Stats stats;
  {
    MutexLock lock(mutex_);
    stats.ledger = last_ledger_;
  }
  stats.misses = launches_->cost().misses.load(std::memory_order_relaxed);
  stats.kernels = kernels_->kernels();
  stats.configs = kernels_->configs();
  return stats;
}

}  // namespace gpuflight::recorder
