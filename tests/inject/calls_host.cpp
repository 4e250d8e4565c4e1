// A host that makes each driver call beside launches that the recorder watches, in the plain and the
// per-thread-default-stream form, and says on its standard output what it did: one JSON object per call. calls_test.py
// holds the log against that.
//
//   calls_host all          one of each
//   calls_host threads N    memory that one thread allocates and another frees, N threads
//   calls_host forever      allocations and edges until it is killed
//   calls_host edges N      N event records and waits
#include <cuda.h>

#include <cinttypes>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "sim_program.h"

using gpuflight::test::call;
using gpuflight::test::Cuda;
using gpuflight::test::fail;
using gpuflight::test::kernel_named;

namespace {

// What the program asked for and got.
struct Said {
  const char* call;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t owner = 0;
  CUresult status = CUDA_SUCCESS;
  bool per_thread = false;
};

void say(const Said& s) {
  std::printf("{\"call\":\"%s\",\"address\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"owner\":%" PRIu64
              ",\"status\":%d,\"per_thread\":%s}\n",
              s.call, s.address, s.bytes, s.owner, static_cast<int>(s.status), s.per_thread ? "true" : "false");
}

// The name in the log: without version and without the per-thread suffix.
void made(const char* name, CUresult status, bool per_thread = false) {
  Said s{name};
  s.status = status;
  s.per_thread = per_thread;
  say(s);
}

std::uint64_t number(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr p = 0;
  const CUresult status = call("cuMemAlloc_v2", &p, bytes);
  say({"cuMemAlloc", p, bytes, 0, status});
  return p;
}

void release(const char* symbol, const char* name, CUdeviceptr p, std::size_t bytes) {
  const CUresult status = call(symbol, p);
  say({name, p, bytes, 0, status});
}

void plain_memory() {
  const CUdeviceptr a = allocate(1000), b = allocate(3000);
  release("cuMemFree_v2", "cuMemFree", a, 1000);
  const CUdeviceptr c = allocate(500);
  release("cuMemFree_v2", "cuMemFree", b, 3000);
  release("cuMemFree_v2", "cuMemFree", c, 500);
  CUdeviceptr rows = 0;
  std::size_t pitch = 0;
  CUresult status = call("cuMemAllocPitch_v2", &rows, &pitch, std::size_t{100}, std::size_t{7}, 4u);
  say({"cuMemAllocPitch", rows, pitch * 7, 0, status});
  release("cuMemFree_v2", "cuMemFree", rows, pitch * 7);
  CUdeviceptr refused = 0;
  status = call("cuMemAlloc_v2", &refused, std::size_t{1} << 45);
  say({"cuMemAlloc", 0, std::size_t{1} << 45, 0, status});
  status = call("cuMemFree_v2", CUdeviceptr{0x1000});  // never allocated
  say({"cuMemFree", 0x1000, 0, 0, status});
}

void host_memory() {
  void* p = nullptr;
  CUresult status = call("cuMemAllocHost_v2", &p, std::size_t{4096});
  say({"cuMemAllocHost", number(p), 4096, 0, status});
  void* q = nullptr;
  status = call("cuMemHostAlloc", &q, std::size_t{8192}, 0u);
  say({"cuMemHostAlloc", number(q), 8192, 0, status});
  for (auto [place, bytes] : {std::pair(p, 4096), std::pair(q, 8192)}) {
    status = call("cuMemFreeHost", place);
    say({"cuMemFreeHost", number(place), static_cast<std::uint64_t>(bytes), 0, status});
  }
  alignas(4096) static char own[8192];
  status = call("cuMemHostRegister_v2", static_cast<void*>(own), sizeof own, 0u);
  say({"cuMemHostRegister", number(own), sizeof own, 0, status});
  status = call("cuMemHostUnregister", static_cast<void*>(own));
  say({"cuMemHostUnregister", number(own), sizeof own, 0, status});
  CUdeviceptr managed = 0;
  status = call("cuMemAllocManaged", &managed, std::size_t{70000}, 1u);
  say({"cuMemAllocManaged", managed, 70000, 0, status});
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  status = call("cuMemPrefetchAsync_v2", managed, std::size_t{70000}, here, 0u, CUstream{nullptr});
  made("cuMemPrefetchAsync", status);
  release("cuMemFree_v2", "cuMemFree", managed, 70000);
}

void pool_memory(CUstream stream, bool per_thread) {
  const std::string end = per_thread ? "_ptsz" : "";
  CUdeviceptr p = 0, q = 0;
  CUresult status = call(("cuMemAllocAsync" + end).c_str(), &p, std::size_t{111}, stream);
  say({"cuMemAllocAsync", p, 111, 0, status, per_thread});
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool = nullptr;
  Cuda::check(call("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&props)), "pool");
  status = call(("cuMemAllocFromPoolAsync" + end).c_str(), &q, std::size_t{222}, pool, stream);
  say({"cuMemAllocFromPoolAsync", q, 222, number(pool), status, per_thread});
  status = call(("cuMemFreeAsync" + end).c_str(), p, stream);
  say({"cuMemFreeAsync", p, 111, 0, status, per_thread});
  release("cuMemFree_v2", "cuMemFree", q, 222);  // pool memory goes that way too
}

void virtual_memory() {
  constexpr std::size_t kBytes = 4 << 20;
  CUmemAllocationProp props{};
  props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUdeviceptr place = 0;
  Cuda::check(call("cuMemAddressReserve", &place, 2 * kBytes, std::size_t{0}, CUdeviceptr{0}, 0ull), "reserve");
  CUmemGenericAllocationHandle handles[2] = {};
  for (int i = 0; i < 2; ++i) {
    CUresult status =
        call("cuMemCreate", &handles[i], kBytes, static_cast<const CUmemAllocationProp*>(&props), 0ull);
    say({"cuMemCreate", handles[i], kBytes, 0, status});
    status = call("cuMemMap", place + i * kBytes, kBytes, std::size_t{0}, handles[i], 0ull);
    say({"cuMemMap", place + i * kBytes, kBytes, handles[i], status});
  }
  CUresult status = call("cuMemUnmap", place, 2 * kBytes);  // both at once
  say({"cuMemUnmap", place, 2 * kBytes, 0, status});
  for (const auto handle : handles) {
    status = call("cuMemRelease", handle);
    say({"cuMemRelease", handle, kBytes, 0, status});
  }
  Cuda::check(call("cuMemAddressFree", place, 2 * kBytes), "address free");
}

void copies_and_fills(CUstream stream, bool per_thread) {
  const std::string sync = per_thread ? "_ptds" : "", async = per_thread ? "_ptsz" : "";
  static char host[4096];
  const CUdeviceptr a = allocate(4096), b = allocate(4096);
  void* const h = host;
  const std::size_t n = 4096;
  const auto of = [&](const char* base, const std::string& end) { return std::string(base) + end; };
  const auto did = [&](const char* name, CUresult status) { made(name, status, per_thread); };
  did("cuMemcpyHtoD", call(of("cuMemcpyHtoD_v2", sync).c_str(), a, static_cast<const void*>(h), n));
  did("cuMemcpyDtoH", call(of("cuMemcpyDtoH_v2", sync).c_str(), h, a, n));
  did("cuMemcpyDtoD", call(of("cuMemcpyDtoD_v2", sync).c_str(), b, a, n));
  did("cuMemcpy", call(of("cuMemcpy", sync).c_str(), b, a, n));
  did("cuMemcpyAsync", call(of("cuMemcpyAsync", async).c_str(), b, a, n, stream));
  did("cuMemcpyHtoDAsync", call(of("cuMemcpyHtoDAsync_v2", async).c_str(), a, static_cast<const void*>(h), n, stream));
  did("cuMemcpyDtoHAsync", call(of("cuMemcpyDtoHAsync_v2", async).c_str(), h, a, n, stream));
  did("cuMemcpyDtoDAsync", call(of("cuMemcpyDtoDAsync_v2", async).c_str(), b, a, n, stream));
  const unsigned char c8 = 1;
  const unsigned short c16 = 2;
  const unsigned c32 = 3;
  const std::size_t pitch = 512, wide = 16, high = 4;
  did("cuMemsetD8", call(of("cuMemsetD8_v2", sync).c_str(), a, c8, n));
  did("cuMemsetD16", call(of("cuMemsetD16_v2", sync).c_str(), a, c16, n / 2));
  did("cuMemsetD32", call(of("cuMemsetD32_v2", sync).c_str(), a, c32, n / 4));
  did("cuMemsetD2D8", call(of("cuMemsetD2D8_v2", sync).c_str(), a, pitch, c8, wide, high));
  did("cuMemsetD2D16", call(of("cuMemsetD2D16_v2", sync).c_str(), a, pitch, c16, wide, high));
  did("cuMemsetD2D32", call(of("cuMemsetD2D32_v2", sync).c_str(), a, pitch, c32, wide, high));
  did("cuMemsetD8Async", call(of("cuMemsetD8Async", async).c_str(), a, c8, n, stream));
  did("cuMemsetD16Async", call(of("cuMemsetD16Async", async).c_str(), a, c16, n / 2, stream));
  did("cuMemsetD32Async", call(of("cuMemsetD32Async", async).c_str(), a, c32, n / 4, stream));
  did("cuMemsetD2D8Async", call(of("cuMemsetD2D8Async", async).c_str(), a, pitch, c8, wide, high, stream));
  did("cuMemsetD2D16Async", call(of("cuMemsetD2D16Async", async).c_str(), a, pitch, c16, wide, high, stream));
  did("cuMemsetD2D32Async", call(of("cuMemsetD2D32Async", async).c_str(), a, pitch, c32, wide, high, stream));
  did("cuStreamSynchronize", call(of("cuStreamSynchronize", async).c_str(), stream));
  release("cuMemFree_v2", "cuMemFree", a, 4096);
  release("cuMemFree_v2", "cuMemFree", b, 4096);
}

void edges(CUstream from, CUstream to, bool per_thread) {
  const std::string end = per_thread ? "_ptsz" : "";
  CUevent event = nullptr;
  Cuda::check(call("cuEventCreate", &event, 2u), "event");
  const auto said = [&](const char* name, CUresult status) { say({name, number(event), 0, 0, status, per_thread}); };
  said("cuEventRecord", call(("cuEventRecord" + end).c_str(), event, from));
  said("cuEventRecordWithFlags", call(("cuEventRecordWithFlags" + end).c_str(), event, from, 0u));
  said("cuStreamWaitEvent", call(("cuStreamWaitEvent" + end).c_str(), to, event, 0u));
  made("cuEventSynchronize", call("cuEventSynchronize", event));
}

// Event records and waits that make another stream join a capture, and copies in it.
void captured(CUstream from, CUstream to) {
  CUevent event = nullptr;
  Cuda::check(call("cuEventCreate", &event, 2u), "event");
  const CUdeviceptr memory = allocate(64);
  Cuda::check(call("cuStreamBeginCapture_v2", from, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
  const auto said = [&](const char* name, CUresult status) { say({name, number(event), 0, 0, status}); };
  said("cuEventRecord", call("cuEventRecord", event, from));
  said("cuStreamWaitEvent", call("cuStreamWaitEvent", to, event, 0u));
  made("cuMemsetD8Async", call("cuMemsetD8Async", memory, static_cast<unsigned char>(0), std::size_t{64}, to));
  said("cuEventRecord", call("cuEventRecord", event, to));
  said("cuStreamWaitEvent", call("cuStreamWaitEvent", from, event, 0u));
  CUgraph graph = nullptr;
  Cuda::check(call("cuStreamEndCapture", from, &graph), "end");
  release("cuMemFree_v2", "cuMemFree", memory, 64);
}

int all() {
  const Cuda cuda({kernel_named("k")});
  const CUstream a = cuda.stream(), b = cuda.stream();
  plain_memory();
  host_memory();
  pool_memory(a, false);
  pool_memory(nullptr, true);
  virtual_memory();
  copies_and_fills(a, false);
  copies_and_fills(nullptr, true);
  edges(a, b, false);
  edges(nullptr, b, true);
  captured(a, b);
  made("cuCtxSynchronize", call("cuCtxSynchronize"));
  return 0;
}

// Each thread frees what the one before it has allocated, as soon as it is there.
int threads(int count, int times) {
  const Cuda cuda({kernel_named("k")});
  const CUstream stream = cuda.stream();
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<CUdeviceptr> memory;
  };
  std::deque<Queue> queues(static_cast<std::size_t>(count));
  std::vector<std::thread> running;
  for (int t = 0; t < count; ++t) {
    running.emplace_back([&, t] {
      cuda.use();
      Queue& own = queues[static_cast<std::size_t>(t)];
      Queue& next = queues[static_cast<std::size_t>((t + 1) % count)];
      for (int i = 0; i < times; ++i) {
        CUdeviceptr p = 0;
        const auto bytes = static_cast<std::size_t>(t + 1) * 64;
        Cuda::check(i % 2 == 0 ? call("cuMemAlloc_v2", &p, bytes) : call("cuMemAllocAsync", &p, bytes, stream), "alloc");
        {
          const std::lock_guard lock(next.mutex);
          next.memory.push_back(p);
        }
        next.changed.notify_one();
        std::unique_lock lock(own.mutex);
        own.changed.wait(lock, [&] { return !own.memory.empty(); });
        const CUdeviceptr old = own.memory.front();
        own.memory.pop_front();
        lock.unlock();
        Cuda::check(call("cuMemFree_v2", old), "free");
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  return 0;
}

int forever() {
  const Cuda cuda({kernel_named("k")});
  const CUstream a = cuda.stream(), b = cuda.stream();
  CUevent event = nullptr;
  Cuda::check(call("cuEventCreate", &event, 2u), "event");
  for (std::uint64_t n = 0;; ++n) {
    CUdeviceptr p = 0, q = 0;
    Cuda::check(call("cuMemAlloc_v2", &p, std::size_t{4096}), "alloc");
    Cuda::check(call("cuMemAllocAsync", &q, std::size_t{100}, a), "alloc");
    Cuda::check(call("cuMemsetD8Async", p, static_cast<unsigned char>(0), std::size_t{64}, a), "fill");
    Cuda::check(call("cuEventRecord", event, a), "record");
    Cuda::check(call("cuStreamWaitEvent", b, event, 0u), "wait");
    Cuda::check(call("cuMemFreeAsync", q, a), "free");
    Cuda::check(call("cuMemFree_v2", p), "free");
    if (n % 100 == 0) {  // so many times seven calls have returned
      std::printf("%" PRIu64 "\n", (n + 1) * 7);
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

int many_edges(int count) {
  const Cuda cuda({kernel_named("k")});
  const CUstream a = cuda.stream(), b = cuda.stream();
  CUevent event = nullptr;
  Cuda::check(call("cuEventCreate", &event, 2u), "event");
  for (int i = 0; i < count; ++i) {
    Cuda::check(call("cuEventRecord", event, a), "record");
    Cuda::check(call("cuStreamWaitEvent", b, event, 0u), "wait");
  }
  Cuda::check(cuda.launch(1), "launch");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? std::atoi(argv[2]) : 0;
  if (verb == "all") return all();
  if (verb == "threads") return threads(count, 300);
  if (verb == "forever") return forever();
  if (verb == "edges") return many_edges(count);
  std::fprintf(stderr, "usage: calls_host all | threads N | forever | edges N\n");
  return 2;
}
