// Numbers that a stream writes into host memory when it gets there (cuStreamWriteValue32), and the registration of the
// memory. One thread of the simulator writes them when their virtual time has come; not once the context has died
// before.
#include "sim/cuda/trace.h"

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <queue>
#include <thread>

using namespace gpuflight::sim;

namespace {

struct Write {
  std::int64_t at_ns;
  std::uint64_t order;  // of two at one time, the first given comes first
  std::uint32_t* word;
  std::uint32_t value;
  const ContextError* context_error;  // the context itself may be gone by then
  bool operator>(const Write& other) const {
    return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
  }
};

class WriteEngine {
 public:
  void add(Write write) {
    const std::lock_guard lock(mutex_);
    write.order = order_++;
    writes_.push(write);
    if (!running_) {
      running_ = true;
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      std::thread([this] { run(); }).detach();
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    used_.store(true, std::memory_order_release);
    changed_.notify_one();
  }

  // What is due is written, however late the engine's own thread comes to run.
  void settle() {
    if (!used_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    while (!writes_.empty() && writes_.top().at_ns <= now_ns()) write_next_locked();
  }

 private:
  void write_next_locked() {
    const Write next = writes_.top();
    writes_.pop();
    if (!next.context_error->dead_by(next.at_ns)) __atomic_store_n(next.word, next.value, __ATOMIC_RELEASE);
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (writes_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const std::int64_t wait_ns = writes_.top().at_ns - now_ns();
      if (wait_ns > 0) {
        changed_.wait_for(lock, std::chrono::nanoseconds(std::min<std::int64_t>(wait_ns, 100'000'000)));
        continue;
      }
      write_next_locked();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Write, std::vector<Write>, std::greater<>> writes_;
  std::uint64_t order_ = 0;
  bool running_ = false;
  std::atomic<bool> used_{false};
};

WriteEngine& engine() {
  static WriteEngine* const one = new WriteEngine;  // its thread outlives main's statics
  return *one;
}

CUresult write_value(CUstream handle, bool per_thread, CUdeviceptr address, std::uint32_t value) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  if (address == 0 || address % sizeof(std::uint32_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing.load(std::memory_order_acquire)) {
    if (const auto capture = stream->capture) capture->invalidated.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult error = check_implicit_dependency(*stream, true)) return error;
  const std::int64_t at = occupy_timeline(*stream, 0, 0);
  engine().add({at, 0, reinterpret_cast<std::uint32_t*>(address), value, stream->context->error});
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpuflight::sim {

void settle_writes() { engine().settle(); }

}  // namespace gpuflight::sim

extern "C" {

CUresult CUDAAPI cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  SIM_TRACED(cuMemHostRegister_v2, (p, bytesize, Flags), {
    Context* context = nullptr;
    if (const CUresult error = current_context(&context)) return error;
    return p != nullptr && bytesize > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemHostUnregister(void* p) {
  SIM_TRACED(cuMemHostUnregister, (p), { return p != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  SIM_TRACED(cuMemHostGetDevicePointer_v2, (pdptr, p, Flags), {
    if (pdptr == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  SIM_TRACED(cuStreamWriteValue32_v2, (stream, addr, value, flags), { return write_value(stream, false, addr, value); });
}

CUresult CUDAAPI cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                              unsigned int flags) {
  SIM_TRACED(cuStreamWriteValue32_v2_ptsz, (stream, addr, value, flags),
             { return write_value(stream, true, addr, value); });
}

}  // extern "C"
