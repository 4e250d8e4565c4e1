#include "event/board.h"

#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace gpuflight::event {
namespace {

constexpr std::int32_t kKiB = 1024;
constexpr std::int32_t kMiB = 1024 * kKiB;
constexpr std::int64_t kGiB = 1024LL * kMiB;
constexpr std::int32_t kMHz = 1000;  // in kHz, as CUDA gives clocks

// What the compute capability alone decides.
struct Architecture {
  std::int32_t major, minor;
  std::int32_t warps_per_sm, blocks_per_sm;
  std::int32_t shared_kib_per_sm, shared_kib_per_block_optin;
  std::int32_t reserved_shared_bytes;  // none before Ampere
};

constexpr Architecture kSm75{7, 5, 32, 16, 64, 64, 0};
constexpr Architecture kSm80{8, 0, 64, 32, 164, 163, 1024};
constexpr Architecture kSm86{8, 6, 48, 16, 100, 99, 1024};
constexpr Architecture kSm87{8, 7, 48, 16, 164, 163, 1024};
constexpr Architecture kSm89{8, 9, 48, 24, 100, 99, 1024};
constexpr Architecture kSm90{9, 0, 64, 32, 228, 227, 1024};
constexpr Architecture kSm100{10, 0, 64, 32, 228, 227, 1024};
constexpr Architecture kSm103{10, 3, 64, 32, 228, 227, 1024};
constexpr Architecture kSm120{12, 0, 48, 24, 100, 99, 1024};

struct Product {
  std::string_view short_name;  // normalized: lower case, no separators
  std::string_view name;        // as cuDeviceGetName gives it
  const Architecture& arch;
  std::int32_t sm_count;
  std::int32_t l2_bytes;
  std::int64_t memory_gib;
  std::int32_t sm_clock_mhz, memory_clock_mhz;  // boost; memory at half the data rate
  std::int32_t memory_bus_bits;
  std::int32_t copy_engines;
  bool ecc, integrated;
};

// The first of a capability is the one "sm_XX" means.
constexpr std::array kProducts = {
    Product{"t4", "Tesla T4", kSm75, 40, 4 * kMiB, 16, 1590, 5001, 256, 3, true, false},
    Product{"a100", "NVIDIA A100-SXM4-80GB", kSm80, 108, 40 * kMiB, 80, 1410, 1593, 5120, 3, true, false},
    Product{"rtx3090", "NVIDIA GeForce RTX 3090", kSm86, 82, 6 * kMiB, 24, 1695, 9751, 384, 2, false, false},
    Product{"a10", "NVIDIA A10", kSm86, 72, 6 * kMiB, 24, 1695, 6251, 384, 2, true, false},
    Product{"orin", "Orin", kSm87, 16, 4 * kMiB, 64, 1300, 3200, 256, 2, false, true},
    Product{"l4", "NVIDIA L4", kSm89, 58, 48 * kMiB, 24, 2040, 6251, 192, 2, true, false},
    Product{"rtx4090", "NVIDIA GeForce RTX 4090", kSm89, 128, 72 * kMiB, 24, 2520, 10501, 384, 2, false, false},
    Product{"h100", "NVIDIA H100 80GB HBM3", kSm90, 132, 50 * kMiB, 80, 1980, 2619, 5120, 3, true, false},
    Product{"h200", "NVIDIA H200", kSm90, 132, 60 * kMiB, 141, 1980, 3201, 6016, 3, true, false},
    Product{"b200", "NVIDIA B200", kSm100, 148, 126 * kMiB, 180, 1965, 3996, 7680, 3, true, false},
    Product{"b300", "NVIDIA B300", kSm103, 148, 126 * kMiB, 270, 1965, 3996, 7680, 3, true, false},
    Product{"rtx5090", "NVIDIA GeForce RTX 5090", kSm120, 170, 96 * kMiB, 32, 2407, 14001, 512, 2, false, false},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kProducts.size()> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kProducts[i].short_name;
  return names;
}();

DeviceInfo describe(const Product& product) {
  const Architecture& arch = product.arch;
  DeviceInfo info;
  info.name = product.name;
  info.compute_major = arch.major;
  info.compute_minor = arch.minor;
  info.sm_count = product.sm_count;
  info.max_threads_per_block = 1024;
  info.max_threads_per_sm = arch.warps_per_sm * info.warp_size;
  info.max_blocks_per_sm = arch.blocks_per_sm;
  info.regs_per_block = 64 * kKiB;
  info.regs_per_sm = 64 * kKiB;
  info.shared_bytes_per_block = 48 * kKiB;
  info.shared_bytes_per_block_optin = arch.shared_kib_per_block_optin * kKiB;
  info.shared_bytes_per_sm = arch.shared_kib_per_sm * kKiB;
  info.reserved_shared_bytes_per_block = arch.reserved_shared_bytes;
  info.l2_bytes = product.l2_bytes;
  info.global_bytes = product.memory_gib * kGiB;
  info.sm_clock_khz = product.sm_clock_mhz * kMHz;
  info.memory_clock_khz = product.memory_clock_mhz * kMHz;
  info.memory_bus_bits = product.memory_bus_bits;
  info.copy_engines = product.copy_engines;
  info.cooperative_launch = true;
  info.cluster_launch = arch.major >= 9;
  info.ecc = product.ecc;
  info.integrated = product.integrated;
  info.managed_memory = true;
  info.memory_pools = true;
  return info;
}

std::string normalized(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.') {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

}  // namespace

std::span<const DeviceInfo> boards() {
  static const std::vector<DeviceInfo> table = [] {
    std::vector<DeviceInfo> out;
    for (const Product& product : kProducts) out.push_back(describe(product));
    return out;
  }();
  return table;
}

const DeviceInfo* find_board(std::string_view name) {
  const std::string wanted = normalized(name);
  const std::span<const DeviceInfo> all = boards();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string major = std::to_string(all[i].compute_major);
    const std::string minor = std::to_string(all[i].compute_minor);
    if (wanted == kProducts[i].short_name || wanted == normalized(all[i].name) || wanted == "sm" + major + minor ||
        wanted == major + "." + minor) {
      return &all[i];
    }
  }
  return nullptr;
}

std::span<const std::string_view> board_names() { return kNames; }

}  // namespace gpuflight::event
