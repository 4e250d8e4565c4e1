// The cuptiActivity calls, by dlsym from the libcupti that the subscriber is in. A libcupti without one of the required
// ones cannot tell times; launches are recorded all the same.
#pragma once

#include <cupti.h>

#include "capture/shared_object.h"

#define GPUFLIGHT_ACTIVITY_FUNCTIONS(REQUIRED, OPTIONAL)                  \
  REQUIRED(register_callbacks, cuptiActivityRegisterCallbacks)            \
  REQUIRED(enable, cuptiActivityEnable)                                   \
  REQUIRED(disable, cuptiActivityDisable)                                 \
  REQUIRED(flush_all, cuptiActivityFlushAll)                              \
  REQUIRED(next_record, cuptiActivityGetNextRecord)                       \
  OPTIONAL(register_timestamp, cuptiActivityRegisterTimestampCallback)    \
  OPTIONAL(set_attribute, cuptiActivitySetAttribute)                      \
  OPTIONAL(dropped_records, cuptiActivityGetNumDroppedRecords)            \
  OPTIONAL(result_string, cuptiGetResultString)

namespace gpuflight::capture {

struct ActivityApi {
#define GPUFLIGHT_MEMBER(member, function) decltype(&::function) member = nullptr;
  GPUFLIGHT_ACTIVITY_FUNCTIONS(GPUFLIGHT_MEMBER, GPUFLIGHT_MEMBER)
#undef GPUFLIGHT_MEMBER

  // The name of the first required function that is missing, or nullptr.
  const char* load(const SharedObject& libcupti) noexcept;
  const char* result_text(CUptiResult result) const noexcept;
};

}  // namespace gpuflight::capture
