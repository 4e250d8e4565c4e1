// Names of callbacks and results, taken from CUPTI's own headers at configure time.
#include <cupti.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace {

struct Name {
  std::uint32_t id;
  const char* text;
};

constexpr Name kDriverCalls[] = {
#include "cupti_driver_names.inc"
};

constexpr Name kResults[] = {
#include "cupti_result_names.inc"
};

template <std::size_t N>
const char* find_name(const Name (&table)[N], std::uint32_t id) {
  const auto* found = std::find_if(std::begin(table), std::end(table), [&](const Name& n) { return n.id == id; });
  return found != std::end(table) ? found->text : nullptr;
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) {
  if (name == nullptr || domain != CUPTI_CB_DOMAIN_DRIVER_API) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = find_name(kDriverCalls, cbid);
  return *name != nullptr ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char** str) {
  if (str == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *str = find_name(kResults, result);
  return *str != nullptr ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

// CUPTI gives a sentence here; which one is not documented, so the simulated one gives the name.
CUptiResult CUPTIAPI cuptiGetErrorMessage(CUptiResult result, const char** str) {
  return cuptiGetResultString(result, str);
}

}  // extern "C"
