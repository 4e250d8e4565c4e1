// Known boards: one per compute capability at least, so that a calculator, a what-if or a simulated device can speak
// of a device that is not there. Limits per SM are those of the CUDA programming guide ("Technical specifications
// per compute capability"; of 5.0 to 7.2 that of CUDA 12, of 10.1 that of 11.0, which it became); SM counts, clocks,
// buses and caches are those of the product's data sheet, so a real device's own device_info always goes before this
// table.
#pragma once

#include <span>
#include <string_view>

#include "event/device_info.h"

namespace gpuflight::event {

// Ordered by compute capability; the first board of a capability is the one its "sm_XX" name finds.
std::span<const DeviceInfo> boards();

// By "sm_86", "8.6" or a product's short name ("a100", "rtx_3090"); case, blanks, '-' and '_' do not matter.
// nullptr: no such board.
const DeviceInfo* find_board(std::string_view name);

// Every product name find_board knows, for messages and help. "sm_XX" names are not among them.
std::span<const std::string_view> board_names();

}  // namespace gpuflight::event
