#include "sim/play/thread_player.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace gpuflight::sim {

ThreadPlayer::ThreadPlayer(Player& player, const PlanThread& plan, std::size_t index)
    : player_(player), plan_(plan), index_(index), result_(player.results_[index]), live_(player.live_[index]) {}

void ThreadPlayer::run() {
  CUcontext own = nullptr;
  if (plan_.own_context) {
    check(cuCtxCreate(&own, nullptr, 0, player_.device_), "cuCtxCreate");
  } else {
    check(cuCtxSetCurrent(player_.context_), "cuCtxSetCurrent");
  }
  start_ = std::chrono::steady_clock::now();
  for (int i = 0; i < player_.options_.loops; ++i) run_ops(plan_.ops);
  // What the plan leaves open is closed, so that leak checkers see only real leaks.
  for (const auto& [name, exec] : execs_) cuGraphExecDestroy(exec.exec);
  for (const auto& [name, built] : graphs_) cuGraphDestroy(built.graph);
  for (const auto& [name, event] : events_) cuEventDestroy(event);
  for (const auto& [name, stream] : streams_) cuStreamDestroy(stream);
  if (own != nullptr) cuCtxDestroy(own);
}

void ThreadPlayer::run_ops(const std::vector<PlanOp>& ops) {
  for (const PlanOp& op : ops) run_op(op);
}

void ThreadPlayer::run_op(const PlanOp& op) {
  switch (op.kind) {
    case OpKind::kLaunch: launch(op); return;
    case OpKind::kMix: mix(op); return;
    case OpKind::kRepeat:
      for (std::int64_t i = 0; i < op.times; ++i) run_ops(op.ops);
      return;
    case OpKind::kDelay: std::this_thread::sleep_for(std::chrono::microseconds(op.value)); return;
    case OpKind::kBarrier: player_.barrier_->arrive_and_wait(); return;
    case OpKind::kEnd: end_process(op.other);
    case OpKind::kGraphBuild: expect(op, build_graph(op), "graph_build"); return;
    case OpKind::kGraphInstantiate:
    case OpKind::kGraphLaunch:
    case OpKind::kGraphUpdate:
    case OpKind::kGraphDestroy: expect(op, run_graph_op(op), "graph"); return;
    case OpKind::kModuleLoad: expect(op, load_module(op), "module_load"); return;
    case OpKind::kModuleUnload: expect(op, unload_module(op), "module_unload"); return;
    case OpKind::kSetAttribute: expect(op, set_attribute(op), "set_attribute"); return;
    case OpKind::kAlloc:
    case OpKind::kFree:
    case OpKind::kCopy:
    case OpKind::kFill: expect(op, run_memory_op(op), "memory"); return;
    case OpKind::kEventRecord:
    case OpKind::kEventWait:
    case OpKind::kEventSync: expect(op, run_event_op(op), "event"); return;
    default: expect(op, run_simple(op), "op"); return;
  }
}

void ThreadPlayer::expect(const PlanOp& op, CUresult result, const char* what) {
  if (static_cast<int>(result) == op.expect) return;
  result_.unexpected.push_back(std::string(what) + " " + op.name + " " + op.other + op.stream + ": " +
                               error_name(result) + ", the plan expects " + std::to_string(op.expect));
}

CUstream ThreadPlayer::stream_of(const std::string& name) const {
  if (name.empty() || name == "default") return nullptr;
  if (name == "per_thread") return CU_STREAM_PER_THREAD;
  const auto found = streams_.find(name);
  if (found == streams_.end()) throw std::runtime_error("no stream \"" + name + "\" at this point of the plan");
  return found->second;
}

