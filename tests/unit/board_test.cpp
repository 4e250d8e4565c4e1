#include "event/board.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace gpuflight::event {
namespace {

TEST(Board, EveryCapabilityIsThere) {
  for (const char* name :
       {"sm_50", "sm_52", "sm_53", "sm_60", "sm_61",  "sm_62",  "sm_70",  "sm_72",  "sm_75",  "sm_80",
        "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121"}) {
    const DeviceInfo* board = find_board(name);
    ASSERT_NE(board, nullptr) << name;
    EXPECT_EQ("sm_" + std::to_string(board->compute_major) + std::to_string(board->compute_minor), name);
  }
}

TEST(Board, ProductsByTheirNames) {
  const std::pair<const char*, const char*> expected[] = {
      {"t4", "sm_75"},       {"a100", "sm_80"},     {"A100", "sm_80"},        {"rtx_3090", "sm_86"},
      {"RTX 3090", "sm_86"}, {"a10", "sm_86"},      {"l4", "sm_89"},          {"rtx-4090", "sm_89"},
      {"h100", "sm_90"},     {"h200", "sm_90"},     {"NVIDIA H200", "sm_90"}, {"b200", "sm_100"},
      {"b300", "sm_103"},    {"rtx5090", "sm_120"}, {"8.6", "sm_86"},         {"10.0", "sm_100"},
      {"GTX 1080 Ti", "sm_61"}, {"v100", "sm_70"},  {"thor", "sm_110"},     {"spark", "sm_121"}};
  for (const auto& [name, arch] : expected) {
    const DeviceInfo* board = find_board(name);
    ASSERT_NE(board, nullptr) << name;
    EXPECT_EQ("sm_" + std::to_string(board->compute_major) + std::to_string(board->compute_minor), arch) << name;
  }
  EXPECT_NE(find_board("h100"), find_board("h200"));
  EXPECT_EQ(find_board("sm_90"), find_board("h100"));
}

TEST(Board, UnknownNamesAreRefused) {
  for (const char* name : {"", " ", "sm_", "sm_9", "sm_900", "gtx9000", "1.00", "h20"}) {
    EXPECT_EQ(find_board(name), nullptr) << name;
  }
}

TEST(Board, NamesAreFoundAndUnique) {
  std::set<std::string_view> seen;
  for (const std::string_view name : board_names()) {
    EXPECT_NE(find_board(name), nullptr) << name;
    EXPECT_TRUE(seen.insert(name).second) << name;
  }
  EXPECT_EQ(board_names().size(), boards().size());
}

TEST(Board, LimitsHoldTogether) {
  int last = 0;
  for (const DeviceInfo& board : boards()) {
    SCOPED_TRACE(board.name);
    const int capability = board.compute_major * 10 + board.compute_minor;
    EXPECT_GE(capability, last);
    last = capability;
    EXPECT_GT(board.sm_count, 0);
    EXPECT_EQ(board.max_threads_per_sm % board.warp_size, 0);
    EXPECT_LE(board.max_threads_per_block, board.max_threads_per_sm);
    EXPECT_LE(board.regs_per_block, board.regs_per_sm);
    EXPECT_LE(board.shared_bytes_per_block, board.shared_bytes_per_block_optin);
    if (capability >= 70) {  // a block may have the whole SM but for what the driver keeps of it
      EXPECT_EQ(board.shared_bytes_per_block_optin + board.reserved_shared_bytes_per_block, board.shared_bytes_per_sm);
    } else {
      EXPECT_EQ(board.shared_bytes_per_block_optin, board.shared_bytes_per_block);
    }
    EXPECT_EQ(board.reserved_shared_bytes_per_block, capability >= 80 ? 1024 : 0);
    EXPECT_EQ(board.cluster_launch, capability >= 90);
    EXPECT_GT(board.l2_bytes, 0);
    EXPECT_GT(board.global_bytes, std::int64_t{board.l2_bytes});
    EXPECT_GT(board.copy_engines, 0);
  }
}

// Peak bandwidth follows from clock and bus: the data sheet's figure in GB/s catches a slip in either.
TEST(Board, BandwidthIsTheDataSheets) {
  const std::pair<const char*, double> expected[] = {
      {"t4", 320}, {"a100", 2039}, {"rtx3090", 936}, {"a10", 600},  {"orin", 204.8}, {"l4", 300},
      {"h100", 3350}, {"h200", 4800}, {"rtx4090", 1008}, {"b200", 7700}, {"rtx5090", 1792},
      {"gtx750ti", 86.4}, {"gtx980", 224}, {"tx1", 25.6}, {"p100", 732}, {"gtx1080ti", 484}, {"tx2", 59.7},
      {"v100", 898}, {"xavier", 136.5}, {"thor", 273}, {"spark", 273}};
  for (const auto& [name, gb_per_s] : expected) {
    const DeviceInfo* board = find_board(name);
    ASSERT_NE(board, nullptr) << name;
    const double peak = 2.0 * board->memory_clock_khz * 1e3 * board->memory_bus_bits / 8 / 1e9;
    EXPECT_NEAR(peak / gb_per_s, 1.0, 0.01) << name << ' ' << peak;
  }
}

}  // namespace
}  // namespace gpuflight::event
