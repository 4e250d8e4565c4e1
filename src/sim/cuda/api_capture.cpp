// Stream capture: which streams are being captured into which graph, who joins by an event, and the calls CUDA forbids
// meanwhile.
#include "sim/cuda/trace.h"

#include <algorithm>

using namespace gpuflight::sim;

namespace {

void forget(const std::shared_ptr<Capture>& capture) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (d.captures.erase(capture) == 0) return;
  d.all_captures.fetch_sub(1);
  if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) d.global_captures.fetch_sub(1);
  if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && capture->thread == thread_number()) {
    --thread_state().local_captures;
  }
}

// Takes every stream out of the capture. Caller holds no lock.
void release_streams(Capture& capture) {
  const std::lock_guard lock(capture.mutex);
  for (auto& [stream, tail] : capture.tails) {
    stream->capturing.store(false, std::memory_order_release);
    stream->capture.reset();
  }
  capture.tails.clear();
}

CUresult begin(CUstream handle, bool per_thread, CUstreamCaptureMode mode, CUgraph into,
               const CUgraphNode* dependencies, std::size_t count) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capturing.load()) return CUDA_ERROR_ILLEGAL_STATE;
  Driver& d = driver();
  auto capture = std::make_shared<Capture>();
  capture->id = d.next_capture.fetch_add(1);
  capture->mode = mode;
  capture->thread = thread_number();
  capture->origin = stream;
  if (into != nullptr) {
    capture->graph = d.graphs.find(into);
    capture->owns_graph = false;
    if (capture->graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (std::size_t i = 0; i < count; ++i) {
      capture->tails[stream].push_back(d.graph_nodes.find(dependencies[i]));
    }
  } else {
    capture->graph = create_graph();
    if (capture->graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  capture->tails[stream];
  {
    const std::lock_guard lock(d.mutex);
    d.captures.insert(capture);
  }
  d.all_captures.fetch_add(1);
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) d.global_captures.fetch_add(1);
  if (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ++thread_state().local_captures;
  stream->capture = std::move(capture);
  stream->capturing.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

// Work of another stream that nothing of the origin stream waits for.
bool has_unjoined_work(const Capture& capture) {
  const auto& ends = capture.tails.at(capture.origin);
  std::set<const GraphNode*> reached;
  std::vector<const GraphNode*> todo(ends.begin(), ends.end());
  while (!todo.empty()) {
    const GraphNode* node = todo.back();
    todo.pop_back();
    if (!reached.insert(node).second) continue;
    todo.insert(todo.end(), node->dependencies.begin(), node->dependencies.end());
  }
  for (const auto& [stream, tail] : capture.tails) {
    for (const GraphNode* node : tail) {
      if (!reached.contains(node)) return true;
    }
  }
  return false;
}

CUresult end(CUstream handle, bool per_thread, CUgraph* out) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  if (!stream->capturing.load(std::memory_order_acquire)) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated.load()) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (has_unjoined_work(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  release_streams(*capture);
  forget(capture);
  if (result != CUDA_SUCCESS) {
    if (capture->owns_graph) destroy_graph(capture->graph);
    if (out != nullptr) *out = nullptr;
    return result;
  }
  if (out != nullptr) *out = reinterpret_cast<CUgraph>(capture->graph);
  return CUDA_SUCCESS;
}

// Asks about a capture; every pointer but the first may be null.
CUresult info(CUstream handle, bool per_thread, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, std::size_t* count) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  if (!stream->capturing.load(std::memory_order_acquire)) {
    if (const CUresult error = check_implicit_dependency(*stream, false)) return error;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->invalidated.load()) {
    *status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->graph);
  const std::lock_guard lock(capture->mutex);
  const auto& tail = capture->tails[stream];
  static_assert(sizeof(GraphNode*) == sizeof(CUgraphNode));
  if (dependencies != nullptr) *dependencies = reinterpret_cast<const CUgraphNode*>(tail.data());
  if (count != nullptr) *count = tail.size();
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpuflight::sim {

CUresult check_unsafe_call() {
  Driver& d = driver();
  const ThreadState& thread = thread_state();
  if (d.global_captures.load(std::memory_order_relaxed) == 0 && thread.local_captures == 0) return CUDA_SUCCESS;
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool forbidden = false;
  const std::lock_guard lock(d.mutex);
  for (const auto& capture : d.captures) {
    const bool mine = capture->thread == thread_number();
    const bool hit = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                         ? thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mine
                         : capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && mine;
    if (!hit) continue;
    capture->invalidated.store(true);
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult check_implicit_dependency(const Stream& stream, bool lose) {
  if (!stream.legacy || driver().all_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Context& context = *stream.context;
  const std::lock_guard lock(context.mutex);
  for (const Stream* other : context.streams) {
    if (!other->blocking() || !other->capturing.load(std::memory_order_acquire)) continue;
    if (lose) other->capture->invalidated.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

void abandon_capture(Stream& stream) {
  if (!stream.capturing.load(std::memory_order_acquire)) return;
  const std::shared_ptr<Capture> capture = stream.capture;
  capture->invalidated.store(true);
  if (capture->origin == &stream) {
    release_streams(*capture);
    forget(capture);
    return;
  }
  const std::lock_guard lock(capture->mutex);
  capture->tails.erase(&stream);
}

CUresult join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<GraphNode*>& tail) {
  if (stream.capturing.load(std::memory_order_acquire) && stream.capture != capture) {
    stream.capture->invalidated.store(true);
    capture->invalidated.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream.legacy) {
    capture->invalidated.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const std::lock_guard lock(capture->mutex);
  auto& mine = capture->tails[&stream];
  for (GraphNode* node : tail) {
    if (std::find(mine.begin(), mine.end(), node) == mine.end()) mine.push_back(node);
  }
  if (!stream.capturing.load()) {
    stream.capture = capture;
    stream.capturing.store(true, std::memory_order_release);
  }
  return CUDA_SUCCESS;
}

}  // namespace gpuflight::sim

#define SIM_CAPTURE_FORMS(SUFFIX, PER_THREAD)                                                                        \
  CUresult CUDAAPI cuStreamBeginCapture##SUFFIX(CUstream hStream) {                                                  \
    SIM_TRACED(cuStreamBeginCapture##SUFFIX, (hStream),                                                              \
               { return begin(hStream, PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, nullptr, 0); });          \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamBeginCapture_v2##SUFFIX(CUstream hStream, CUstreamCaptureMode mode) {                     \
    SIM_TRACED(cuStreamBeginCapture_v2##SUFFIX, (hStream, mode),                                                     \
               { return begin(hStream, PER_THREAD, mode, nullptr, nullptr, 0); });                                   \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamBeginCaptureToGraph##SUFFIX(CUstream hStream, CUgraph hGraph,                             \
                                                       const CUgraphNode* dependencies,                              \
                                                       const CUgraphEdgeData* dependencyData,                        \
                                                       size_t numDependencies, CUstreamCaptureMode mode) {           \
    SIM_TRACED(cuStreamBeginCaptureToGraph##SUFFIX,                                                                  \
               (hStream, hGraph, dependencies, dependencyData, numDependencies, mode),                               \
               { return begin(hStream, PER_THREAD, mode, hGraph, dependencies, numDependencies); });                 \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamEndCapture##SUFFIX(CUstream hStream, CUgraph* phGraph) {                                  \
    SIM_TRACED(cuStreamEndCapture##SUFFIX, (hStream, phGraph), { return end(hStream, PER_THREAD, phGraph); });       \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamIsCapturing##SUFFIX(CUstream hStream, CUstreamCaptureStatus* captureStatus) {             \
    SIM_TRACED(cuStreamIsCapturing##SUFFIX, (hStream, captureStatus),                                                \
               { return info(hStream, PER_THREAD, captureStatus, nullptr, nullptr, nullptr, nullptr); });            \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetCaptureInfo##SUFFIX(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,        \
                                                  cuuint64_t* id_out) {                                              \
    SIM_TRACED(cuStreamGetCaptureInfo##SUFFIX, (hStream, captureStatus_out, id_out),                                 \
               { return info(hStream, PER_THREAD, captureStatus_out, id_out, nullptr, nullptr, nullptr); });         \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetCaptureInfo_v2##SUFFIX(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,     \
                                                     cuuint64_t* id_out, CUgraph* graph_out,                         \
                                                     const CUgraphNode** dependencies_out,                           \
                                                     size_t* numDependencies_out) {                                  \
    SIM_TRACED(cuStreamGetCaptureInfo_v2##SUFFIX,                                                                    \
               (hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out), {             \
                 return info(hStream, PER_THREAD, captureStatus_out, id_out, graph_out, dependencies_out,            \
                             numDependencies_out);                                                                   \
               });                                                                                                   \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetCaptureInfo_v3##SUFFIX(                                                                \
      CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out, CUgraph* graph_out,            \
      const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {     \
    SIM_TRACED(cuStreamGetCaptureInfo_v3##SUFFIX,                                                                    \
               (hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out), \
               {                                                                                                     \
                 if (edgeData_out != nullptr) *edgeData_out = nullptr;                                               \
                 return info(hStream, PER_THREAD, captureStatus_out, id_out, graph_out, dependencies_out,            \
                             numDependencies_out);                                                                   \
               });                                                                                                   \
  }

extern "C" {

SIM_CAPTURE_FORMS(, false)
SIM_CAPTURE_FORMS(_ptsz, true)

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIM_TRACED(cuThreadExchangeStreamCaptureMode, (mode), {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_state().capture_mode);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
