// A host that does what its standard input says, a line at a time, and answers each line with one of its own: tests
// decide while it runs when it launches, waits, dies, or lets another CUPTI client in.
//
//   guided_host NAME:MILLISECONDS[:FAULT] ...   its kernels; "forever" never ends, FAULT (a CUresult) kills the context
//
// Threads: main reads and does; a line that begins with "@T " is done by worker T while main reads on ("@T wait" waits
// for it). What follows a word in brackets may be left out.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <sys/syscall.h>
#include <thread>

#include "sim/sim_hooks.h"
#include "sim_program.h"

using gpuflight::sim::KernelImage;
using gpuflight::sim::kForeverNs;
using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

namespace {

std::atomic<std::int64_t> g_realtime_step_ns{0};

}  // namespace

// The wall clock of this process, where a test has set it back. The executable's comes before the C library's.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* at) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, at);
  const std::int64_t step = g_realtime_step_ns.load(std::memory_order_relaxed);
  if (result == 0 && step != 0 && clock == CLOCK_REALTIME) {
    const std::int64_t ns = std::int64_t{at->tv_sec} * 1'000'000'000 + at->tv_nsec + step;
    at->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    at->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  }
  return static_cast<int>(result);
}

namespace {

gpuflight::sim::SimHooks& hooks() {
  return *Cuda::symbol<gpuflight::sim::SimHooks*()>("gpuflight_sim_hooks")();
}

// --- what the recorder is called for, seen from outside ---

CUpti_CallbackFunc g_subscriber = nullptr;
std::atomic<std::uint64_t> g_delivered{0};

void CUPTIAPI count_and_pass(void* userdata, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  g_delivered.fetch_add(1);
  g_subscriber(userdata, domain, id, data);
}

std::string delivered() {
  CUpti_CallbackFunc now = hooks().callback.load();
  if (now == nullptr) return "unsubscribed " + std::to_string(g_delivered.exchange(0));
  if (now != &count_and_pass) {
    g_subscriber = now;
    hooks().callback.store(&count_and_pass);
  }
  return std::to_string(g_delivered.exchange(0));
}

// --- another CUPTI client ---

CUpti_SubscriberHandle g_other = nullptr;

template <class Function>
Function* cupti(const char* name) {
  static void* const handle = dlopen(std::getenv("GPUFLIGHT_CUPTI"), RTLD_NOW);
  auto* const found = reinterpret_cast<Function*>(handle != nullptr ? dlsym(handle, name) : nullptr);
  if (found == nullptr) fail(std::string("no ") + name);
  return found;
}

void CUPTIAPI ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

// --- children ---

volatile sig_atomic_t g_child_signals = 0;
void on_child(int) { g_child_signals = g_child_signals + 1; }

class Guided {
 public:
  explicit Guided(const std::vector<KernelImage>& kernels) : cuda_(kernels) {
    for (std::size_t i = 0; i < kernels.size(); ++i) kernels_[kernels[i].name] = i;
  }

  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb, a, b;
    words >> verb >> a >> b;
    if (verb == "launch") return launch(a, b, words);
    if (verb == "stream") return result(create(a));
    if (verb == "destroy") return result(call<decltype(::cuStreamDestroy)>("cuStreamDestroy_v2", take(a)));
    if (verb == "sync") {
      return result(a.empty() ? call<decltype(::cuCtxSynchronize)>("cuCtxSynchronize")
                              : call<decltype(::cuStreamSynchronize)>("cuStreamSynchronize", stream(a)));
    }
    if (verb == "sync_from_outside") {  // from a thread to which no context is current
      CUcontext mine = nullptr;
      call<decltype(::cuCtxGetCurrent)>("cuCtxGetCurrent", &mine);
      call<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent", CUcontext{nullptr});
      const CUresult code = call<CUresult(CUcontext)>("cuCtxSynchronize_v2", mine);
      cuda_.use();
      return result(code);
    }
    if (verb == "capture") {
      return result(call<decltype(::cuStreamBeginCapture)>("cuStreamBeginCapture_v2", stream(a),
                                                           CU_STREAM_CAPTURE_MODE_GLOBAL));
    }
    if (verb == "end_capture") {
      CUgraph graph = nullptr;
      return result(call<decltype(::cuStreamEndCapture)>("cuStreamEndCapture", stream(a), &graph));
    }
    if (verb == "call") return result(other_call(a, b));
    if (verb == "delivered") return delivered();
    if (verb == "subscribe") {
      return result(cupti<decltype(::cuptiSubscribe)>("cuptiSubscribe")(&g_other, &ignore, nullptr));
    }
    if (verb == "unsubscribe") return result(cupti<decltype(::cuptiUnsubscribe)>("cuptiUnsubscribe")(g_other));
    if (verb == "children") {  // what a host's own wait call finds, and how often it was told of a child
      const pid_t found = waitpid(-1, nullptr, WNOHANG);
      return (found < 0 ? errno == ECHILD ? "none" : "error" : std::to_string(found)) + " " +
             std::to_string(g_child_signals);
    }
    if (verb == "api") return api(a, b);
    if (verb == "step_clock") {
      g_realtime_step_ns.store(std::stoll(a) * 1'000'000'000);
      return "0";
    }
    if (verb == "exit") std::exit(std::atoi(a.c_str()));
    fail("what is \"" + line + "\"?");
  }

  const Cuda& cuda() const { return cuda_; }

 private:
  template <class Function, class... Arguments>
  static CUresult call(const char* name, Arguments... arguments) {
    return Cuda::symbol<Function>(name)(arguments...);
  }
  static std::string result(int code) { return std::to_string(code); }

