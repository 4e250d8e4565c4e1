// The C API of include/gpuflight/gpuflight.h. Every door is noexcept; without a recorder each does nothing.
#include "gpuflight/gpuflight.h"

#include <cstring>

#include "inject/start.h"
#include "recorder/recorder.h"

namespace {

using gpuflight::recorder::Recorder;
using gpuflight::recorder::StartResult;

gpuflight_status to_status(StartResult result) noexcept {
  switch (result) {
    case StartResult::kStarted:
      return GPUFLIGHT_OK;
    case StartResult::kAlready:
      return GPUFLIGHT_ERROR_ALREADY_STARTED;
    case StartResult::kNotWanted:
      return GPUFLIGHT_ERROR_NOT_RECORDING;
    case StartResult::kNoDriver:
      return GPUFLIGHT_ERROR_NO_DRIVER;
    case StartResult::kNoCupti:
      return GPUFLIGHT_ERROR_NO_CUPTI;
    case StartResult::kSlotTaken:
      return GPUFLIGHT_ERROR_SLOT_TAKEN;
    case StartResult::kIo:
      return GPUFLIGHT_ERROR_IO;
    case StartResult::kInternal:
      break;
  }
  return GPUFLIGHT_ERROR_INTERNAL;
}

}  // namespace

extern "C" {

GPUFLIGHT_API gpuflight_status gpuflight_init(const gpuflight_option* options, size_t count) {
  if (options == nullptr && count > 0) return GPUFLIGHT_ERROR_INVALID_ARGUMENT;
  return to_status(gpuflight::inject::start(options, count, /*inside_init=*/false));
}

GPUFLIGHT_API void gpuflight_push_scope(const char* name) {
  if (name == nullptr) return;
  if (Recorder* const recorder = Recorder::current()) {
    recorder->launches().push_scope(gpuflight::capture::kApiDomain, name);
  }
}

GPUFLIGHT_API void gpuflight_pop_scope(void) {
  if (Recorder* const recorder = Recorder::current()) recorder->launches().pop_scope(gpuflight::capture::kApiDomain);
}

GPUFLIGHT_API void gpuflight_mark(const char* name) {
  if (name == nullptr) return;
  if (Recorder* const recorder = Recorder::current()) recorder->launches().mark(gpuflight::capture::kApiDomain, name);
}

GPUFLIGHT_API gpuflight_status gpuflight_flush(uint32_t timeout_ms) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || !recorder->recording()) return GPUFLIGHT_ERROR_NOT_RECORDING;
  return recorder->flush(timeout_ms) ? GPUFLIGHT_OK : GPUFLIGHT_ERROR_TIMEOUT;
}

GPUFLIGHT_API gpuflight_status gpuflight_pause(uint32_t flags) {
  if ((flags & ~GPUFLIGHT_PAUSE_RELEASE) != 0) return GPUFLIGHT_ERROR_INVALID_ARGUMENT;
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || !recorder->recording()) return GPUFLIGHT_ERROR_NOT_RECORDING;
  return to_status(recorder->pause((flags & GPUFLIGHT_PAUSE_RELEASE) != 0));
}

GPUFLIGHT_API gpuflight_status gpuflight_resume(void) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || !recorder->recording()) return GPUFLIGHT_ERROR_NOT_RECORDING;
  return to_status(recorder->resume());
}

GPUFLIGHT_API gpuflight_status gpuflight_set_timing(int on) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr) return GPUFLIGHT_ERROR_NOT_RECORDING;
  return to_status(recorder->switch_timing(on != 0));
}

GPUFLIGHT_API gpuflight_status gpuflight_dump(void) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr) return GPUFLIGHT_ERROR_NOT_RECORDING;
  recorder->ask_for_dump();
  return GPUFLIGHT_OK;
}

GPUFLIGHT_API gpuflight_status gpuflight_shutdown(uint32_t timeout_ms) {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || !recorder->recording()) return GPUFLIGHT_ERROR_NOT_RECORDING;
  return recorder->finish(timeout_ms, "shutdown", /*at_exit=*/false) ? GPUFLIGHT_OK : GPUFLIGHT_ERROR_TIMEOUT;
}

GPUFLIGHT_API gpuflight_status gpuflight_get_stats(gpuflight_stats* stats) {
  if (stats == nullptr || stats->size < sizeof(size_t)) return GPUFLIGHT_ERROR_INVALID_ARGUMENT;
  Recorder* const recorder = Recorder::current();
  gpuflight_stats all{};
  if (recorder != nullptr) {
    const Recorder::Stats now = recorder->stats();
    all.seen = now.ledger.seen;
    all.written = now.ledger.written;
    all.summarised = now.ledger.summarised;
    all.pending = now.ledger.pending;
    all.lost = now.ledger.lost_total();
    all.launches_missed_cache = now.misses;
    all.kernels = now.kernels;
    all.configs = now.configs;
  }
  const size_t size = stats->size;
  all.size = size;
  std::memcpy(stats, &all, size < sizeof all ? size : sizeof all);
  return recorder != nullptr ? GPUFLIGHT_OK : GPUFLIGHT_ERROR_NOT_RECORDING;
}

GPUFLIGHT_API const char* gpuflight_log_path(void) {
  Recorder* const recorder = Recorder::current();
  return recorder != nullptr ? recorder->log_path() : "";
}

GPUFLIGHT_API const char* gpuflight_version(void) { return Recorder::version(); }

GPUFLIGHT_API const char* gpuflight_status_string(gpuflight_status status) {
  switch (status) {
    case GPUFLIGHT_OK:
      return "ok";
    case GPUFLIGHT_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case GPUFLIGHT_ERROR_ALREADY_STARTED:
      return "the recording has begun already; the options it began with stay in force";
    case GPUFLIGHT_ERROR_NOT_RECORDING:
      return "nothing is being recorded";
    case GPUFLIGHT_ERROR_TIMEOUT:
      return "the time given ran out";
    case GPUFLIGHT_ERROR_NO_DRIVER:
      return "no usable CUDA driver (libcuda.so.1)";
    case GPUFLIGHT_ERROR_NO_CUPTI:
      return "no usable libcupti";
    case GPUFLIGHT_ERROR_SLOT_TAKEN:
      return "another CUPTI client holds the subscriber slot";
    case GPUFLIGHT_ERROR_IO:
      return "the log or the flight file cannot be written";
    case GPUFLIGHT_ERROR_UNSUPPORTED:
      return "not supported here";
    case GPUFLIGHT_ERROR_INTERNAL:
      return "internal error";
  }
  return "unknown status";
}

}  // extern "C"