CUresult ThreadPlayer::run_simple(const PlanOp& op) {
  switch (op.kind) {
    case OpKind::kSync:
      return op.stream.empty() ? cuCtxSynchronize() : cuStreamSynchronize(stream_of(op.stream));
    case OpKind::kStreamCreate: {
      CUstream stream = nullptr;
      const unsigned flags = op.non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
      const CUresult result = cuStreamCreateWithPriority(&stream, flags, static_cast<int>(op.value));
      if (result == CUDA_SUCCESS) streams_[op.stream] = stream;
      return result;
    }
    case OpKind::kStreamDestroy: {
      const CUresult result = cuStreamDestroy(stream_of(op.stream));
      streams_.erase(op.stream);
      return result;
    }
    case OpKind::kCaptureBegin: {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (op.other == "thread_local") mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
      if (op.other == "relaxed") mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      ++captures_;
      return cuStreamBeginCapture(stream_of(op.stream), mode);
    }
    case OpKind::kCaptureEnd: {
      const std::uint64_t id = capture_id(stream_of(op.stream));
      BuiltGraph built;
      const CUresult result = cuStreamEndCapture(stream_of(op.stream), &built.graph);
      built.kernels = captured_[id];
      captured_.erase(id);
      --captures_;
      if (result == CUDA_SUCCESS) {
        drop_graph(op.name);
        graphs_[op.name] = built;
      }
      return result;
    }
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// 0: the stream is not capturing.
std::uint64_t ThreadPlayer::capture_id(CUstream stream) {
  if (captures_ == 0) return 0;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

void ThreadPlayer::drop_graph(const std::string& name) {
  const auto found = graphs_.find(name);
  if (found == graphs_.end()) return;
  cuGraphDestroy(found->second.graph);
  graphs_.erase(found);
}

CUresult ThreadPlayer::build_graph(const PlanOp& op) {
  BuiltGraph built;
  if (const CUresult error = cuGraphCreate(&built.graph, 0)) return error;
  CUgraphNode last = nullptr;
  for (const PlanOp& node : op.ops) {
    for (std::int64_t i = 0; i < node.times; ++i) {
      const PlanLaunch& l = node.launch;
      const KernelHandles handles = handles_of(l);
      CUDA_KERNEL_NODE_PARAMS params{};
      if (l.form == LaunchForm::kLibrary) {
        params.kern = handles.kernel;
      } else {
        params.func = handles.function;
      }
      params.gridDimX = l.grid[0];
      params.gridDimY = l.grid[1];
      params.gridDimZ = l.grid[2];
      params.blockDimX = l.block[0];
      params.blockDimY = l.block[1];
      params.blockDimZ = l.block[2];
      params.sharedMemBytes = l.dynamic_shared;
      params.kernelParams = null_arguments();
      CUgraphNode added = nullptr;
      const CUresult error =
          cuGraphAddKernelNode(&added, built.graph, last != nullptr ? &last : nullptr, last != nullptr, &params);
      if (error != CUDA_SUCCESS) return error;
      ++built.kernels[l.kernel_index];
      last = added;
    }
  }
  drop_graph(op.name);
  graphs_[op.name] = built;
  return CUDA_SUCCESS;
}

CUresult ThreadPlayer::run_graph_op(const PlanOp& op) {
  switch (op.kind) {
    case OpKind::kGraphInstantiate: {
      Exec exec;
      exec.kernels = graphs_[op.name].kernels;
      const CUresult result = cuGraphInstantiate(&exec.exec, graphs_[op.name].graph, 0);
      if (result != CUDA_SUCCESS) return result;
      const auto old = execs_.find(op.other);
      if (old != execs_.end()) cuGraphExecDestroy(old->second.exec);
      execs_[op.other] = exec;
      return result;
    }
    case OpKind::kGraphUpdate: {
      CUgraphExecUpdateResultInfo info{};
      const CUresult result = cuGraphExecUpdate(execs_[op.other].exec, graphs_[op.name].graph, &info);
      if (result == CUDA_SUCCESS) execs_[op.other].kernels = graphs_[op.name].kernels;
      return result;
    }
    case OpKind::kGraphDestroy: {
      const auto exec = execs_.find(op.other);
      if (exec != execs_.end()) {
        const CUresult result = cuGraphExecDestroy(exec->second.exec);
        execs_.erase(exec);
        return result;
      }
      drop_graph(op.name);
      return CUDA_SUCCESS;
    }
    default: return launch_graph(op);
  }
}

CUresult ThreadPlayer::launch_graph(const PlanOp& op) {
  const Exec& exec = execs_[op.other];
  const CUstream stream = stream_of(op.stream);
  for (std::int64_t i = 0; i < op.times; ++i) {
    const CUresult result = cuGraphLaunch(exec.exec, stream);
    live_.graph_returned.fetch_add(1, std::memory_order_relaxed);
    if (result != CUDA_SUCCESS) return result;
    ++result_.graph_launches;
    for (const auto& [kernel, n] : exec.kernels) result_.graph_kernels[kernel] += n;
    if (plan_.rate > 0) pace(1);
  }
  return CUDA_SUCCESS;
}

CUresult ThreadPlayer::load_module(const PlanOp& op) {
  const PlanModule* module = player_.plan_.find_module(op.name);
  if (module == nullptr) throw std::runtime_error("module_load of unknown module \"" + op.name + "\"");
  const std::string image = player_.image_of(*module);
  const bool library = op.other == "library";
  LoadedModule loaded;
  const CUresult result =
      library ? cuLibraryLoadData(&loaded.library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0)
              : cuModuleLoadData(&loaded.module, image.data());
  if (result != CUDA_SUCCESS) return result;
  modules_[op.name] = loaded;
  for (const PlanKernel& kernel : module->kernels) {
    const auto& ids = player_.plan_.kernel_ids;
    const auto place = std::find(ids.begin(), ids.end(), kernel.id) - ids.begin();
    KernelHandles& handles = kernels_[static_cast<std::size_t>(place)];
    handles = {};
    const char* name = kernel.image.name.c_str();
    if (library) {
      if (const CUresult error = cuLibraryGetKernel(&handles.kernel, loaded.library, name)) return error;
    } else {
      if (const CUresult error = cuModuleGetFunction(&handles.function, loaded.module, name)) return error;
    }
  }
  return CUDA_SUCCESS;
}

CUresult ThreadPlayer::unload_module(const PlanOp& op) {
  const auto found = modules_.find(op.name);
  if (found == modules_.end()) throw std::runtime_error("module_unload before module_load of \"" + op.name + "\"");
  const LoadedModule loaded = found->second;
  modules_.erase(found);
  return loaded.library != nullptr ? cuLibraryUnload(loaded.library) : cuModuleUnload(loaded.module);
}

CUresult ThreadPlayer::set_attribute(const PlanOp& op) {
  CUfunction_attribute attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (op.other == "carveout") attribute = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  if (op.other == "non_portable_cluster") attribute = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
  PlanLaunch launch;
  const auto& ids = player_.plan_.kernel_ids;
  launch.kernel = op.name;
  launch.kernel_index = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), op.name) - ids.begin());
  if (launch.kernel_index == ids.size()) {
    throw std::runtime_error("set_attribute of unknown kernel \"" + op.name + "\"");
  }
  const KernelHandles handles = handles_of(launch);
  const int value = static_cast<int>(op.value);
  if (handles.kernel != nullptr) {
    const CUresult result = cuKernelSetAttribute(attribute, value, handles.kernel, player_.device_);
    if (result != CUDA_SUCCESS || handles.function == nullptr) return result;
  }
  return cuFuncSetAttribute(handles.function, attribute, value);
}