  // launch KERNEL [TIMES [STREAM [GRID]]]: the last launch's result
  std::string launch(const std::string& kernel, const std::string& times, std::istringstream& more) {
    std::string on;
    unsigned grid = 1;
    more >> on >> grid;
    const auto found = kernels_.find(kernel);
    if (found == kernels_.end()) fail("no kernel " + kernel);
    CUstream const where = stream(on);
    CUresult last = CUDA_SUCCESS;
    for (int i = 0, n = times.empty() ? 1 : std::stoi(times); i < n; ++i) {
      last = cuda_.launch(grid == 0 ? 1 : grid, found->second, 64, where);
    }
    return result(last);
  }

  // call NAME [STREAM]: one that is no launch; what it needs was made by "call prepare".
  CUresult other_call(const std::string& name, const std::string& on) {
    CUstream const where = stream(on);
    if (name == "prepare") {
      call<decltype(::cuEventCreate)>("cuEventCreate", &event_, CU_EVENT_DISABLE_TIMING);
      return call<decltype(::cuMemAlloc)>("cuMemAlloc_v2", &memory_, std::size_t{4096});
    }
    if (name == "cuMemAlloc") {
      CUdeviceptr made = 0;
      return call<decltype(::cuMemAlloc)>("cuMemAlloc_v2", &made, std::size_t{64});
    }
    if (name == "cuMemAllocAsync") {
      CUdeviceptr made = 0;
      return call<decltype(::cuMemAllocAsync)>("cuMemAllocAsync", &made, std::size_t{64}, where);
    }
    if (name == "cuMemFree") return call<decltype(::cuMemFree)>("cuMemFree_v2", memory_);
    if (name == "cuMemsetD8Async") {
      return call<decltype(::cuMemsetD8Async)>("cuMemsetD8Async", memory_, static_cast<unsigned char>(0),
                                               std::size_t{64}, where);
    }
    if (name == "cuMemcpyDtoH") {
      char host[64];
      return call<decltype(::cuMemcpyDtoH)>("cuMemcpyDtoH_v2", static_cast<void*>(host), memory_, sizeof host);
    }
    if (name == "cuEventRecord") return call<decltype(::cuEventRecord)>("cuEventRecord", event_, where);
    if (name == "cuStreamWaitEvent") return call<decltype(::cuStreamWaitEvent)>("cuStreamWaitEvent", where, event_, 0u);
    fail("what call is \"" + name + "\"?");
  }

  CUresult create(const std::string& name) {
    CUstream created = nullptr;
    const CUresult code = call<decltype(::cuStreamCreate)>("cuStreamCreate", &created, CU_STREAM_NON_BLOCKING);
    const std::lock_guard lock(mutex_);
    streams_[name] = created;
    return code;
  }
  CUstream stream(const std::string& name) {
    if (name.empty() || name == "default") return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(name);
    if (found == streams_.end()) fail("no stream " + name);
    return found->second;
  }
  CUstream take(const std::string& name) {
    CUstream const handle = stream(name);
    const std::lock_guard lock(mutex_);
    streams_.erase(name);
    return handle;
  }

  // gpuflight's own API, as a program that only looks for it finds it.
  static std::string api(const std::string& name, const std::string& number) {
    void* const found = dlsym(RTLD_DEFAULT, ("gpuflight_" + name).c_str());
    if (found == nullptr) fail("no gpuflight_" + name);
    if (number.empty()) return result(reinterpret_cast<int (*)()>(found)());
    return result(reinterpret_cast<int (*)(unsigned)>(found)(static_cast<unsigned>(std::stoul(number))));
  }

  const Cuda cuda_;
  std::map<std::string, std::size_t> kernels_;
  std::mutex mutex_;
  std::map<std::string, CUstream> streams_;
  CUdeviceptr memory_ = 0;
  CUevent event_ = nullptr;
};

class Worker {
 public:
  explicit Worker(Guided& guided)
      : thread_([this, &guided] {
          guided.cuda().use();
          for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !lines_.empty(); });
            const std::string line = lines_.front();
            lock.unlock();
            std::string answer = guided.obey(line);
            lock.lock();
            answer_ = std::move(answer);
            lines_.pop_front();
            changed_.notify_all();
          }
        }) {
    thread_.detach();
  }

  void post(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    changed_.notify_all();
  }
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return lines_.empty(); });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  std::string answer_;
  std::thread thread_;  // last: it uses the others
};

KernelImage kernel_of(const std::string& text) {
  std::istringstream parts(text);
  std::string name, duration, fault;
  std::getline(parts, name, ':');
  std::getline(parts, duration, ':');
  std::getline(parts, fault, ':');
  KernelImage kernel = kernel_named(name);
  kernel.duration_ns = duration == "forever" ? kForeverNs : static_cast<std::int64_t>(std::stod(duration) * 1e6);
  if (!fault.empty()) kernel.fault = std::stoi(fault);
  return kernel;
}

}  // namespace

int main(int argc, char** argv) {
  struct sigaction action{};
  action.sa_handler = &on_child;
  sigaction(SIGCHLD, &action, nullptr);
  std::vector<KernelImage> kernels;
  for (int i = 1; i < argc; ++i) kernels.push_back(kernel_of(argv[i]));
  // Never destroyed: workers may be inside a call that does not return when main leaves.
  auto& guided = *new Guided(kernels);
  auto& workers = *new std::map<std::string, Worker*>;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer;
    if (line.starts_with("@")) {
      const auto space = line.find(' ');
      Worker*& worker = workers[line.substr(1, space - 1)];
      if (worker == nullptr) worker = new Worker(guided);
      const std::string what = line.substr(space + 1);
      if (what == "wait") {
        answer = worker->wait();
      } else {
        worker->post(what);
        answer = "posted";
      }
    } else {
      answer = guided.obey(line);
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
