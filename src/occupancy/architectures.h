// Every architecture that cuda_occupancy.h knows from Maxwell on, each with its limits and a board that stands for it:
// what a calculator and a what-if speak of without a GPU. The numbers are those of event/board.h, said once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "event/device_info.h"

namespace gpuflight::occupancy {

struct Architecture {
  std::string name;                // "sm_86"
  std::int32_t shared_unit_bytes;  // shared memory goes to blocks in this unit
  const event::DeviceInfo* board;  // its limits; name and SM count are those of this board
};

std::string architecture_name(const event::DeviceInfo& device);

// One for each compute capability, ascending.
std::span<const Architecture> architectures();

// By "sm_86", "sm_90a", "compute_86", "8.6" or a product's name ("h200", "RTX 3090"). nullptr: not known.
const event::DeviceInfo* find_architecture(std::string_view name);

// Where the numbers come from, to be shown beside them.
struct NumberSource {
  const char* numbers;
  const char* source;
};
std::span<const NumberSource> number_sources();

}  // namespace gpuflight::occupancy
