// The "cubin" of the simulated device: a small text blob (JSON behind a magic line) that says what ptxas would have put
// into a real one. The player writes it from a plan, cuModuleLoadData reads it.
// Threads: any. Blocks: no. Allocates: yes. Owner: the caller owns all results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpuflight::sim {

inline constexpr std::string_view kImageMagic = "GPUFLIGHT-SIM-MODULE 1\n";

// How a kernel ends, other than well.
inline constexpr std::int64_t kForeverNs = std::int64_t{1} << 60;  // about 36 years: a hung kernel

struct KernelImage {
  std::string name;  // mangled, any bytes but NUL
  std::int32_t registers = 16;
  std::int32_t static_shared_bytes = 0;
  std::int32_t local_bytes = 0;
  std::int32_t const_bytes = 0;
  std::int32_t max_threads = 1024;
  std::int32_t barriers = 1;         // highest named barrier id + 1
  std::int32_t binary_version = 0;   // 0: the device's own
  std::int32_t ptx_version = 0;      // 0: the device's own
  std::int32_t required_cluster[3] = {0, 0, 0};
  std::int64_t duration_ns = 2000;   // of one launch; kForeverNs: never ends
  std::int64_t block_ns = 0;         // added per block
  std::int32_t fault = 0;            // sticky CUresult when it ends; 0: none
};

struct ModuleImage {
  std::vector<KernelImage> kernels;
};

// Kernel names may hold any bytes, which JSON cannot: they travel as base64.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

// Ends with a NUL of its own, as cuModuleLoadData takes no size.
std::string write_image(const ModuleImage& image);

// `data` is what a program handed to cuModuleLoadData: unsized, ends at NUL. nullopt: not one of our images.
std::optional<ModuleImage> read_image(const void* data);

}  // namespace gpuflight::sim
