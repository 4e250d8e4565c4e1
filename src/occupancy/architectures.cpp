#include "occupancy/architectures.h"

#include <array>
#include <cctype>

#include "event/board.h"
#include "occupancy/occupancy_model.h"

namespace gpuflight::occupancy {
namespace {

constexpr std::array kSources = {
    NumberSource{
        "warps, blocks, registers and shared memory of an SM, of a block, by opt-in",
        "CUDA C++ Programming Guide, technical specifications per compute capability (5.0 to 7.2: that of CUDA 12; "
        "10.1: that of 11.0, which it became)"},
    NumberSource{
        "shared memory that the driver keeps of each block",
        "1 KiB from compute capability 8.0 on: the guide, and CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK"},
    NumberSource{"blocks of an SM, allocation units, sizes of the carve-out", "cuda_occupancy.h of the CUDA toolkit"},
    NumberSource{"SMs of the board", "the data sheet of the board that is named"},
};

// "sm_90a" and "sm_120f" have the limits of sm_90 and sm_120; nvcc and Triton write both "compute_86" and "sm_86".
std::string plain_name(std::string_view name) {
  std::string text(name);
  if (text.starts_with("compute_")) text = "sm_" + text.substr(8);
  const bool feature_set = text.starts_with("sm_") && text.size() > 4 && (text.back() == 'a' || text.back() == 'f') &&
                           std::isdigit(static_cast<unsigned char>(text[text.size() - 2])) != 0;
  if (feature_set) text.pop_back();
  return text;
}

}  // namespace

std::string architecture_name(const event::DeviceInfo& device) {
  return "sm_" + std::to_string(device.compute_major) + std::to_string(device.compute_minor);
}

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> table = [] {
    std::vector<Architecture> out;
    for (const event::DeviceInfo& board : event::boards()) {
      const std::string name = architecture_name(board);
      if (out.empty() || out.back().name != name) out.push_back({name, shared_unit_bytes(board), &board});
    }
    return out;
  }();
  return table;
}

const event::DeviceInfo* find_architecture(std::string_view name) { return event::find_board(plain_name(name)); }

std::span<const NumberSource> number_sources() { return kSources; }

}  // namespace gpuflight::occupancy
