#include "capture/activity_api.h"

namespace gpuflight::capture {

const char* ActivityApi::load(const SharedObject& libcupti) noexcept {
  const char* missing = nullptr;
#define GPUFLIGHT_OPTIONAL(member, function) \
  member = reinterpret_cast<decltype(member)>(libcupti.symbol(#function));
#define GPUFLIGHT_REQUIRED(member, function) \
  GPUFLIGHT_OPTIONAL(member, function)       \
  if (member == nullptr && missing == nullptr) missing = #function;
  GPUFLIGHT_ACTIVITY_FUNCTIONS(GPUFLIGHT_REQUIRED, GPUFLIGHT_OPTIONAL)
#undef GPUFLIGHT_REQUIRED
#undef GPUFLIGHT_OPTIONAL
  return missing;
}

const char* ActivityApi::result_text(CUptiResult result) const noexcept {
  const char* text = nullptr;
  if (result_string == nullptr || result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) {
    return "unknown CUPTI error";
  }
  return text;
}

}  // namespace gpuflight::capture