CUresult ThreadPlayer::run_memory_op(const PlanOp& op) {
  const CUstream stream = stream_of(op.stream);
  const auto bytes = static_cast<std::size_t>(op.value);
  Allocation& a = allocations_[op.name];
  switch (op.kind) {
    case OpKind::kAlloc:
      a.bytes = bytes;
      a.kind = op.other.empty() ? "device" : op.other;
      if (a.kind == "pinned") return cuMemAllocHost(&a.host, bytes);
      if (a.kind == "managed") return cuMemAllocManaged(&a.device, bytes, CU_MEM_ATTACH_GLOBAL);
      if (a.kind == "async") return cuMemAllocAsync(&a.device, bytes, stream);
      return cuMemAlloc(&a.device, bytes);
    case OpKind::kFree: {
      const Allocation gone = a;
      allocations_.erase(op.name);
      if (gone.kind == "pinned") return cuMemFreeHost(gone.host);
      if (gone.kind == "async") return cuMemFreeAsync(gone.device, stream);
      return cuMemFree(gone.device);
    }
    case OpKind::kFill:
      return op.stream.empty() ? cuMemsetD8(a.device, 0x5a, a.bytes) : cuMemsetD8Async(a.device, 0x5a, a.bytes, stream);
    default: break;
  }
  // copy: "h2d" or "d2h" between `name` and pageable memory of the player's.
  host_.resize(a.bytes);
  const bool async = !op.stream.empty();
  if (op.other == "d2h") {
    return async ? cuMemcpyDtoHAsync(host_.data(), a.device, a.bytes, stream)
                 : cuMemcpyDtoH(host_.data(), a.device, a.bytes);
  }
  return async ? cuMemcpyHtoDAsync(a.device, host_.data(), a.bytes, stream)
               : cuMemcpyHtoD(a.device, host_.data(), a.bytes);
}

CUresult ThreadPlayer::run_event_op(const PlanOp& op) {
  CUevent& event = events_[op.name];
  if (event == nullptr) {
    if (const CUresult error = cuEventCreate(&event, CU_EVENT_DEFAULT)) return error;
  }
  if (op.kind == OpKind::kEventRecord) return cuEventRecord(event, stream_of(op.stream));
  if (op.kind == OpKind::kEventWait) return cuStreamWaitEvent(stream_of(op.stream), event, 0);
  return cuEventSynchronize(event);
}

void ThreadPlayer::end_process(const std::string& how) {
  if (how == "_exit") _exit(3);
  if (how == "abort") std::abort();
  if (how == "segv") raise(SIGSEGV);
  if (how == "kill") raise(SIGKILL);
  if (how == "term") raise(SIGTERM);
  std::exit(3);
}

}  // namespace gpuflight::sim
