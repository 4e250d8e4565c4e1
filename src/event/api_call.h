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

// Errors after which a context (or the whole device) is of no use any more: every later call returns them again.
constexpr bool is_sticky(std::int32_t status) {
  switch (status) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

// Their names, for when the driver is past telling them.
constexpr const char* sticky_name(std::int32_t status) {
  switch (status) {
    case 214:
      return "CUDA_ERROR_ECC_UNCORRECTABLE";
    case 220:
      return "CUDA_ERROR_NVLINK_UNCORRECTABLE";
    case 226:
      return "CUDA_ERROR_CONTAINED";
    case 700:
      return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case 702:
      return "CUDA_ERROR_LAUNCH_TIMEOUT";
    case 709:
      return "CUDA_ERROR_CONTEXT_IS_DESTROYED";
    case 710:
      return "CUDA_ERROR_ASSERT";
    case 714:
      return "CUDA_ERROR_HARDWARE_STACK_ERROR";
    case 715:
      return "CUDA_ERROR_ILLEGAL_INSTRUCTION";
    case 716:
      return "CUDA_ERROR_MISALIGNED_ADDRESS";
    case 717:
      return "CUDA_ERROR_INVALID_ADDRESS_SPACE";
    case 718:
      return "CUDA_ERROR_INVALID_PC";
    case 719:
      return "CUDA_ERROR_LAUNCH_FAILED";
    case 721:
      return "CUDA_ERROR_TENSOR_MEMORY_LEAK";
    default:
      return "";
  }
}

}  // namespace gpuflight::event
