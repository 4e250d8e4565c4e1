// Records as CUPTI's headers lay them out, read by the table of offsets.
#include "capture/activity_layout.h"

#include <cupti.h>
#include <cupti_activity_deprecated.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace gpuflight::capture {
namespace {

constexpr std::int64_t kBase = 1'000'000;

template <class Raw>
ReadResult read(const Raw& raw, ActivityRecord& out, std::size_t room = sizeof(Raw), std::uint32_t version = 130001) {
  // Of just that size, so that a sanitizer sees every byte too many.
  std::vector<std::uint8_t> bytes(room);
  if (room != 0) std::memcpy(bytes.data(), &raw, room);
  return read_activity(*find_activity_layout(version), bytes.data(), room, kBase, out);
}

template <class Raw>
Raw zeroed() {
  Raw raw;
  std::memset(&raw, 0, sizeof raw);
  return raw;
}

template <class Kernel>
void check_kernel(std::uint32_t version) {
  auto raw = zeroed<Kernel>();
  raw.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  raw.registersPerThread = 40;
  raw.start = kBase + 10;
  raw.end = kBase + 30;
  raw.deviceId = 3;
  raw.contextId = 5;
  raw.streamId = 13;
  raw.gridX = 7, raw.gridY = 8, raw.gridZ = 9;
  raw.blockX = 32, raw.blockY = 2, raw.blockZ = 4;
  raw.staticSharedMemory = 1024;
  raw.dynamicSharedMemory = 2048;
  raw.localMemoryPerThread = 16;
  raw.correlationId = 4711;
  raw.name = "_Z1kv";
  raw.launchType = CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE;
  raw.isSharedMemoryCarveoutRequested = 1;
  raw.sharedMemoryCarveoutRequested = 50;
  raw.graphNodeId = 0x1'0000'0002;
  raw.graphId = 21;
  raw.clusterX = 2, raw.clusterY = 1, raw.clusterZ = 1;
  ActivityRecord r;
  ASSERT_EQ(read(raw, r, sizeof raw, version), ReadResult::kRead);
  EXPECT_EQ(r.kind, ActivityRecord::Kind::kKernel);
  EXPECT_EQ(r.start_ns, 10);
  EXPECT_EQ(r.end_ns, 30);
  EXPECT_EQ(r.device, 3u);
  EXPECT_EQ(r.context_uid, 5u);
  EXPECT_EQ(r.stream_uid, 13u);
  EXPECT_EQ(r.correlation, 4711u);
  EXPECT_STREQ(r.name, "_Z1kv");
  EXPECT_EQ(r.grid, (event::Dim3{7, 8, 9}));
  EXPECT_EQ(r.shape.block, (event::Dim3{32, 2, 4}));
  EXPECT_EQ(r.shape.cluster, (event::Dim3{2, 1, 1}));
  EXPECT_EQ(r.shape.dyn_shared_bytes, 2048u);
  EXPECT_EQ(r.shape.carveout, 50);
  EXPECT_TRUE(r.shape.cooperative);
  EXPECT_EQ(r.num_regs, 40);
  EXPECT_EQ(r.static_shared_bytes, 1024);
  EXPECT_EQ(r.local_bytes_per_thread, 16);
  EXPECT_EQ(r.graph_node, 0x1'0000'0002u);
  EXPECT_EQ(r.graph_uid, 21u);
}

TEST(ActivityLayout, KernelsOfEveryVersionAtHand) {
  check_kernel<CUpti_ActivityKernel9>(18);
  check_kernel<CUpti_ActivityKernel9>(28);
  check_kernel<CUpti_ActivityKernel10>(130001);
}

TEST(ActivityLayout, NothingOfTheRecordBeforeStays) {
  ActivityRecord r;
  auto copy = zeroed<CUpti_ActivityMemcpyPtoP4>();
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  copy.start = copy.end = kBase;
  copy.bytes = 9;
  ASSERT_EQ(read(copy, r), ReadResult::kRead);
  auto plain = zeroed<CUpti_ActivityKernel9>();
  plain.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  ASSERT_EQ(read(plain, r), ReadResult::kNoTime);
  EXPECT_EQ(r.bytes, 0u);
  EXPECT_FALSE(r.source_device.has_value());
  EXPECT_FALSE(r.start_ns.has_value());
  EXPECT_EQ(r.shape.carveout, -1);
  EXPECT_FALSE(r.shape.cooperative);
}

TEST(ActivityLayout, Copies) {
  auto raw = zeroed<CUpti_ActivityMemcpy6>();
  raw.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  raw.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  raw.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  raw.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  raw.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  raw.bytes = 1ull << 33;
  raw.start = kBase + 1;
  raw.end = kBase + 2;
  raw.deviceId = 1, raw.contextId = 2, raw.streamId = 3, raw.correlationId = 4;
  raw.graphNodeId = 6, raw.graphId = 5;
  ActivityRecord r;
  ASSERT_EQ(read(raw, r), ReadResult::kRead);
  EXPECT_EQ(r.kind, ActivityRecord::Kind::kMemcpy);
  EXPECT_EQ(r.copy, event::CopyKind::kHtoD);
  EXPECT_EQ(r.source, event::MemoryKind::kPinned);
  EXPECT_EQ(r.destination, event::MemoryKind::kDevice);
  EXPECT_TRUE(r.async);
  EXPECT_EQ(r.bytes, 1ull << 33);
  EXPECT_EQ(r.device, 1u);
  EXPECT_EQ(r.context_uid, 2u);
  EXPECT_EQ(r.stream_uid, 3u);
  EXPECT_EQ(r.correlation, 4u);
  EXPECT_EQ(r.graph_uid, 5u);
  EXPECT_EQ(r.graph_node, 6u);
  EXPECT_FALSE(r.source_device.has_value());
  raw.copyKind = 77, raw.srcKind = 99, raw.flags = 0;
  ASSERT_EQ(read(raw, r), ReadResult::kRead);
  EXPECT_EQ(r.copy, event::CopyKind::kUnknown);
  EXPECT_EQ(r.source, event::MemoryKind::kUnknown);
  EXPECT_FALSE(r.async);
}

TEST(ActivityLayout, CopiesBetweenDevices) {
  auto raw = zeroed<CUpti_ActivityMemcpyPtoP4>();
  raw.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  raw.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  raw.srcKind = raw.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  raw.bytes = 64;
  raw.start = kBase + 1;
  raw.end = kBase + 2;
  raw.deviceId = 1, raw.contextId = 2, raw.streamId = 3, raw.correlationId = 4;
  raw.srcDeviceId = 0, raw.dstDeviceId = 1;
  raw.graphNodeId = 6, raw.graphId = 5;
  ActivityRecord r;
  ASSERT_EQ(read(raw, r), ReadResult::kRead);
  EXPECT_EQ(r.copy, event::CopyKind::kPtoP);
  EXPECT_EQ(r.correlation, 4u);
  EXPECT_EQ(r.source_device, 0);
  EXPECT_EQ(r.destination_device, 1);
  EXPECT_EQ(r.graph_uid, 5u);
  EXPECT_EQ(r.graph_node, 6u);
}

TEST(ActivityLayout, Fills) {
  auto raw = zeroed<CUpti_ActivityMemset4>();
  raw.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  raw.value = 0x5a5a;
  raw.bytes = 4096;
  raw.start = kBase + 1;
  raw.end = kBase + 2;
  raw.deviceId = 1, raw.contextId = 2, raw.streamId = 3, raw.correlationId = 4;
  raw.flags = CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC;
  raw.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  raw.graphNodeId = 6, raw.graphId = 5;
  ActivityRecord r;
  ASSERT_EQ(read(raw, r), ReadResult::kRead);
  EXPECT_EQ(r.kind, ActivityRecord::Kind::kMemset);
  EXPECT_EQ(r.value, 0x5a5au);
  EXPECT_EQ(r.bytes, 4096u);
  EXPECT_TRUE(r.async);
  EXPECT_EQ(r.destination, event::MemoryKind::kManaged);
  EXPECT_EQ(r.stream_uid, 3u);
  EXPECT_EQ(r.graph_node, 6u);
}

TEST(ActivityLayout, Graphs) {
  auto raw = zeroed<CUpti_ActivityGraphTrace2>();
  raw.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  raw.correlationId = 4;
  raw.start = kBase + 1;
  raw.end = kBase + 2;
  raw.deviceId = 1, raw.contextId = 2, raw.streamId = 3, raw.graphId = 5;
  ActivityRecord r;
  ASSERT_EQ(read(raw, r, sizeof raw, 22), ReadResult::kRead);
  EXPECT_EQ(r.kind, ActivityRecord::Kind::kGraph);
  EXPECT_EQ(r.correlation, 4u);
  EXPECT_EQ(r.graph_uid, 5u);
  EXPECT_EQ(r.context_uid, 2u);
  EXPECT_EQ(r.stream_uid, 3u);
  EXPECT_EQ(r.end_ns, 2);
}

TEST(ActivityLayout, MissingZeroAndReversedTimesAreNull) {
  const auto times = [](std::uint64_t start, std::uint64_t end, ActivityRecord& r) {
    auto raw = zeroed<CUpti_ActivityMemset4>();
    raw.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    raw.start = start;
    raw.end = end;
    return read(raw, r);
  };
  ActivityRecord r;
  EXPECT_EQ(times(kBase + 5, kBase + 5, r), ReadResult::kRead);  // as short as that
  EXPECT_EQ(times(0, 0, r), ReadResult::kNoTime);
  EXPECT_FALSE(r.start_ns || r.end_ns);
  EXPECT_EQ(times(kBase + 5, 0, r), ReadResult::kNoTime);  // runs still
  EXPECT_EQ(r.start_ns, 5);
  EXPECT_FALSE(r.end_ns);
  EXPECT_EQ(times(0, kBase + 5, r), ReadResult::kNoTime);
  EXPECT_FALSE(r.start_ns);
  EXPECT_EQ(times(kBase + 6, kBase + 5, r), ReadResult::kNoTime);
  EXPECT_FALSE(r.start_ns || r.end_ns);
}

TEST(ActivityLayout, OtherKindsAndTornRecordsAreNotRead) {
  ActivityRecord r;
  auto raw = zeroed<CUpti_ActivityKernel10>();
  raw.kind = CUPTI_ACTIVITY_KIND_NAME;
  EXPECT_EQ(read(raw, r), ReadResult::kUnknown);
  raw.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  for (std::size_t room : {0, 3, 4, 100, 187}) EXPECT_EQ(read(raw, r, room), ReadResult::kUnknown) << room;
  EXPECT_EQ(read(raw, r, 188), ReadResult::kNoTime);
}

TEST(ActivityLayout, VersionsThatAreNotKnownAreRefused) {
  EXPECT_EQ(find_activity_layout(0), nullptr);
  EXPECT_EQ(find_activity_layout(17), nullptr);
  EXPECT_NE(find_activity_layout(18), nullptr);
  EXPECT_NE(find_activity_layout(130500), nullptr);
  EXPECT_EQ(find_activity_layout(140000), nullptr);
}

}  // namespace
}  // namespace gpuflight::capture
