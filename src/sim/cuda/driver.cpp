#include "sim/cuda/driver.h"

#include <sched.h>

#include <string>
#include <unordered_set>

#include "sim/cuda/trace.h"

namespace gpuflight::sim {
namespace {

// One slot per thread, found at a fixed offset from the thread pointer: a launch must not call __tls_get_addr.
[[gnu::tls_model("initial-exec")]] thread_local ThreadState tls_state;

}  // namespace

Driver& driver() {
  static Driver& instance = *new Driver;
  return instance;
}

SimHooks& hooks() {
  static constinit SimHooks instance;  // no guard on the way
  return instance;
}

ThreadState& thread_state() { return tls_state; }

std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> next{1};
  if (tls_state.id == 0) tls_state.id = next.fetch_add(1, std::memory_order_relaxed);
  return tls_state.id;
}

const char* intern(std::string_view name) {
  static std::mutex mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.emplace(name).first->c_str();
}

void raise_to(std::atomic<std::int64_t>& value, std::int64_t at_least) {
  std::int64_t seen = value.load(std::memory_order_relaxed);
  while (seen < at_least && !value.compare_exchange_weak(seen, at_least, std::memory_order_relaxed)) {
  }
}

CUresult sticky_error(Context& context) {
  ContextError& error = *context.error;
  if (const int shown = error.shown.load(std::memory_order_relaxed)) return static_cast<CUresult>(shown);
  if (!error.dead_by(now_ns())) return CUDA_SUCCESS;
  settle_writes();  // what the streams wrote before they died is there when the error is told
  const int pending = error.pending.load(std::memory_order_relaxed);
  error.shown.store(pending, std::memory_order_relaxed);
  return static_cast<CUresult>(pending);
}

