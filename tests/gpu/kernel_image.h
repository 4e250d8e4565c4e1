// A module with the kernels one asks for, as text that cuModuleLoadData takes: PTX for a real driver, the image format
// of src/sim/module_image.h for the simulated one. Lets driver-API test programs run on both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuflight::gpu_tests {

struct KernelSpec {
  std::string name;
  int static_shared_bytes = 0;
  std::uint64_t spin_ns = 0;  // runs for so long by the GPU's own clock
};

inline std::string ptx_module(const std::vector<KernelSpec>& kernels) {
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n";
  for (const KernelSpec& kernel : kernels) {
    text += ".visible .entry " + kernel.name + "()\n{\n";
    if (kernel.static_shared_bytes > 0) {
      // Volatile, or the assembler drops the array together with its only use.
      text += "  .shared .align 4 .b8 buffer[" + std::to_string(kernel.static_shared_bytes) + "];\n" +
              "  .reg .u32 %r<3>;\n  mov.u32 %r1, buffer;\n  mov.u32 %r2, 1;\n  st.volatile.shared.u32 [%r1], %r2;\n";
    }
    if (kernel.spin_ns > 0) {
      text += "  .reg .u64 %t<4>;\n  .reg .pred %p1;\n  mov.u64 %t1, %globaltimer;\n  add.u64 %t2, %t1, " +
              std::to_string(kernel.spin_ns) +
              ";\nagain:\n  mov.u64 %t3, %globaltimer;\n  setp.lt.u64 %p1, %t3, %t2;\n  @%p1 bra again;\n";
    }
    text += "  ret;\n}\n";
  }
  return text;
}

inline std::string base64(const std::string& bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      group = group << 8 | (i + b < bytes.size() ? static_cast<unsigned char>(bytes[i + b]) : 0u);
    }
    const std::size_t there = bytes.size() - i;
    for (std::size_t c = 0; c < 4; ++c) out += c <= there ? kAlphabet[group >> (18 - 6 * c) & 63] : '=';
  }
  return out;
}

inline std::string simulated_module(const std::vector<KernelSpec>& kernels) {
  std::string text = "GPUFLIGHT-SIM-MODULE 1\n{\"kernels\":[";
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    text += std::string(i ? "," : "") + "{\"name\":\"" + base64(kernels[i].name) +
            "\",\"registers\":16,\"static_shared_bytes\":" + std::to_string(kernels[i].static_shared_bytes) +
            ",\"local_bytes\":0,\"const_bytes\":0,\"max_threads\":1024,\"barriers\":1,\"binary_version\":0,"
            "\"ptx_version\":0,\"required_cluster\":[0,0,0],\"duration_ns\":" +
            std::to_string(kernels[i].spin_ns > 0 ? kernels[i].spin_ns : 2000) + ",\"block_ns\":0,\"fault\":0}";
  }
  return text + "]}";
}

inline std::string module_text(const std::vector<KernelSpec>& kernels, bool simulated) {
  return simulated ? simulated_module(kernels) : ptx_module(kernels);
}

}  // namespace gpuflight::gpu_tests
