// The launching half of ThreadPlayer: every form, counted.
#include <dlfcn.h>

#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "sim/play/thread_player.h"

namespace gpuflight::sim {
namespace {

// The per-thread-default-stream entry points, had the way cudart gets them.
struct PerThreadForms {
  decltype(&cuLaunchKernel) kernel = nullptr;
  decltype(&cuLaunchKernelEx) ex = nullptr;
  decltype(&cuLaunchCooperativeKernel) cooperative = nullptr;

  PerThreadForms() {
    get("cuLaunchKernel", 7000, &kernel);  // older versions have no per-thread form: the driver answers with null
    get("cuLaunchKernelEx", 11060, &ex);
    get("cuLaunchCooperativeKernel", 9000, &cooperative);
  }

 private:
  template <class F>
  static void get(const char* name, int version, F* out) {
    void* found = nullptr;
    check(cuGetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr), name);
    if (found == nullptr) throw std::runtime_error(std::string("the driver has no per-thread form of ") + name);
    *out = reinterpret_cast<F>(found);
  }
};

const PerThreadForms& per_thread() {
  static const PerThreadForms forms;
  return forms;
}

}  // namespace

// Kernels of a plan take null pointers and zero counts, and do nothing with them: one argument list fits all.
void** null_arguments() {
  static std::uint64_t zero[16] = {};
  static void* pointers[16] = {&zero[0], &zero[1], &zero[2],  &zero[3],  &zero[4],  &zero[5],  &zero[6],  &zero[7],
                               &zero[8], &zero[9], &zero[10], &zero[11], &zero[12], &zero[13], &zero[14], &zero[15]};
  return pointers;
}

KernelHandles ThreadPlayer::handles_of(const PlanLaunch& launch) {
  const auto own = kernels_.find(launch.kernel_index);
  const KernelHandles handles = own != kernels_.end() ? own->second : player_.kernels_[launch.kernel_index];
  if (handles.function == nullptr && handles.kernel == nullptr) {
    throw std::runtime_error("kernel \"" + launch.kernel + "\" is of a module that is not loaded");
  }
  return handles;
}

CUresult ThreadPlayer::launch_ex(const PlanLaunch& l, CUstream stream, CUfunction f) {
  CUlaunchAttribute attributes[4];
  unsigned count = 0;
  if (l.cluster[0] != 0) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim.x = l.cluster[0];
    attributes[count].value.clusterDim.y = l.cluster[1];
    attributes[count++].value.clusterDim.z = l.cluster[2];
  }
  if (l.cooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  }
  if (l.carveout >= 0) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    attributes[count++].value.sharedMemCarveout = static_cast<unsigned>(l.carveout);
  }
  if (l.programmatic) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  const CUlaunchConfig config{l.grid[0],  l.grid[1],        l.grid[2], l.block[0], l.block[1],
                              l.block[2], l.dynamic_shared, stream,    attributes, count};
  return (l.per_thread ? per_thread().ex : &cuLaunchKernelEx)(&config, f, null_arguments(), nullptr);
}

CUresult ThreadPlayer::launch_legacy(const PlanLaunch& l, CUstream stream, CUfunction f) {
  static std::uint64_t zeros[16] = {};
  unsigned param_bytes = 0;
  for (const PlanModule& module : player_.plan_.modules) {
    for (const PlanKernel& kernel : module.kernels) {
      if (kernel.id == l.kernel) param_bytes = kernel.param_bytes;
    }
  }
  if (param_bytes > 0) {
    if (const CUresult error = cuParamSetv(f, 0, zeros, param_bytes)) return error;
  }
  if (const CUresult error = cuParamSetSize(f, param_bytes)) return error;
  const auto as_int = [](unsigned n) { return static_cast<int>(n); };
  if (const CUresult error = cuFuncSetBlockShape(f, as_int(l.block[0]), as_int(l.block[1]), as_int(l.block[2]))) {
    return error;
  }
  if (const CUresult error = cuFuncSetSharedSize(f, l.dynamic_shared)) return error;
  if (l.form == LaunchForm::kLegacy) return cuLaunch(f);
  if (l.form == LaunchForm::kLegacyGrid) return cuLaunchGrid(f, as_int(l.grid[0]), as_int(l.grid[1]));
  return cuLaunchGridAsync(f, as_int(l.grid[0]), as_int(l.grid[1]), stream);
}

