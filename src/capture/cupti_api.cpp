#include "capture/cupti_api.h"

namespace gpuflight::capture {

const char* CuptiApi::load(const SharedObject& libcupti) noexcept {
  const char* missing = nullptr;
#define GPUFLIGHT_LOAD(member, function)                                         \
  member = reinterpret_cast<decltype(member)>(libcupti.symbol(#function));       \
  if (member == nullptr && missing == nullptr) missing = #function;
  GPUFLIGHT_CUPTI_FUNCTIONS(GPUFLIGHT_LOAD)
#undef GPUFLIGHT_LOAD
  return missing;
}

const char* CuptiApi::result_text(CUptiResult result) const noexcept {
  const char* text = nullptr;
  if (get_result_string == nullptr || get_result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) {
    return "unknown CUPTI error";
  }
  return text;
}

}  // namespace gpuflight::capture
