// Streams: life, waiting, and what one can ask of them. Captures are in api_capture.cpp.
#include "sim/cuda/trace.h"

using namespace gpuflight::sim;

namespace {

CUresult create(CUstream* out, unsigned flags, int priority) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = create_stream(*context, flags, priority);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

// Finds the stream and refuses what a capturing one must not be asked.
CUresult find_idle(CUstream handle, bool per_thread, Context** context, Stream** stream) {
  if (const CUresult error = current_context(context)) return error;
  if (const CUresult error = find_stream(**context, handle, per_thread, stream)) return error;
  if ((*stream)->capturing.load(std::memory_order_acquire)) {
    if (const auto capture = (*stream)->capture) capture->invalidated.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

std::int64_t end_of(const Stream& stream) {
  std::int64_t end = stream.end_ns.load(std::memory_order_relaxed);
  if (stream.legacy) end = std::max(end, stream.context->blocking_end_ns.load(std::memory_order_relaxed));
  return end;
}

CUresult synchronize(CUstream handle, bool per_thread) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const CUresult error = find_idle(handle, per_thread, &context, &stream)) return error;
  wait_until(*stream->context, end_of(*stream));
  fire_synchronize(CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED, stream->context, handle);
  return sticky_error(*stream->context);
}

CUresult query(CUstream handle, bool per_thread) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const CUresult error = find_idle(handle, per_thread, &context, &stream)) return error;
  if (const CUresult error = sticky_error(*stream->context)) return error;
  return now_ns() >= end_of(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// Flags and priority of a stream that is being captured may not be asked for: the capture is lost (measured).
template <class Read>
CUresult ask_idle(CUstream handle, bool per_thread, Read&& read) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const CUresult error = find_idle(handle, per_thread, &context, &stream)) return error;
  read(*stream);
  return CUDA_SUCCESS;
}

template <class Read>
CUresult ask(CUstream handle, bool per_thread, Read&& read) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  read(*stream);
  return CUDA_SUCCESS;
}

CUresult host_function(CUstream handle, bool per_thread, CUhostFn fn, void* data) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  if (stream->capturing.load()) return run_work(*stream, CU_GRAPH_NODE_TYPE_HOST, 0);
  // Run at once on this thread, after what is before it: the model has no thread of its own.
  wait_until(*stream->context, end_of(*stream));
  fn(data);
  return CUDA_SUCCESS;
}

}  // namespace

#define SIM_STREAM_FORMS(SUFFIX, PER_THREAD)                                                                         \
  CUresult CUDAAPI cuStreamSynchronize##SUFFIX(CUstream hStream) {                                                   \
    SIM_TRACED(cuStreamSynchronize##SUFFIX, (hStream), { return synchronize(hStream, PER_THREAD); });                \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamQuery##SUFFIX(CUstream hStream) {                                                         \
    SIM_TRACED(cuStreamQuery##SUFFIX, (hStream), { return query(hStream, PER_THREAD); });                            \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetPriority##SUFFIX(CUstream hStream, int* priority) {                                    \
    SIM_TRACED(cuStreamGetPriority##SUFFIX, (hStream, priority),                                                     \
               { return ask_idle(hStream, PER_THREAD, [&](const Stream& s) { *priority = s.priority; }); });              \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetFlags##SUFFIX(CUstream hStream, unsigned int* flags) {                                 \
    SIM_TRACED(cuStreamGetFlags##SUFFIX, (hStream, flags),                                                           \
               { return ask_idle(hStream, PER_THREAD, [&](const Stream& s) { *flags = s.flags; }); });                    \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetId##SUFFIX(CUstream hStream, unsigned long long* streamId) {                           \
    SIM_TRACED(cuStreamGetId##SUFFIX, (hStream, streamId),                                                           \
               { return ask(hStream, PER_THREAD, [&](const Stream& s) { *streamId = s.id; }); });                    \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetDevice##SUFFIX(CUstream hStream, CUdevice* device) {                                   \
    SIM_TRACED(cuStreamGetDevice##SUFFIX, (hStream, device),                                                         \
               { return ask(hStream, PER_THREAD, [&](const Stream& s) { *device = s.context->device; }); });         \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamGetCtx##SUFFIX(CUstream hStream, CUcontext* pctx) {                                       \
    SIM_TRACED(cuStreamGetCtx##SUFFIX, (hStream, pctx), {                                                            \
      return ask(hStream, PER_THREAD, [&](const Stream& s) { *pctx = reinterpret_cast<CUcontext>(s.context); });     \
    });                                                                                                              \
  }                                                                                                                  \
  CUresult CUDAAPI cuLaunchHostFunc##SUFFIX(CUstream hStream, CUhostFn fn, void* userData) {                         \
    SIM_TRACED(cuLaunchHostFunc##SUFFIX, (hStream, fn, userData),                                                    \
               { return host_function(hStream, PER_THREAD, fn, userData); });                                        \
  }

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  SIM_TRACED(cuStreamCreate, (phStream, Flags), { return create(phStream, Flags, 0); });
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  SIM_TRACED(cuStreamCreateWithPriority, (phStream, flags, priority), {
    return create(phStream, flags, std::clamp(priority, -5, 0));
  });
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  SIM_TRACED(cuStreamDestroy_v2, (hStream), {
    Stream* stream = driver().streams.find(hStream);
    if (stream == nullptr || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
    abandon_capture(*stream);
    destroy_stream(stream);
    return CUDA_SUCCESS;
  });
}

SIM_STREAM_FORMS(, false)
SIM_STREAM_FORMS(_ptsz, true)

}  // extern "C"