CUresult ThreadPlayer::launch_once(const PlanLaunch& l, CUstream stream, const KernelHandles& handles) {
  CUfunction f = handles.function != nullptr ? handles.function : reinterpret_cast<CUfunction>(handles.kernel);
  switch (l.form) {
    case LaunchForm::kLibrary:
    case LaunchForm::kKernel: {
      if (l.form == LaunchForm::kLibrary) f = reinterpret_cast<CUfunction>(handles.kernel);
      const auto launch = l.per_thread ? per_thread().kernel : &cuLaunchKernel;
      return launch(f, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.dynamic_shared, stream,
                    null_arguments(), nullptr);
    }
    case LaunchForm::kLibraryEx: return launch_ex(l, stream, reinterpret_cast<CUfunction>(handles.kernel));
    case LaunchForm::kEx: return launch_ex(l, stream, f);
    case LaunchForm::kCooperative: {
      const auto launch = l.per_thread ? per_thread().cooperative : &cuLaunchCooperativeKernel;
      return launch(f, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.dynamic_shared, stream,
                    null_arguments());
    }
    case LaunchForm::kCooperativeMulti: {
      CUDA_LAUNCH_PARAMS params{f,          l.grid[0],  l.grid[1],        l.grid[2], l.block[0],
                                l.block[1], l.block[2], l.dynamic_shared, stream,    null_arguments()};
      return cuLaunchCooperativeKernelMultiDevice(&params, 1, 0);
    }
    default: return launch_legacy(l, stream, f);
  }
}

void ThreadPlayer::launch(const PlanOp& op) {
  const PlanLaunch& l = op.launch;
  const KernelHandles handles = handles_of(l);
  const CUstream stream = stream_of(l.stream);
  const std::uint64_t capture = capture_id(stream);
  LaunchTally& tally = result_.launches[{l.kernel_index, l.form}];
  for (std::int64_t i = 0; i < op.times; ++i) {
    const CUresult result = launch_once(l, stream, handles);
    // This thread is the only writer, so that a plain add will do; a reader elsewhere sees whole numbers.
    live_.returned.store(live_.returned.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    ++tally.calls;
    if (result != CUDA_SUCCESS) {
      ++result_.launch_errors[result];
    } else if (capture != 0) {
      ++tally.captured;
      ++captured_[capture][l.kernel_index];
    } else {
      ++tally.ok;
    }
    if (static_cast<int>(result) != op.expect) expect(op, result, "launch");
    if (plan_.rate > 0) pace(1);
  }
}

// `times` of its ops, drawn one by one; the same draws for the same seed and thread.
void ThreadPlayer::mix(const PlanOp& op) {
  std::mt19937_64 random(op.seed * 1'000'003 + index_);
  std::uniform_int_distribution<std::size_t> pick(0, op.ops.size() - 1);
  for (std::int64_t i = 0; i < op.times; ++i) run_op(op.ops[pick(random)]);
}

void ThreadPlayer::pace(std::int64_t launches) {
  paced_ += launches;
  const auto due = start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                std::chrono::duration<double>(static_cast<double>(paced_) / plan_.rate));
  const auto now = std::chrono::steady_clock::now();
  // Short waits are not worth a sleep: it overshoots by 50 us and more.
  if (due - now > std::chrono::microseconds(200)) std::this_thread::sleep_until(due);
}

}  // namespace gpuflight::sim
