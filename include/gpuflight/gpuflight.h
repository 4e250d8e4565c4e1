/* gpuflight: flight recorder for CUDA. C API.
 *
 * Everything here may be called from any thread, before or after CUDA is initialised, whether libgpuflight was linked,
 * preloaded or both (one recorder either way). Nothing here throws, exits, prints to stdout or blocks for longer than
 * the time it names. No call is needed at all when the library is preloaded.
 *
 * Functions that can fail return a gpuflight_status; gpuflight_status_string() says what it means.
 */
#ifndef GPUFLIGHT_GPUFLIGHT_H
#define GPUFLIGHT_GPUFLIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUFLIGHT_VERSION_MAJOR 0
#define GPUFLIGHT_VERSION_MINOR 1
#define GPUFLIGHT_VERSION_PATCH 0

#if defined(GPUFLIGHT_BUILDING)
#define GPUFLIGHT_API __attribute__((visibility("default")))
#else
#define GPUFLIGHT_API
#endif

typedef enum gpuflight_status {
  GPUFLIGHT_OK = 0,
  GPUFLIGHT_ERROR_INVALID_ARGUMENT = 1, /* a null or malformed argument */
  GPUFLIGHT_ERROR_ALREADY_STARTED = 2,  /* init after the recording began: the options of the first stay in force */
  GPUFLIGHT_ERROR_NOT_RECORDING = 3,    /* nothing is recorded: never started, disabled or shut down */
  GPUFLIGHT_ERROR_TIMEOUT = 4,          /* the time given ran out; what was not done goes on in the background */
  GPUFLIGHT_ERROR_NO_DRIVER = 5,        /* no usable libcuda */
  GPUFLIGHT_ERROR_NO_CUPTI = 6,         /* no usable libcupti */
  GPUFLIGHT_ERROR_SLOT_TAKEN = 7,       /* another CUPTI client holds the one subscriber slot */
  GPUFLIGHT_ERROR_IO = 8,               /* the log or the flight file cannot be written */
  GPUFLIGHT_ERROR_UNSUPPORTED = 9,
  GPUFLIGHT_ERROR_INTERNAL = 10
} gpuflight_status;

/* Name and value of one option, as in docs/OPTIONS.md: {"log_max", "512M"}. */
typedef struct gpuflight_option {
  const char* name;
  const char* value;
} gpuflight_option;

/* Starts the recording with `count` options; environment variables (GPUFLIGHT_*) win over them. Options are read
 * once: when CUDA was initialised under a preloaded library the recording has begun by then (ALREADY_STARTED).
 * Before cuInit it prepares; launches are then recorded from the first on. `count` 0 and NULL: the defaults. */
GPUFLIGHT_API gpuflight_status gpuflight_init(const gpuflight_option* options, size_t count);

/* Scopes name what the launches inside them are for; they nest per thread. `name` is copied, cut at 4,096 bytes.
 * Cost: a table look-up and one ring record for push and pop each. Without a recorder: nothing. */
GPUFLIGHT_API void gpuflight_push_scope(const char* name);
GPUFLIGHT_API void gpuflight_pop_scope(void);

/* One point in time with a name, on this thread. */
GPUFLIGHT_API void gpuflight_mark(const char* name);

/* Waits until everything recorded before the call is in the log, at most `timeout_ms`. */
GPUFLIGHT_API gpuflight_status gpuflight_flush(uint32_t timeout_ms);

/* Stops and restarts the recording of launches. PAUSE_RELEASE also gives up the CUPTI subscriber slot, so that another
 * profiler can take it; resume then takes it again, or says SLOT_TAKEN. Launches while paused are not seen. */
#define GPUFLIGHT_PAUSE_KEEP 0u
#define GPUFLIGHT_PAUSE_RELEASE 1u
GPUFLIGHT_API gpuflight_status gpuflight_pause(uint32_t flags);
GPUFLIGHT_API gpuflight_status gpuflight_resume(void);

/* GPU times on (not 0) or off from here on; launches are recorded all the same. INTERNAL where CUPTI refuses or GPU times
 * were given up before, which the log tells. CUPTI 13.0 numbers graph launches wrongly once its activity was off: kernels
 * of graphs are then written without their graph. */
GPUFLIGHT_API gpuflight_status gpuflight_set_timing(int on);

/* In black-box mode: the last events (docs/OPTIONS.md, dump_events) go to the log, within one flush interval. In stream
 * mode they are there already. */
GPUFLIGHT_API gpuflight_status gpuflight_dump(void);

/* Ends the recording: writes what is there and session_end, closes the files, gives up the CUPTI slot. Final for this
 * process. At exit it happens by itself. */
GPUFLIGHT_API gpuflight_status gpuflight_shutdown(uint32_t timeout_ms);

/* Counters so far; `size` = sizeof(gpuflight_stats) lets the struct grow. */
typedef struct gpuflight_stats {
  size_t size;
  uint64_t seen, written, summarised, pending, lost;
  uint64_t launches_missed_cache; /* launches that had to resolve their configuration */
  uint64_t kernels, configs;
} gpuflight_stats;
GPUFLIGHT_API gpuflight_status gpuflight_get_stats(gpuflight_stats* stats);

/* Path of the log, "" when there is none. Valid until the process ends. */
GPUFLIGHT_API const char* gpuflight_log_path(void);

GPUFLIGHT_API const char* gpuflight_version(void); /* "0.1.0" */
GPUFLIGHT_API const char* gpuflight_status_string(gpuflight_status status);

#ifdef __cplusplus
}
#endif
#endif
