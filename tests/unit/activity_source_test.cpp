// The GPU's times through the simulated CUPTI: what the recorder thread gets to see of what ran.
#include "capture/activity_source.h"

#include <cupti.h>

#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "sim_fixture.h"

namespace gpuflight::capture {
namespace {

using namespace sim::test;
using Graphs = ActivitySource::Graphs;

std::int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Seen {
  ActivityRecord record;
  std::string name;
};

// A source on the simulated libcupti, as the recorder holds it: never destroyed.
struct Recording {
  ActivitySource& source = *new ActivitySource;
  SharedObject& library = *new SharedObject;
  std::int64_t t0 = monotonic_ns();
  std::vector<Seen> seen;

  bool start(const ActivitySource::Settings& settings = {}, std::string* problem = nullptr) {
    std::string text;
    std::uint32_t version = 0;
    EXPECT_TRUE(library.adopt("libcupti.so.13"));
    EXPECT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
    const bool started = source.start(library, version, settings, t0, text);
    if (problem != nullptr) {
      *problem = text;
    } else {
      EXPECT_TRUE(started) << text;
    }
    return started;
  }

  void take() {
    source.take([this](const ActivityRecord& r) { seen.push_back({r, r.name != nullptr ? r.name : ""}); });
  }
  void finish() {
    source.flush(false);
    take();
  }
};

TEST(ActivitySource, KernelsWithTheirTimes) {
  for (const char* version : {"12.0", "12.9", "13.0", "13.3"}) {
    in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", version}}, [] {
      Recording recording;
      recording.start();
      const CUcontext context = start();
      sim::ModuleImage image{{kernel("_Z1kv", 24, 512)}};
      image.kernels[0].duration_ns = 2'000'000;
      const CUfunction k = function(load(image), "_Z1kv");
      CUstream stream = nullptr;
      ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
      EXPECT_EQ(launch(k, 5, 96, 128, stream), CUDA_SUCCESS);
      EXPECT_EQ(launch(k, 6, 32, 0, stream), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      recording.finish();
      ASSERT_EQ(recording.seen.size(), 2u);
      const ActivityRecord& r = recording.seen[0].record;
      EXPECT_EQ(recording.seen[0].name, "_Z1kv");
      EXPECT_EQ(r.kind, ActivityRecord::Kind::kKernel);
      EXPECT_EQ(r.grid, (event::Dim3{5, 1, 1}));
      EXPECT_EQ(r.shape.block, (event::Dim3{96, 1, 1}));
      EXPECT_EQ(r.shape.dyn_shared_bytes, 128u);
      EXPECT_EQ(r.num_regs, 24);
      EXPECT_EQ(r.static_shared_bytes, 512);
      std::uint32_t id = 0;
      EXPECT_EQ(cuptiGetStreamIdEx(context, stream, 0, &id), CUPTI_SUCCESS);
      EXPECT_EQ(r.stream_uid, id);
      EXPECT_EQ(cuptiGetContextId(context, &id), CUPTI_SUCCESS);
      EXPECT_EQ(r.context_uid, id);
      ASSERT_TRUE(r.start_ns && r.end_ns && recording.seen[1].record.start_ns && recording.seen[1].record.end_ns);
      EXPECT_EQ(*r.end_ns - *r.start_ns, 2'000'000);
      EXPECT_GT(*r.start_ns, 0);
      EXPECT_GE(*recording.seen[1].record.start_ns, *r.end_ns);
      EXPECT_LE(*recording.seen[1].record.end_ns, monotonic_ns() - recording.t0);
      EXPECT_NE(recording.seen[1].record.correlation, r.correlation);
      EXPECT_EQ(recording.source.counters().records, 2u);
      EXPECT_EQ(recording.source.counters().null_times, 0u);
    });
  }
}

TEST(ActivitySource, SaysWhyItDoesNotStart) {
  in_child({{"GPUFLIGHT_SIM_ACTIVITY_ERROR", "35"}}, [] {
    Recording recording;
    std::string problem;
    EXPECT_FALSE(recording.start({}, &problem));
    EXPECT_EQ(problem, "cuptiActivityEnable of CONCURRENT_KERNEL: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES");
    recording.finish();
    EXPECT_TRUE(recording.seen.empty());
    recording.source.stop();
  });
  in_child({{"GPUFLIGHT_SIM_CUPTI_VERSION", "140000"}}, [] {
    Recording recording;
    std::string problem;
    EXPECT_FALSE(recording.start({}, &problem));
    EXPECT_NE(problem.find("CUPTI 140000"), std::string::npos) << problem;
    recording.finish();
    recording.source.stop();
    EXPECT_EQ(recording.source.counters().buffers_requested, 0u);
  });
  in_child({}, [] {  // a library that is no CUPTI
    SharedObject library;
    ASSERT_TRUE(library.adopt("libcuda.so.1"));
    ActivitySource source;
    std::string problem;
    EXPECT_FALSE(source.start(library, 130000, {}, 0, problem));
    EXPECT_EQ(problem.find("cuptiActivityRegisterCallbacks is missing in "), 0u) << problem;
  });
}

}  // namespace
}  // namespace gpuflight::capture