CUresult current_context(Context** context) {
  Driver& d = driver();
  if (!d.initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  *context = d.contexts.find(tls_state.current);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return sticky_error(**context);
}

void wait_until(const Context& context, std::int64_t end_ns) {
  // A dead context ends every wait: what was queued behind the fault never runs.
  const std::int64_t dies_at = context.error->pending.load(std::memory_order_acquire) != 0
                                   ? context.error->at_ns.load(std::memory_order_relaxed)
                                   : kForeverNs;
  end_ns = std::min(end_ns, dies_at);
  for (std::int64_t now = now_ns(); now < end_ns; now = now_ns()) {
    constexpr std::int64_t kSpinNs = 20'000;  // a nanosleep takes about 50 us at least
    if (end_ns - now < kSpinNs) {
      sched_yield();
      continue;
    }
    if (context.error->shown.load(std::memory_order_relaxed) != 0) return;
    const std::int64_t nap = std::min<std::int64_t>(end_ns - now, 10'000'000);
    const timespec t{nap / 1'000'000'000, nap % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
  }
  settle_writes();
}

Context* create_context(int device, unsigned flags, bool primary) {
  Driver& d = driver();
  Context* context = d.contexts.create();
  if (context == nullptr) return nullptr;
  context->uid = d.next_context.fetch_add(1, std::memory_order_relaxed);
  context->device = device;
  context->flags = flags;
  context->primary = primary;
  {
    const std::lock_guard lock(d.mutex);
    context->error = &d.context_errors.emplace_back();
  }
  Stream* legacy = d.streams.create();
  legacy->context = context;
  legacy->legacy = true;
  legacy->id = 7;
  context->legacy_stream = legacy;
  context->streams.insert(legacy);
  fire_resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, context, nullptr, nullptr);
  return context;
}

void destroy_context(Context* context) {
  fire_resource(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context, nullptr, nullptr);
  Driver& d = driver();
  while (!context->modules.empty()) unload_module(*context->modules.begin());
  for (Stream* stream : context->streams) d.streams.destroy(stream);
  for (Event* event : context->events) d.events.destroy(event);
  {
    const std::lock_guard lock(d.mutex);
    for (auto it = d.allocations.begin(); it != d.allocations.end();) {
      if (it->second.context != context) {
        ++it;
        continue;
      }
      free_allocation(d, it->first, it->second);
      it = d.allocations.erase(it);
    }
  }
  d.contexts.destroy(context);
}

Stream* create_stream(Context& context, unsigned flags, int priority) {
  Driver& d = driver();
  Stream* stream = d.streams.create();
  if (stream == nullptr) return nullptr;
  stream->context = &context;
  stream->id = d.next_stream.fetch_add(1, std::memory_order_relaxed);
  stream->flags = flags;
  stream->priority = priority;
  {
    const std::lock_guard lock(context.mutex);
    context.streams.insert(stream);
  }
  fire_resource(CUPTI_CBID_RESOURCE_STREAM_CREATED, &context, reinterpret_cast<CUstream>(stream), nullptr);
  return stream;
}

void destroy_stream(Stream* stream) {
  Context& context = *stream->context;
  fire_resource(CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING, &context, reinterpret_cast<CUstream>(stream), nullptr);
  raise_to(context.orphaned_end_ns, stream->end_ns.load(std::memory_order_relaxed));
  {
    const std::lock_guard lock(context.mutex);
    context.streams.erase(stream);
  }
  driver().streams.destroy(stream);
}

namespace {

// The stream that CU_STREAM_PER_THREAD means for this thread, one per context; gone with the thread.
struct PerThreadStreams {
  std::map<std::uint32_t, Stream*> by_context;  // by uid: handles are reused

  ~PerThreadStreams() {
    Driver& d = driver();
    for (const auto& [uid, stream] : by_context) {
      Stream* live = d.streams.find(stream);
      if (live == nullptr || !live->per_thread || d.contexts.find(live->context) == nullptr) continue;
      if (live->context->uid == uid) destroy_stream(live);
    }
  }
};

Stream* per_thread_stream(Context& context) {
  static thread_local PerThreadStreams mine;
  Stream*& stream = mine.by_context[context.uid];
  if (stream == nullptr) {
    stream = create_stream(context, CU_STREAM_DEFAULT, 0);
    if (stream != nullptr) stream->per_thread = true;
  }
  return stream;
}

}  // namespace

CUresult find_stream(Context& context, CUstream handle, bool per_thread, Stream** stream) {
  if (handle == nullptr) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY) {
    *stream = context.legacy_stream;
  } else if (handle == CU_STREAM_PER_THREAD) {
    *stream = per_thread_stream(context);
    if (*stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    *stream = driver().streams.find(handle);
    if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

const KernelState* kernel_state(CUfunction handle) {
  Driver& d = driver();
  if (const Function* function = d.functions.find(handle)) return function->state.get();
  if (const Kernel* kernel = d.kernels.find(handle)) return kernel->state.get();
  return nullptr;
}

std::shared_ptr<KernelState> share_kernel_state(CUfunction handle) {
  Driver& d = driver();
  if (const Function* function = d.functions.find(handle)) return function->state;
  if (const Kernel* kernel = d.kernels.find(handle)) return kernel->state;
  return nullptr;
}

std::vector<std::shared_ptr<KernelState>> make_kernel_states(const ModuleImage& image) {
  std::vector<std::shared_ptr<KernelState>> states;
  for (const KernelImage& kernel : image.kernels) {
    auto state = std::make_shared<KernelState>();
    state->image = kernel;
    state->name = intern(kernel.name);
    // What the driver reports before anybody opts in: the 48 KB less what is taken statically.
    state->max_dynamic_shared_bytes =
        std::max(0, sim_config().board.shared_bytes_per_block - kernel.static_shared_bytes);
    states.push_back(std::move(state));
  }
  return states;
}

Module* load_module(Context& context, const ModuleImage& image, const void* text,
                    const std::vector<std::shared_ptr<KernelState>>& states) {
  Driver& d = driver();
  Module* module = d.modules.create();
  if (module == nullptr) return nullptr;
  module->context = &context;
  module->id = d.next_module.fetch_add(1, std::memory_order_relaxed);
  module->image = static_cast<const char*>(text);
  for (std::size_t i = 0; i < image.kernels.size(); ++i) {
    Function* function = d.functions.create();
    if (function == nullptr) break;
    function->state = states[i];
    function->module = module;
    module->functions.push_back(function);
  }
  {
    const std::lock_guard lock(context.mutex);
    context.modules.insert(module);
  }
  CUpti_ModuleResourceData data{module->id, module->image.size(), module->image.data()};
  fire_resource(CUPTI_CBID_RESOURCE_MODULE_LOADED, &context, nullptr, &data);
  return module;
}

void unload_module(Module* module) {
  Driver& d = driver();
  Context& context = *module->context;
  CUpti_ModuleResourceData data{module->id, module->image.size(), module->image.data()};
  fire_resource(CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING, &context, nullptr, &data);
  {
    const std::lock_guard lock(context.mutex);
    context.modules.erase(module);
  }
  // Backwards, so that the next load gets the same handles in the same order.
  for (auto it = module->functions.rbegin(); it != module->functions.rend(); ++it) d.functions.destroy(*it);
  d.modules.destroy(module);
}

}  // namespace gpuflight::sim
