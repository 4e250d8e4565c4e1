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
  std::int32_t regs_per_block = 64 * kKiB;
};

// Before Volta shared memory is apart from the L1 cache, and no block can ask for more than 48 KiB of it.
constexpr Architecture kSm50{5, 0, 64, 32, 64, 48, 0};
constexpr Architecture kSm52{5, 2, 64, 32, 96, 48, 0};
constexpr Architecture kSm53{5, 3, 64, 32, 64, 48, 0, 32 * kKiB};
constexpr Architecture kSm60{6, 0, 64, 32, 64, 48, 0};
constexpr Architecture kSm61{6, 1, 64, 32, 96, 48, 0};
constexpr Architecture kSm62{6, 2, 64, 32, 64, 48, 0, 32 * kKiB};
constexpr Architecture kSm70{7, 0, 64, 32, 96, 96, 0};
constexpr Architecture kSm72{7, 2, 64, 32, 96, 96, 0};
constexpr Architecture kSm75{7, 5, 32, 16, 64, 64, 0};
constexpr Architecture kSm80{8, 0, 64, 32, 164, 163, 1024};
constexpr Architecture kSm86{8, 6, 48, 16, 100, 99, 1024};
constexpr Architecture kSm87{8, 7, 48, 16, 164, 163, 1024};
constexpr Architecture kSm89{8, 9, 48, 24, 100, 99, 1024};
constexpr Architecture kSm90{9, 0, 64, 32, 228, 227, 1024};
constexpr Architecture kSm100{10, 0, 64, 32, 228, 227, 1024};
constexpr Architecture kSm101{10, 1, 48, 24, 228, 227, 1024};  // what CUDA 12 calls sm_110
constexpr Architecture kSm103{10, 3, 64, 32, 228, 227, 1024};
constexpr Architecture kSm110{11, 0, 48, 24, 228, 227, 1024};
constexpr Architecture kSm120{12, 0, 48, 24, 100, 99, 1024};
constexpr Architecture kSm121{12, 1, 48, 24, 100, 99, 1024};

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
    Product{"gtx750ti", "NVIDIA GeForce GTX 750 Ti", kSm50, 5, 2 * kMiB, 2, 1085, 2700, 128, 1, false, false},
    Product{"gtx980", "NVIDIA GeForce GTX 980", kSm52, 16, 2 * kMiB, 4, 1216, 3505, 256, 2, false, false},
    Product{"tx1", "NVIDIA Tegra X1", kSm53, 2, 256 * kKiB, 4, 998, 1600, 64, 1, false, true},
    Product{"p100", "Tesla P100-SXM2-16GB", kSm60, 56, 4 * kMiB, 16, 1480, 715, 4096, 2, true, false},
    Product{"gtx1080ti", "NVIDIA GeForce GTX 1080 Ti", kSm61, 28, 2816 * kKiB, 11, 1582, 5505, 352, 2, false, false},
    Product{"tx2", "NVIDIA Tegra X2", kSm62, 2, 512 * kKiB, 8, 1300, 1866, 128, 1, false, true},
    Product{"v100", "Tesla V100-SXM2-32GB", kSm70, 80, 6 * kMiB, 32, 1530, 877, 4096, 5, true, false},
    Product{"xavier", "Xavier", kSm72, 8, 512 * kKiB, 32, 1377, 2133, 256, 1, false, true},
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
    Product{"thor101", "NVIDIA Thor", kSm101, 20, 32 * kMiB, 128, 1575, 4266, 256, 2, false, true},
    Product{"b300", "NVIDIA B300", kSm103, 148, 126 * kMiB, 270, 1965, 3996, 7680, 3, true, false},
    Product{"thor", "NVIDIA Thor", kSm110, 20, 32 * kMiB, 128, 1575, 4266, 256, 2, false, true},
    Product{"rtx5090", "NVIDIA GeForce RTX 5090", kSm120, 170, 96 * kMiB, 32, 2407, 14001, 512, 2, false, false},
    Product{"spark", "NVIDIA GB10", kSm121, 48, 24 * kMiB, 128, 2418, 4266, 256, 2, false, true},
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
  info.regs_per_block = arch.regs_per_block;
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
  info.cooperative_launch = arch.major >= 6;
  info.cluster_launch = arch.major >= 9;
  info.ecc = product.ecc;
  info.integrated = product.integrated;
  info.managed_memory = true;
  info.memory_pools = arch.major >= 6;
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
