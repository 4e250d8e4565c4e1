// What the driver's launch status means, for those who cannot include cuda.h: the tools build without a toolkit. Names
// and numbers are of cuda.h (CUresult); they have not changed since CUDA 4.
#pragma once

#include <array>
#include <cstdint>

namespace gpuflight::event {

struct StickyStatus {
  std::int32_t status;
  const char* name;
  const char* words;
};

// Errors after which the context is dead: every later call fails with the same code. cuda.h says of each that the
// process must be ended and started anew to go on with CUDA (210 to 226 where the hardware reports them).
inline constexpr std::array<StickyStatus, 16> kStickyStatuses = {{
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error"},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error"},
    {226, "CUDA_ERROR_CONTAINED", "contained hardware error"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "kernel took longer than the watchdog allows"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed"},
    {710, "CUDA_ERROR_ASSERT", "assertion in a kernel"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "stack error in a kernel"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned memory access"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "wrong address space"},
    {718, "CUDA_ERROR_INVALID_PC", "program counter out of the program"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "kernel failed"},
    {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not freed at the end of a kernel"},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "ended by the MPS server"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "error of an external device"},
}};

constexpr const StickyStatus* sticky_status(std::int32_t status) {
  if (status == 0) return nullptr;  // asked after every launch
  for (const StickyStatus& known : kStickyStatuses) {
    if (known.status == status) return &known;
  }
  return nullptr;
}

}  // namespace gpuflight::event
