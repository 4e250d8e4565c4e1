// The cuptiActivity* calls.
#include "sim/cupti/activity.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

using namespace gpuflight::sim;

namespace {

CUptiResult refused() {
  const SimConfig& config = *gpuflight_sim_config();
  if (config.cupti_too_new) return CUPTI_ERROR_NOT_INITIALIZED;
  return static_cast<CUptiResult>(config.activity_error);
}

// What cuptiActivityGetAttribute answers before anybody sets anything: the header's documented defaults.
struct Attribute {
  std::size_t bytes;
  std::uint64_t value;
};

std::mutex attribute_mutex;
std::map<CUpti_ActivityAttribute, Attribute>& attributes() {
  static auto& table = *new std::map<CUpti_ActivityAttribute, Attribute>{
      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, {sizeof(size_t), 3'200'000}},
      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP, {sizeof(size_t), 8 << 20}},
      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, {sizeof(size_t), 250}},
      {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE, {sizeof(size_t), 25'000}},
      {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_LIMIT, {sizeof(size_t), 250}},
      {CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, {sizeof(uint8_t), 0}},
      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, {sizeof(size_t), 3}},
      {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE, {sizeof(size_t), 3}},
      {CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, {sizeof(uint8_t), 0}},
      {CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, {sizeof(uint8_t), 1}},
      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS, {sizeof(size_t), 16 << 20}},
  };
  return table;
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                                                    CUpti_BuffersCallbackCompleteFunc funcBufferCompleted) {
  if (gpuflight_sim_config()->cupti_too_new) return CUPTI_ERROR_NOT_INITIALIZED;
  if (funcBufferRequested == nullptr || funcBufferCompleted == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ActivityRecorder::instance().register_callbacks(funcBufferRequested, funcBufferCompleted);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp) {
  if (gpuflight_sim_config()->cupti_too_new) return CUPTI_ERROR_NOT_INITIALIZED;
  if (funcTimestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (const int error = gpuflight_sim_config()->timestamp_error) return static_cast<CUptiResult>(error);
  ActivityRecorder::instance().register_timestamp(funcTimestamp);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (const CUptiResult error = refused()) return error;
  // A kind that would never deliver is refused rather than swallowed.
  if (!ActivityRecorder::simulated(kind)) return CUPTI_ERROR_INVALID_KIND;
  if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && gpuflight_sim_hooks()->graph_instantiated.load()) {
    // So did the real one, twice of two (CUPTI 13.0).
    std::fputs("simulated CUPTI: GRAPH_TRACE enabled after a graph was instantiated\n", stderr);
    std::abort();
  }
  ActivityRecorder::instance().enable(kind, true);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (gpuflight_sim_config()->cupti_too_new) return CUPTI_ERROR_NOT_INITIALIZED;
  ActivityRecorder::instance().enable(kind, false);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  if (gpuflight_sim_config()->cupti_too_new) return CUPTI_ERROR_NOT_INITIALIZED;
  ActivityRecorder& recorder = ActivityRecorder::instance();
  if (!recorder.has_callbacks()) return CUPTI_ERROR_INVALID_OPERATION;
  recorder.flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityFlush(CUcontext context, uint32_t streamId, uint32_t flag) {
  return cuptiActivityFlushAll(flag);
}

CUptiResult CUPTIAPI cuptiActivityFlushPeriod(uint32_t time) {
  ActivityRecorder::instance().set_period(time);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes,
                                                CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const uint32_t version = gpuflight_sim_config()->cupti_version;
  uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<uint8_t*>(*record) + record_bytes((*record)->kind, version);
  const size_t left = static_cast<size_t>(buffer + validBufferSizeBytes - next);
  CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_INVALID;
  if (left < sizeof kind) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  std::memcpy(&kind, next, sizeof kind);
  const size_t bytes = record_bytes(kind, version);
  if (bytes == 0) return CUPTI_ERROR_INVALID_KIND;
  if (left < bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId, size_t* dropped) {
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = ActivityRecorder::instance().take_dropped();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize, void* value) {
  if (valueSize == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(attribute_mutex);
  const auto found = attributes().find(attr);
  if (found == attributes().end()) return CUPTI_ERROR_INVALID_PARAMETER;
  if (*valueSize < found->second.bytes) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  std::memcpy(value, &found->second.value, found->second.bytes);  // little endian
  *valueSize = found->second.bytes;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize, void* value) {
  if (valueSize == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(attribute_mutex);
  const auto found = attributes().find(attr);
  if (found == attributes().end()) return CUPTI_ERROR_INVALID_PARAMETER;
  if (*valueSize < found->second.bytes) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  found->second.value = 0;
  std::memcpy(&found->second.value, value, found->second.bytes);
  if (attr == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) {
    ActivityRecorder::instance().set_per_thread(found->second.value != 0);
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* timestamp) {
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = ActivityRecorder::instance().timestamp();
  return CUPTI_SUCCESS;
}

}  // extern "C"
