// Driver calls that are recorded because a host thread may wait in them, and what their return proves. Stored in the
// flight file by number: append only.
#pragma once

#include <array>
#include <cstdint>

namespace gpuflight::event {

enum class ApiCall : std::uint32_t {
  kNone = 0,
  kCtxSynchronize,
  kStreamSynchronize,
  kEventSynchronize,
  kMemcpy,
  kMemcpyHtoD,
  kMemcpyDtoH,
  kMemcpyDtoD,
  kMemcpyPeer,
  kMemcpy2D,
  kMemcpy3D,
  kMemFree,
};
inline constexpr int kApiCallCount = 12;

enum class ApiKind : std::uint8_t { kSync, kCopy, kFree };

struct ApiCallFacts {
  const char* name;
  ApiKind kind;
};

inline constexpr std::array<ApiCallFacts, kApiCallCount> kApiCalls = {{
    {"", ApiKind::kSync},
    {"cuCtxSynchronize", ApiKind::kSync},
    {"cuStreamSynchronize", ApiKind::kSync},
    {"cuEventSynchronize", ApiKind::kSync},
    {"cuMemcpy", ApiKind::kCopy},
    {"cuMemcpyHtoD", ApiKind::kCopy},
    {"cuMemcpyDtoH", ApiKind::kCopy},
    {"cuMemcpyDtoD", ApiKind::kCopy},
    {"cuMemcpyPeer", ApiKind::kCopy},
    {"cuMemcpy2D", ApiKind::kCopy},
    {"cuMemcpy3D", ApiKind::kCopy},
    {"cuMemFree", ApiKind::kFree},
}};

constexpr const ApiCallFacts& facts(ApiCall call) {
  const auto i = static_cast<std::uint32_t>(call);
  return kApiCalls[i < kApiCallCount ? i : 0];
}

}  // namespace gpuflight::event
