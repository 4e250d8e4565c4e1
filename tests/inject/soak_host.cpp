// A program that launches kernels and graphs from many threads at a steady rate, for as long as it is let live, and
// counts in a mapped file of its own what has returned: what is compared with the recording after it was killed.
//
//   soak_host --counters FILE [--threads N] [--rate LAUNCHES_PER_SECOND] [--seconds S] [--life LAUNCHES]
//             [--reload-ms MS] [--end HOW --end-after-ms MS]
//
// --life: a thread ends after so many launches and another takes its place. --reload-ms: so often a module is loaded,
// launched from and unloaded again. --end: exit, _exit, abort, segv, exception or exec, from a thread of its own.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "sim_program.h"

namespace {

using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;
using Clock = std::chrono::steady_clock;

// As the plan player's own (src/sim/play/player.h).
struct alignas(64) Header {
  char magic[8];
  std::uint64_t workers;
};
struct alignas(64) Counters {
  std::atomic<std::uint64_t> returned, graphs_returned;
};

struct Options {
  std::map<std::string, std::string> values;
  double number(const char* name, double otherwise) const {
    const auto found = values.find(name);
    return found == values.end() ? otherwise : std::atof(found->second.c_str());
  }
  std::string text(const char* name) const {
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
  }
};

Counters* map_counters(const std::string& path, std::size_t workers) {
  const std::size_t bytes = sizeof(Header) + workers * sizeof(Counters);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail(path + ": " + std::strerror(errno));
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) fail(path + ": " + std::strerror(errno));
  close(fd);
  auto* const header = static_cast<Header*>(mapped);
  header->workers = workers;
  std::memcpy(header->magic, "GFPLAY1", 8);
  return reinterpret_cast<Counters*>(header + 1);
}

void add_one(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

class Pace {
 public:
  explicit Pace(double per_second) : per_second_(per_second), start_(Clock::now()) {}
  void wait() {
    ++done_;
    if (per_second_ <= 0) return;
    const auto due = start_ + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(static_cast<double>(done_) / per_second_));
    if (due - Clock::now() > std::chrono::microseconds(200)) std::this_thread::sleep_until(due);
  }

 private:
  double per_second_;
  Clock::time_point start_;
  std::uint64_t done_ = 0;
};

// A graph of two kernels, captured on the stream.
CUgraphExec make_graph(const Cuda& cuda, CUstream stream, Counters& counters) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  Cuda::check(Cuda::symbol<decltype(::cuStreamBeginCapture)>("cuStreamBeginCapture_v2")(
                  stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin capture");
  for (int i = 0; i < 2; ++i) {
    Cuda::check(cuda.launch(3, 1, 32, stream), "captured launch");
    add_one(counters.returned);
  }
  Cuda::check(Cuda::symbol<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(stream, &graph), "end capture");
  Cuda::check(Cuda::symbol<decltype(::cuGraphInstantiate)>("cuGraphInstantiateWithFlags")(&exec, graph, 0),
              "instantiate");
  Cuda::check(Cuda::symbol<decltype(::cuGraphDestroy)>("cuGraphDestroy")(graph), "graph destroy");
  return exec;
}

// What a worker has for all the threads that it is made of one after the other. (A new stream for each would be a new
// row in the recorder's table and a new line in the log each time, which is growth by right.)
struct Worker {
  Counters& counters;
  Pace pace;
  CUstream stream;
  CUgraphExec exec;
};

// One thread's life.
void work(const Cuda& cuda, Worker& worker, std::uint64_t life, const std::atomic<bool>& stop) {
  constexpr std::uint64_t kGraphEvery = 16;
  cuda.use();
  const auto launch_graph = Cuda::symbol<decltype(::cuGraphLaunch)>("cuGraphLaunch");
  for (std::uint64_t i = 1; !stop.load(std::memory_order_relaxed) && (life == 0 || i <= life); ++i) {
    if (i % kGraphEvery == 0) {
      Cuda::check(launch_graph(worker.exec, worker.stream), "cuGraphLaunch");
      add_one(worker.counters.graphs_returned);
    } else {
      Cuda::check(cuda.launch(static_cast<unsigned>(i % 7 + 1), i % 2, 64, worker.stream), "launch");
      add_one(worker.counters.returned);
    }
    worker.pace.wait();
  }
}

// Handles are used again after an unload: a few kernels under few names, so that the tables stay as they are.
void reload(const Cuda& cuda, Counters& counters, int every_ms, const std::atomic<bool>& stop) {
  cuda.use();
  const auto load = Cuda::symbol<decltype(::cuModuleLoadData)>("cuModuleLoadData");
  const auto unload = Cuda::symbol<decltype(::cuModuleUnload)>("cuModuleUnload");
  const auto function_of = Cuda::symbol<decltype(::cuModuleGetFunction)>("cuModuleGetFunction");
  const auto launch = Cuda::symbol<decltype(::cuLaunchKernel)>("cuLaunchKernel");
  void* parameters[] = {nullptr};
  for (unsigned i = 0; !stop.load(std::memory_order_relaxed); ++i) {
    const std::string name = "_Z8reloaded" + std::to_string(i % 8) + "v";
    gpuflight::sim::ModuleImage image;
    image.kernels = {kernel_named(name, 16 + static_cast<int>(i % 8) * 8)};
    const std::string text = gpuflight::sim::write_image(image);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    Cuda::check(load(&module, text.data()), "load");
    Cuda::check(function_of(&function, module, name.c_str()), "function");
    Cuda::check(launch(function, 2, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr), "launch");
    add_one(counters.returned);
    Cuda::check(unload(module), "unload");
    std::this_thread::sleep_for(std::chrono::milliseconds(every_ms));
  }
}

void end_by(const std::string& how) {
  if (how == "_exit") _exit(3);
  if (how == "abort") std::abort();
  if (how == "segv") *static_cast<volatile int*>(nullptr) = 1;
  if (how == "exception") throw 42;
  if (how == "exec") execl("/bin/true", "true", nullptr);
  std::exit(3);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) options.values[argv[i] + 2] = argv[i + 1];
  const auto threads = static_cast<std::size_t>(options.number("threads", 8));
  const auto life = static_cast<std::uint64_t>(options.number("life", 0));
  const int reload_ms = static_cast<int>(options.number("reload-ms", 0));
  const double rate = options.number("rate", 0) / static_cast<double>(threads);
  Counters* const counters = map_counters(options.text("counters"), threads + 1);
  const Cuda cuda({kernel_named("_Z4tickPf"), kernel_named("_Z4tockPf", 40)});

  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      cuda.use();
      const CUstream stream = cuda.stream();
      Worker worker{counters[i], Pace(rate), stream, make_graph(cuda, stream, counters[i])};
      if (life == 0) {
        work(cuda, worker, life, stop);
      } else {
        while (!stop.load()) std::thread([&] { work(cuda, worker, life, stop); }).join();
      }
      Cuda::check(Cuda::symbol<decltype(::cuGraphExecDestroy)>("cuGraphExecDestroy")(worker.exec), "exec destroy");
      Cuda::check(Cuda::symbol<decltype(::cuStreamDestroy)>("cuStreamDestroy_v2")(stream), "stream destroy");
    });
  }
  if (reload_ms > 0) workers.emplace_back([&] { reload(cuda, counters[threads], reload_ms, stop); });
  if (const std::string how = options.text("end"); !how.empty()) {
    std::thread([&options, how] {
      std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int>(options.number("end-after-ms", 300))));
      end_by(how);
    }).detach();
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(options.number("seconds", 1e6)));
  stop = true;
  for (std::thread& worker : workers) worker.join();
  return 0;
}
