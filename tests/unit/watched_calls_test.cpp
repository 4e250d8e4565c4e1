// The table of watched calls against CUPTI's own list of callback ids, by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "capture/watched_calls.h"

namespace gpuflight::capture {
namespace {

struct Name {
  std::string base;         // as in the log
  bool per_thread = false;  // _ptds or _ptsz
  bool versioned = false;
};

Name taken_apart(std::string text) {
  Name name;
  for (const char* suffix : {"_ptds", "_ptsz"}) {
    if (text.ends_with(suffix)) {
      text.resize(text.size() - 5);
      name.per_thread = true;
    }
  }
  if (text.ends_with("_v2")) {
    text.resize(text.size() - 3);
    name.versioned = true;
  }
  name.base = text;
  return name;
}

std::map<CUpti_CallbackId, Name> all_calls() {
  std::map<CUpti_CallbackId, Name> calls;
  for (CUpti_CallbackId id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
    const char* text = nullptr;
    if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &text) == CUPTI_SUCCESS) calls[id] = taken_apart(text);
  }
  return calls;
}

std::map<std::string, event::ApiCall> recorded_calls() {
  std::map<std::string, event::ApiCall> calls;
  for (std::uint32_t i = 1; i < event::kApiCallCount; ++i) {
    calls[event::kApiCalls[i].name] = static_cast<event::ApiCall>(i);
  }
  return calls;
}

TEST(WatchedCalls, EveryFormOfEachRecordedCall) {
  const auto all = all_calls();
  ASSERT_GT(all.size(), 500u);
  const auto recorded = recorded_calls();
  std::set<std::string> with_second_version;
  for (const auto& [id, name] : all) {
    if (name.versioned) with_second_version.insert(name.base);
  }
  // Those of which the first version is no 32-bit one.
  const std::set<std::string> both = {"cuMemcpy", "cuMemHostAlloc", "cuMemHostRegister", "cuMemPrefetchAsync",
                                      "cuCtxSynchronize"};
  std::set<event::ApiCall> seen;
  for (const auto& [id, name] : all) {
    const auto found = recorded.find(name.base);
    const bool old = !name.versioned && with_second_version.count(name.base) != 0 && both.count(name.base) == 0;
    const WatchedCall* const watched = watched_call(id);
    if (found == recorded.end() || old) {
      EXPECT_EQ(watched, nullptr) << name.base << " " << id;
      continue;
    }
    ASSERT_NE(watched, nullptr) << name.base << " " << id;
    EXPECT_EQ(watched->api(), found->second) << name.base;
    EXPECT_EQ(watched->per_thread_default, name.per_thread) << name.base << " " << id;
    const bool asynchronous = name.base.ends_with("Async") || found->first.starts_with("cuEventRecord") ||
                              name.base == "cuStreamWaitEvent" || name.base == "cuStreamSynchronize";
    EXPECT_EQ(watched->has_stream(), asynchronous) << name.base;
    EXPECT_EQ(watched->may_wait, !asynchronous || name.base == "cuStreamSynchronize") << name.base;
    seen.insert(found->second);
  }
  EXPECT_EQ(seen.size(), recorded.size());
}

TEST(WatchedCalls, IdsToEnableAreThoseOfTheTable) {
  std::set<CUpti_CallbackId> listed;
  for (const CUpti_CallbackId id : watched_ids()) {
    EXPECT_NE(event::facts(watched_call(id)->api()).kind, event::ApiKind::kEdge);
    listed.insert(id);
  }
  for (const CUpti_CallbackId id : edge_ids()) {
    EXPECT_EQ(event::facts(watched_call(id)->api()).kind, event::ApiKind::kEdge);
    listed.insert(id);
  }
  EXPECT_EQ(listed.size(), watched_ids().size() + edge_ids().size());
  for (CUpti_CallbackId id = 0; id < 2000; ++id) EXPECT_EQ(watched_call(id) != nullptr, listed.count(id) != 0) << id;
  EXPECT_EQ(watched_call(~0u), nullptr);
}

// Where a call's stream is, by the structs of CUPTI's header.
TEST(WatchedCalls, StreamsAreReadFromWhereTheyAre) {
  const auto* const marker = reinterpret_cast<CUstream>(0x1234);
  const auto check = [&](CUpti_CallbackId id, const void* params) {
    EXPECT_EQ(watched_call(id)->stream(params), marker) << id;
  };
  cuMemcpyHtoDAsync_v2_params copy{};
  copy.hStream = const_cast<CUstream>(marker);
  check(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, &copy);
  check(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz, &copy);
  cuMemPrefetchAsync_v2_params prefetch{};
  prefetch.hStream = const_cast<CUstream>(marker);
  check(CUPTI_DRIVER_TRACE_CBID_cuMemPrefetchAsync_v2, &prefetch);
  cuStreamWaitEvent_params wait{};
  wait.hStream = const_cast<CUstream>(marker);
  check(CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent_ptsz, &wait);
  cuMemAllocFromPoolAsync_params pool{};
  pool.hStream = const_cast<CUstream>(marker);
  check(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync, &pool);
}

TEST(WatchedCalls, WhatWasAllocatedIsReadAtTheReturn) {
  CUdeviceptr place = 0x7f12'3456'7000;
  cuMemAlloc_v2_params alloc{&place, 4096};
  EXPECT_EQ(memory_arguments(event::ApiCall::kMemAlloc, &alloc).address, 0u);
  EXPECT_EQ(memory_arguments(event::ApiCall::kMemAlloc, &alloc).bytes, 4096u);
  EXPECT_EQ(memory_result(event::ApiCall::kMemAlloc, &alloc).address, place);
  std::size_t pitch = 512;
  cuMemAllocPitch_v2_params rows{&place, &pitch, 100, 7, 4};
  EXPECT_EQ(memory_arguments(event::ApiCall::kMemAllocPitch, &rows).bytes, 0u);
  EXPECT_EQ(memory_result(event::ApiCall::kMemAllocPitch, &rows).bytes, 3584u);
  void* host = reinterpret_cast<void*>(0x5555'0000);
  cuMemHostAlloc_params pinned{&host, 64, 0};
  EXPECT_EQ(memory_result(event::ApiCall::kMemHostAlloc, &pinned).address, 0x5555'0000u);
  CUmemAllocationProp on_device{};
  on_device.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  on_device.location.id = 3;
  CUmemGenericAllocationHandle handle = 77;
  cuMemCreate_params made{&handle, 2 << 20, &on_device, 0};
  const MemoryArguments physical = memory_result(event::ApiCall::kMemCreate, &made);
  EXPECT_EQ(physical.address, 77u);
  EXPECT_EQ(physical.device, 3);
  on_device.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  EXPECT_EQ(memory_result(event::ApiCall::kMemCreate, &made).device, -1);
  // A program may hand in nothing; the driver refuses it.
  cuMemAlloc_v2_params nothing{nullptr, 1};
  EXPECT_EQ(memory_result(event::ApiCall::kMemAlloc, &nothing).address, 0u);
}

}  // namespace
}  // namespace gpuflight::capture
