// Events: marks on the virtual timeline, and the threads by which a second stream joins a capture.
#include "sim/cuda/trace.h"

using namespace gpuflight::sim;

namespace {

CUresult create(CUevent* out, unsigned flags) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Event* event = driver().events.create();
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = context;
  event->flags = flags;
  const std::lock_guard lock(context->mutex);
  context->events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult destroy(CUevent handle) {
  Event* event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard lock(event->context->mutex);
    event->context->events.erase(event);
  }
  driver().events.destroy(event);
  return CUDA_SUCCESS;
}

CUresult record(CUevent handle, CUstream stream_handle, bool per_thread) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Event* event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, stream_handle, per_thread, &stream)) return error;
  const std::lock_guard lock(event->mutex);
  event->capture.reset();
  event->capture_tail.clear();
  event->recorded = true;
  if (stream->capturing.load(std::memory_order_acquire)) {
    event->capture = stream->capture;
    const std::lock_guard capture_lock(event->capture->mutex);
    event->capture_tail = event->capture->tails[stream];
    return CUDA_SUCCESS;
  }
  // Ends when everything before it on its stream has ended.
  event->time_ns = occupy_timeline(*stream, 0, 0);
  return CUDA_SUCCESS;
}

CUresult wait(CUstream stream_handle, CUevent handle, bool per_thread) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Event* event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, stream_handle, per_thread, &stream)) return error;
  const std::lock_guard lock(event->mutex);
  if (event->capture != nullptr) return join_capture(*stream, event->capture, event->capture_tail);
  if (stream->capturing.load(std::memory_order_acquire)) {
    if (!event->recorded) return CUDA_SUCCESS;
    stream->capture->invalidated.store(true);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event->recorded) occupy_timeline(*stream, 0, event->time_ns);
  return CUDA_SUCCESS;
}

// A captured event has no time of its own: asking for it loses the capture.
CUresult time_of(CUevent handle, Event** out, std::int64_t* time_ns) {
  Event* event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(event->mutex);
  if (event->capture != nullptr) {
    event->capture->invalidated.store(true);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  *out = event;
  *time_ns = event->recorded ? event->time_ns : 0;
  return CUDA_SUCCESS;
}

CUresult query(CUevent handle, bool block) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Event* event = nullptr;
  std::int64_t end = 0;
  if (const CUresult error = time_of(handle, &event, &end)) return error;
  if (const CUresult error = check_unsafe_call()) return error;
  if (block) wait_until(*event->context, end);
  if (const CUresult error = sticky_error(*event->context)) return error;
  return now_ns() >= end ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult elapsed(float* out, CUevent start, CUevent end) {
  Event *first = nullptr, *last = nullptr;
  std::int64_t from = 0, to = 0;
  if (const CUresult error = time_of(start, &first, &from)) return error;
  if (const CUresult error = time_of(end, &last, &to)) return error;
  if (!first->recorded || !last->recorded || ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (now_ns() < std::max(from, to)) return CUDA_ERROR_NOT_READY;
  *out = static_cast<float>(static_cast<double>(to - from) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

#define SIM_EVENT_FORMS(SUFFIX, PER_THREAD)                                                                          \
  CUresult CUDAAPI cuEventRecord##SUFFIX(CUevent hEvent, CUstream hStream) {                                         \
    SIM_TRACED(cuEventRecord##SUFFIX, (hEvent, hStream), { return record(hEvent, hStream, PER_THREAD); });           \
  }                                                                                                                  \
  CUresult CUDAAPI cuEventRecordWithFlags##SUFFIX(CUevent hEvent, CUstream hStream, unsigned int flags) {            \
    SIM_TRACED(cuEventRecordWithFlags##SUFFIX, (hEvent, hStream, flags),                                             \
               { return record(hEvent, hStream, PER_THREAD); });                                                     \
  }                                                                                                                  \
  CUresult CUDAAPI cuStreamWaitEvent##SUFFIX(CUstream hStream, CUevent hEvent, unsigned int Flags) {                 \
    SIM_TRACED(cuStreamWaitEvent##SUFFIX, (hStream, hEvent, Flags), { return wait(hStream, hEvent, PER_THREAD); });  \
  }

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  SIM_TRACED(cuEventCreate, (phEvent, Flags), { return create(phEvent, Flags); });
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent) {
  SIM_TRACED(cuEventDestroy_v2, (hEvent), { return destroy(hEvent); });
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent) {
  SIM_TRACED(cuEventQuery, (hEvent), { return query(hEvent, false); });
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) {
  SIM_TRACED(cuEventSynchronize, (hEvent), { return query(hEvent, true); });
}

CUresult CUDAAPI cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SIM_TRACED(cuEventElapsedTime, (pMilliseconds, hStart, hEnd), { return elapsed(pMilliseconds, hStart, hEnd); });
}

CUresult CUDAAPI cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SIM_TRACED(cuEventElapsedTime_v2, (pMilliseconds, hStart, hEnd), { return elapsed(pMilliseconds, hStart, hEnd); });
}

SIM_EVENT_FORMS(, false)
SIM_EVENT_FORMS(_ptsz, true)

}  // extern "C"
