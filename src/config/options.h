// Options: the value of every option with its default. A plain struct that anyone may fill; the rows that say how each
// field is named outside (variable, flag, API field) and read from text stand in option_table.h, and nowhere else.
#pragma once

#include <cstdint>
#include <string>

namespace gpuflight::config {

enum class Mode : std::uint8_t {
  kStream,    // every event goes to the log
  kBlackbox,  // the log gets summaries, the flight file keeps the last events
};

// When the GPU did each piece of work, asked of CUPTI's activity records: of each `every`-th launch of a configuration.
struct Timing {
  std::uint32_t every = 1;  // 0: off
  bool on() const noexcept { return every != 0; }
  bool operator==(const Timing&) const = default;
};

// The most the recorder may cost, in percent of the program's time; see recorder/cost_budget.h for what is counted.
struct Budget {
  double percent = 0;  // 0: no budget
  bool on() const noexcept { return percent > 0; }
  bool operator==(const Budget&) const = default;
};

enum class Graphs : std::uint8_t {
  kAuto,   // node in stream mode, off in black-box mode
  kNode,   // times of every node of a graph: doubles the cost of a replay
  kGraph,  // times of each cuGraphLaunch as a whole
  kOff,
};

// GPU times of launches that the hooks see: of each `every`-th of a configuration and a thread, by a pair of events.
struct EventTimes {
  std::uint32_t every = 0;  // 0: off
  bool operator==(const EventTimes&) const = default;
};

// How launches are seen.
enum class Capture : std::uint8_t {
  kAuto,       // CUPTI where GPU times are wanted and it can be had, else the hooks
  kCupti,
  kInterpose,  // the driver's entry points, by the hooks library
};

// Of which launches the host's time in the call is taken.
enum class CallTimes : std::uint8_t {
  kAuto,  // by the hooks: not of all that follow one another closely
  kAll,
};

struct Options {
  // what is recorded
  bool enabled = true;
  Mode mode = Mode::kStream;
  bool details = true;  // occupancy and its breakdown
  Capture capture = Capture::kAuto;
  Timing timing;
  EventTimes event_times;
  Graphs graphs = Graphs::kAuto;
  CallTimes call_times = CallTimes::kAuto;
  bool nvtx = true;     // ranges and marks of the program's NVTX
  bool edges = true;    // event records and waits: the dependencies between streams
  std::string include;  // comma-separated globs of program names; empty: all
  std::string exclude;

  // where it goes
  std::string log = "gpuflight/%e.%p.ndjson";
  std::string flight;  // empty: beside the log; "memory": no file
  std::uint64_t log_max_bytes = std::uint64_t{2} << 30;  // 0: no bound
  std::uint64_t log_segment_bytes = std::uint64_t{64} << 20;
  std::uint64_t log_keep_ms = 60'000;
  bool compress = true;
  bool mask_args = false;

  // when something goes wrong
  bool markers = true;             // marks in the host's streams that show how far the GPU has come
  std::uint64_t hang_after_ms = 30'000;  // 0: no watchdog
  std::string hang_command;
  std::string dump_when;           // black box: "FIELD OP NUMBER"
  std::uint64_t dump_events = 100'000;

  // what it may take
  Budget budget;
  std::uint64_t pool_bytes = std::uint64_t{32} << 20;
  std::uint64_t kernels_max = 16'384;
  std::uint64_t configs_max = 65'536;
  std::uint64_t flush_ms = 50;
  std::uint64_t exit_timeout_ms = 2'000;

  // surroundings
  std::string cupti;    // empty: found by the recorder
  std::string libcuda;  // empty: libcuda.so.1 as the loader finds it
  bool verbose = false;
  bool quiet = false;
};

}  // namespace gpuflight::config
