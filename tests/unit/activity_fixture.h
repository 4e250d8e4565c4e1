// An ActivitySource on the simulated libcupti, as the recorder holds it.
#pragma once

#include "capture/activity_source.h"

#include <cupti.h>

#include <ctime>
#include <string>
#include <vector>

#include "sim_fixture.h"

namespace gpuflight::capture::test {

inline std::int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Seen {
  ActivityRecord record;
  std::string name;
};

// Never destroyed, as in a process that records.
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

}  // namespace gpuflight::capture::test
