// What a launch costs the host: bare, with an empty CUPTI callback, with gpuflight recording, and with gpuflight paused;
// all in one process, in alternating rounds, so that drift of clocks and driver hits all alike. Paired differences,
// quartiles. Many short rounds: what is near in time is compared.
//
//   launch_cost --lib libgpuflight.so --cupti libcupti.so --log PATTERN [--details on|off] [--threads N]
//               [--rounds N] [--launches N] [--batch N] [--simulated]
//
// Only launches are timed: every `batch` of them (500) ends with an untimed synchronise, so that the launch queue never
// fills. The recorder gives CUPTI's one subscriber slot up with pause(RELEASE) for the other rounds and takes it again
// with resume; had that no effect, its own count of events would show it, and the run fails. Result: one JSON line.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gpuflight/gpuflight.h"
#include "kernel_image.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string library, cupti, log, details = "on";
  int threads = 1, rounds = 160, launches = 5000, batch = 500;
  bool simulated = false;
};

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "launch_cost: %s\n", message.c_str());
  std::exit(1);
}
void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) die(std::string(what) + " gave " + std::to_string(result));
}
void must(CUptiResult result, const char* what) {
  if (result != CUPTI_SUCCESS) die(std::string(what) + " gave CUPTI error " + std::to_string(result));
}
void must(gpuflight_status status, const char* what) {
  if (status != GPUFLIGHT_OK) die(std::string(what) + " gave gpuflight status " + std::to_string(status));
}

template <class Function>
Function* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) die(std::string("no ") + name + " in the library");
  return reinterpret_cast<Function*>(found);
}

// An empty subscriber with the same launch callbacks enabled as the recorder has: the floor of anything built on them.
class EmptyCallback {
 public:
  explicit EmptyCallback(void* cupti)
      : subscribe_(symbol<decltype(cuptiSubscribe)>(cupti, "cuptiSubscribe")),
        unsubscribe_(symbol<decltype(cuptiUnsubscribe)>(cupti, "cuptiUnsubscribe")),
        enable_(symbol<decltype(cuptiEnableCallback)>(cupti, "cuptiEnableCallback")) {}

  void start() {
    must(subscribe_(&subscriber_, &on_call, &calls_), "cuptiSubscribe");
    for (const CUpti_CallbackId id : kLaunches) {
      must(enable_(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id), "cuptiEnableCallback");
    }
  }
  void stop() { must(unsubscribe_(subscriber_), "cuptiUnsubscribe"); }
  unsigned long calls() const { return __atomic_load_n(&calls_, __ATOMIC_RELAXED); }

 private:
  static constexpr std::array kLaunches = {
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,          CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz};

  // One plain store proves that it ran; it is the same cache line only within a thread's own launches.
  static void CUPTIAPI on_call(void* user, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
    static thread_local unsigned long own = 0;
    if (++own % 256 == 0) __atomic_fetch_add(static_cast<unsigned long*>(user), 256, __ATOMIC_RELAXED);
  }

  decltype(cuptiSubscribe)* subscribe_;
  decltype(cuptiUnsubscribe)* unsubscribe_;
  decltype(cuptiEnableCallback)* enable_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  unsigned long calls_ = 0;
};

class Recorder {
 public:
  Recorder(const Arguments& arguments) {
    void* library = dlopen(arguments.library.c_str(), RTLD_NOW);
    if (library == nullptr) die(dlerror());
    init_ = symbol<decltype(gpuflight_init)>(library, "gpuflight_init");
    pause_ = symbol<decltype(gpuflight_pause)>(library, "gpuflight_pause");
    resume_ = symbol<decltype(gpuflight_resume)>(library, "gpuflight_resume");
    flush_ = symbol<decltype(gpuflight_flush)>(library, "gpuflight_flush");
    stats_ = symbol<decltype(gpuflight_get_stats)>(library, "gpuflight_get_stats");
    const gpuflight_option options[] = {{"log", arguments.log.c_str()},         {"details", arguments.details.c_str()},
                                        {"log_max", "0"},                       {"log_segment", "16G"},
                                        {"compress", "off"},                    {"cupti", arguments.cupti.c_str()}};
    must(init_(options, std::size(options)), "gpuflight_init");
    must(pause_(GPUFLIGHT_PAUSE_RELEASE), "gpuflight_pause");
  }
  void start() { must(resume_(), "gpuflight_resume"); }
  // Paused without giving the slot up.
  void start_paused() {
    must(resume_(), "gpuflight_resume");
    must(pause_(0), "gpuflight_pause");
  }
  // What is in the rings is written before the next round, so that the writer does not run beside it.
  void stop() {
    flush_(5000);
    must(pause_(GPUFLIGHT_PAUSE_RELEASE), "gpuflight_pause");
  }
  gpuflight_stats stats() {
    gpuflight_stats stats{};
    stats.size = sizeof(stats);
    must(stats_(&stats), "gpuflight_get_stats");
    return stats;
  }

