// The CUPTI functions that we call, by dlsym from the libcupti chosen by cupti_locator. All but the optional ones are
// there once load() says so.
#pragma once

#include <cupti.h>

#include "capture/shared_object.h"

#define GPUFLIGHT_CUPTI_FUNCTIONS(X)  \
  X(get_version, cuptiGetVersion)     \
  X(subscribe, cuptiSubscribe)        \
  X(unsubscribe, cuptiUnsubscribe)    \
  X(enable_callback, cuptiEnableCallback) \
  X(get_context_id, cuptiGetContextId) \
  X(get_device_id, cuptiGetDeviceId)  \
  X(get_result_string, cuptiGetResultString)

namespace gpuflight::capture {

struct CuptiApi {
#define GPUFLIGHT_MEMBER(member, function) decltype(&::function) member = nullptr;
  GPUFLIGHT_CUPTI_FUNCTIONS(GPUFLIGHT_MEMBER)
#undef GPUFLIGHT_MEMBER

  // The name of the first function that is missing, or nullptr.
  const char* load(const SharedObject& libcupti) noexcept;
  const char* result_text(CUptiResult result) const noexcept;
};

}  // namespace gpuflight::capture
