#include "capture/driver_api.h"

#include "capture/hook_link.h"

namespace gpuflight::capture {

void DriverApi::load(const SharedObject& libcuda) noexcept {
#define GPUFLIGHT_LOAD(member, name, prototype) \
  member = reinterpret_cast<decltype(member)>(behind_hook(libcuda.symbol(name)));
  GPUFLIGHT_DRIVER_FUNCTIONS(GPUFLIGHT_LOAD)
#undef GPUFLIGHT_LOAD
  graph_kernel_get_params = reinterpret_cast<decltype(graph_kernel_get_params)>(
      behind_hook(libcuda.symbol("cuGraphKernelNodeGetParams")));
}

}  // namespace gpuflight::capture