 private:
  decltype(gpuflight_init)* init_;
  decltype(gpuflight_pause)* pause_;
  decltype(gpuflight_resume)* resume_;
  decltype(gpuflight_flush)* flush_;
  decltype(gpuflight_get_stats)* stats_;
};

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const double position = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (position - static_cast<double>(low));
}

// Threads that launch together and stay for the whole run, as a program's do.
class Launchers {
 public:
  Launchers(const Arguments& arguments, CUcontext context, CUfunction kernel)
      : arguments_(arguments), context_(context), kernel_(kernel), barrier_(arguments.threads + 1),
        batches_(static_cast<std::size_t>(arguments.threads)) {
    for (int i = 0; i < arguments.threads; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Launchers() {
    done_ = true;
    barrier_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  // ns per launch: median over all batches of all threads.
  double round() {
    barrier_.arrive_and_wait();
    barrier_.arrive_and_wait();
    std::vector<double> all;
    for (const auto& one : batches_) all.insert(all.end(), one.begin(), one.end());
    return quantile(std::move(all), 0.5);
  }
  long launches_per_round() const {
    const int batches = std::max(1, arguments_.launches / arguments_.batch);
    return static_cast<long>(batches + 1) * arguments_.batch * arguments_.threads;  // one batch warms up
  }

 private:
  void serve(int index) {
    must(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    CUstream stream = nullptr;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    while (true) {
      barrier_.arrive_and_wait();
      if (done_) break;
      measure(stream, batches_[static_cast<std::size_t>(index)]);
      barrier_.arrive_and_wait();
    }
    cuStreamDestroy(stream);
  }

  void measure(CUstream stream, std::vector<double>& batches) {
    batches.clear();
    const int count = std::max(1, arguments_.launches / arguments_.batch);
    for (int b = -1; b < count; ++b) {
      const auto begin = Clock::now();
      for (int i = 0; i < arguments_.batch; ++i) {
        const CUresult result = cuLaunchKernel(kernel_, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
        if (result != CUDA_SUCCESS) [[unlikely]] die("a launch failed");
      }
      const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
      must(cuStreamSynchronize(stream), "cuStreamSynchronize");
      if (b >= 0) batches.push_back(took.count() / arguments_.batch);
    }
  }

  const Arguments& arguments_;
  CUcontext context_;
  CUfunction kernel_;
  std::barrier<> barrier_;
  std::vector<std::vector<double>> batches_;
  std::vector<std::thread> threads_;
  bool done_ = false;
};

enum Mode { kBare, kEmpty, kRecorded, kPaused, kModes };

void print_spread(const char* name, const std::vector<double>& values, const char* end = ",") {
  std::printf("\"%s\":{\"median\":%.1f,\"q1\":%.1f,\"q3\":%.1f}%s", name, quantile(values, 0.5), quantile(values, 0.25),
              quantile(values, 0.75), end);
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}
std::vector<double> percent(const std::vector<double>& part, const std::vector<double>& whole) {
  std::vector<double> out;
  for (std::size_t i = 0; i < part.size(); ++i) out.push_back(100.0 * part[i] / whole[i]);
  return out;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--simulated") {
      arguments.simulated = true;
      continue;
    }
    if (i + 1 >= argc) die("no value for " + option);
    const char* value = argv[++i];
    if (option == "--lib") arguments.library = value;
    else if (option == "--cupti") arguments.cupti = value;
    else if (option == "--log") arguments.log = value;
    else if (option == "--details") arguments.details = value;
    else if (option == "--threads") arguments.threads = std::max(1, std::atoi(value));
    else if (option == "--rounds") arguments.rounds = std::max(1, std::atoi(value));
    else if (option == "--launches") arguments.launches = std::max(1, std::atoi(value));
    else if (option == "--batch") arguments.batch = std::max(1, std::atoi(value));
    else die("unknown option " + option);
  }
  if (arguments.library.empty() || arguments.cupti.empty() || arguments.log.empty()) {
    die("--lib, --cupti and --log are needed");
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  must(cuInit(0), "cuInit");
  CUdevice device = 0;
  must(cuDeviceGet(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  must(cuModuleLoadData(&module, gpuflight::gpu_tests::module_text({{"empty_kernel"}}, arguments.simulated).c_str()),
       "cuModuleLoadData");
  CUfunction kernel = nullptr;
  must(cuModuleGetFunction(&kernel, module, "empty_kernel"), "cuModuleGetFunction");

  Launchers launchers(arguments, context, kernel);
  std::vector<double> pristine;  // before anything of CUPTI is in the process
  for (int i = 0; i < std::max(2, arguments.rounds / 4); ++i) pristine.push_back(launchers.round());

  // The recorder takes the libcupti that is in the process already: both use the same one.
  void* cupti = dlopen(arguments.cupti.c_str(), RTLD_NOW);
  if (cupti == nullptr) die(dlerror());
  EmptyCallback empty(cupti);
  Recorder recorder(arguments);

  // Each follows each other one as often.
  constexpr Mode kOrders[4][kModes] = {{kBare, kEmpty, kPaused, kRecorded}, {kEmpty, kRecorded, kBare, kPaused},
                                       {kRecorded, kPaused, kEmpty, kBare}, {kPaused, kBare, kRecorded, kEmpty}};
  std::array<std::vector<double>, kModes> ns;
  for (int round = 0; round < arguments.rounds; ++round) {
    for (const Mode mode : kOrders[round % 4]) {
      if (mode == kEmpty) empty.start();
      if (mode == kRecorded) recorder.start();
      if (mode == kPaused) recorder.start_paused();
      ns[mode].push_back(launchers.round());
      if (mode == kEmpty) empty.stop();
      if (mode == kRecorded || mode == kPaused) recorder.stop();
    }
  }

  const gpuflight_stats stats = recorder.stats();
  const long recorded = launchers.launches_per_round() * arguments.rounds;
  const auto added_by_callback = difference(ns[kEmpty], ns[kBare]);
  const auto added_over_callback = difference(ns[kRecorded], ns[kEmpty]);
  const auto added_in_all = difference(ns[kRecorded], ns[kBare]);
  std::printf("{\"details\":\"%s\",\"threads\":%d,\"rounds\":%d,\"launches_per_round\":%ld,", arguments.details.c_str(),
              arguments.threads, arguments.rounds, launchers.launches_per_round());
  print_spread("pristine_ns", pristine);
  print_spread("bare_ns", ns[kBare]);
  print_spread("empty_callback_ns", ns[kEmpty]);
  print_spread("gpuflight_ns", ns[kRecorded]);
  print_spread("empty_minus_bare_ns", added_by_callback);
  print_spread("gpuflight_minus_empty_ns", added_over_callback);
  print_spread("gpuflight_minus_bare_ns", added_in_all);
  print_spread("paused_percent_of_bare", percent(difference(ns[kPaused], ns[kBare]), ns[kBare]));
  print_spread("gpuflight_minus_empty_percent_of_bare", percent(added_over_callback, ns[kBare]));
  print_spread("gpuflight_minus_bare_percent_of_bare", percent(added_in_all, ns[kBare]));
  std::printf("\"empty_callbacks_seen\":%lu,\"recorded_launches\":%ld,\"seen\":%llu,\"written\":%llu,\"pending\":%llu,"
              "\"lost\":%llu,\"missed_cache\":%llu}\n",
              empty.calls(), recorded, static_cast<unsigned long long>(stats.seen),
              static_cast<unsigned long long>(stats.written), static_cast<unsigned long long>(stats.pending),
              static_cast<unsigned long long>(stats.lost),
              static_cast<unsigned long long>(stats.launches_missed_cache));
  return 0;
}
