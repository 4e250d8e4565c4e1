// Plays a plan on whatever libcuda the process has got: the simulated one or a real one.
// Threads: play() starts one per plan thread and waits for them all.
#pragma once

#include <cuda.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/play/plan.h"

namespace gpuflight::sim {

// What one thread has done, kept where a test can read it after the process was killed (--counters).
struct alignas(64) LiveCounters {
  std::atomic<std::uint64_t> returned{0};       // launch calls that came back, whatever they said
  std::atomic<std::uint64_t> graph_returned{0};  // cuGraphLaunch calls that came back
};

struct LiveHeader {
  char magic[8];  // "GFPLAY1\0"
  std::uint64_t threads;
  std::atomic<std::uint64_t> finished;
  char padding[40];
};
static_assert(sizeof(LiveHeader) == 64 && sizeof(LiveCounters) == 64);

// Launches of one kernel in one form that ended alike.
struct LaunchTally {
  std::uint64_t calls = 0;     // returned, any status
  std::uint64_t ok = 0;        // returned 0 and not captured: these run
  std::uint64_t captured = 0;  // returned 0 on a capturing stream
};

struct ThreadResult {
  std::map<std::pair<std::size_t, LaunchForm>, LaunchTally> launches;  // by kernel index and form
  std::uint64_t graph_launches = 0;                                    // returned 0
  std::map<std::size_t, std::uint64_t> graph_kernels;                  // kernels run inside them, by kernel index
  std::map<int, std::uint64_t> launch_errors;                          // CUresult of launches that failed
  std::vector<std::string> unexpected;                                 // ops that did not return what the plan says
};

struct PlayOptions {
  std::string plan;
  std::string kernels;   // folder of cubins; empty: images made from the plan (simulated device)
  std::string result;    // JSON
  std::string counters;  // LiveHeader and LiveCounters, mapped
  int device = 0;
  int loops = 1;
};

// A kernel as a thread can launch it.
struct KernelHandles {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;  // as a library's
};

struct LoadedModule {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
};

class Player {
 public:
  explicit Player(PlayOptions options);
  // True when everything returned what the plan expects.
  bool play();

 private:
  friend class ThreadPlayer;
  void start_driver();
  void stop_driver();
  void map_counters(std::size_t threads);
  std::string image_of(const PlanModule& module) const;
  void write_result(double seconds) const;

  PlayOptions options_;
  Plan plan_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::map<std::string, LoadedModule> modules_;
  std::vector<KernelHandles> kernels_;  // by kernel index; of modules that are not lazy
  std::vector<ThreadResult> results_;
  LiveHeader* live_header_ = nullptr;
  LiveCounters* live_ = nullptr;
  std::vector<LiveCounters> private_counters_;
  std::unique_ptr<std::barrier<>> barrier_;
};

// Throws std::runtime_error naming the call and the driver's own words.
void check(CUresult result, const std::string& what);
std::string error_name(CUresult result);

}  // namespace gpuflight::sim
